"""The air and the coolant that the fleet breathes: diurnal swing, slow noise, one series a node or a loop."""

import numpy as np
from pydantic import Field

from healthsvc.simulator.layout import Layout
from healthsvc.simulator.series import Array, Wander
from healthsvc.simulator.spec import Spec

WANDER_S = 3600.0  # inlet noise keeps its memory for about an hour


class EnvironmentSpec(Spec):
    """Base temperatures, their daily swing (amplitude) and noise (standard deviation)."""

    inlet_celsius: float = Field(24.0, ge=5, le=45, description="mean air inlet of a node")
    inlet_swing_celsius: float = Field(1.5, ge=0, le=15, description="diurnal amplitude of the air inlet")
    inlet_noise_celsius: float = Field(0.3, ge=0, le=5, description="deviation of the air inlet's noise")
    supply_celsius: float = Field(32.0, ge=5, le=50, description="mean coolant supply of a loop")
    supply_swing_celsius: float = Field(0.6, ge=0, le=15, description="diurnal amplitude of the coolant supply")
    supply_noise_celsius: float = Field(0.15, ge=0, le=5, description="deviation of the coolant supply's noise")
    rated_flow_liters_per_minute_per_gpu: float = Field(1.5, gt=0, description="rated coolant flow for each GPU")
    flow_noise_ratio: float = Field(0.004, ge=0, le=0.1, description="deviation of the flow reading, share of rated")


class Environment:
    """Draws chunk after chunk; the same seed draws the same."""

    def __init__(self, spec: EnvironmentSpec, layout: Layout, step_s: float, rng: np.random.Generator) -> None:
        self.spec = spec
        persistence = float(np.exp(-step_s / WANDER_S))
        air, coolant, flow, place = rng.spawn(4)
        self._inlet = Wander(air, len(layout.nodes), persistence, spec.inlet_noise_celsius)
        self._supply = Wander(coolant, len(layout.loops), persistence, spec.supply_noise_celsius)
        self._flow = Wander(flow, len(layout.loops), 0.5, spec.flow_noise_ratio)
        self._rack_offset = place.normal(0.0, 0.8, layout.rack_of_node[-1] + 1)[layout.rack_of_node, None]

    def draw(self, times_s: Array) -> tuple[Array, Array, Array]:
        """Inlet [node, time] in celsius, coolant supply [loop, time] in celsius, flow noise [loop, time] as a ratio.

        The warmest hour is 15:00 UTC.
        """
        columns = len(times_s)
        inlet, supply = self.expected(times_s)
        return inlet + self._inlet.draw(columns), supply + self._supply.draw(columns), self._flow.draw(columns)

    def expected(self, times_s: Array) -> tuple[Array, Array]:
        """Inlet [node, time] and coolant supply [loop, time] in celsius, without their noise; draws nothing."""
        swing = np.sin(2 * np.pi * (times_s / 86_400.0 - 0.375))
        inlet = self.spec.inlet_celsius + self._rack_offset + self.spec.inlet_swing_celsius * swing
        supply = np.full(len(self._supply.last), self.spec.supply_celsius)[:, None]
        return inlet, supply + self.spec.supply_swing_celsius * swing
