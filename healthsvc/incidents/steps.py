"""Steps in the thermal resistance that a node or a loop has in common: worth a watch, before anything throttles."""

from collections.abc import Mapping

import numpy as np

from healthsvc.features.half_hours import HALF_HOUR_S, half_hour_ends
from healthsvc.features.resistance import CLEAR_SHIFT, findings_of, measured_inlet, place_findings, widest_cooled
from healthsvc.fleet import FleetHistory
from healthsvc.fleet.causes import ThermalCause
from healthsvc.incidents.places import Place

BEYOND_DOUBT = 2.0  # times CLEAR_SHIFT


def open_steps(history: FleetHistory) -> Mapping[Place, float]:
    """Nodes and loops whose resistance is clearly above normal, and by how much (log R); asked once a half hour.

    Clearly: in this half hour and in the one before, or twice as far as that. So one job that begins, or one odd
    quarter of an hour, opens nothing. Blind where `place_findings` is.
    """
    if not half_hour_ends(history):
        return {}
    now, before, found = findings_of(history), None, {}
    wide = widest_cooled(history.topology)
    for layer, cause, shift in (
        (wide, ThermalCause.LOOP_FLOW, now.shifts.loop),
        ("node", ThermalCause.NODE_AIRFLOW, now.shifts.node),
    ):
        group = history.topology.group(layer, len(history.gpus))
        clear = (now.cause == cause) & (group >= 0)
        if not clear.any():
            continue
        if before is None:
            before = place_findings(history, measured_inlet(history), HALF_HOUR_S)
        sure = clear & ((shift >= BEYOND_DOUBT * CLEAR_SHIFT) | (before.cause == cause))
        numbers, first = np.unique(group[sure], return_index=True)
        for number, value in zip(numbers.tolist(), shift[sure][first].tolist(), strict=True):
            found[layer, history.topology.names[layer][number]] = value
    return found
