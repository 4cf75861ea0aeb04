"""b3: hotter than its neighbours."""

from dataclasses import dataclass

import numpy as np

from healthsvc.evaluation.baselines.base import LOOK_BACK_S, Flags, alarms_of, carried, columns_in, held, lately
from healthsvc.features.medians import group_median
from healthsvc.fleet import FleetHistory, Signal

NORMAL_MAD = 1.4826  # standard deviation of a normal distribution over its median absolute deviation
PEERS = 3
RESOLUTION_CELSIUS = 1.0


@dataclass(frozen=True)
class PeerTemperature:
    """GPU temperature more than 3 robust deviations above the node's median for 30 minutes.

    z = (T - median) / max(1.4826 MAD, 1 C), over the GPUs of the node, at least 3 observed; the floor is the sensor's
    resolution, without which a calm node divides by zero.
    Source: the usual robust outlier rule (Iglewicz and Hoaglin 1993).
    Blind to: load (the busy GPU of an idle node is its outlier), place in the air path, and faults of a whole node.
    """

    every_s: float = 300.0
    z_limit: float = 3.0
    hold_s: float = 1800.0

    @property
    def name(self) -> str:
        return "b3 temperature against node peers"

    def alarms(self, history: FleetHistory) -> Flags:
        """See the class."""
        columns = columns_in(history.recent, self.every_s + self.hold_s + LOOK_BACK_S) + 1
        window = history.recent.columns(slice(-columns, None))
        node = history.topology.group("node", len(history.gpus))
        temperature = carried(window, Signal.GPU_TEMPERATURE)
        deviation = temperature - group_median(temperature, node, at_least=PEERS)
        spread = NORMAL_MAD * group_median(np.abs(deviation), node, at_least=PEERS)
        outlying = deviation > self.z_limit * np.maximum(spread, RESOLUTION_CELSIUS)
        thermal = lately(held(outlying, window, self.hold_s), window, self.every_s)
        return alarms_of(len(history.gpus), thermal=thermal)
