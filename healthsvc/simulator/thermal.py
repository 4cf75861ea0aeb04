"""How a GPU heats up and defends itself: two thermal poles and a closed throttling loop, stepped exactly.

T = T_in + x_fast + x_slow, each pole x' = (R share · P - x) / tau, solved exactly for power that is constant over a
step: x(t + step) = a x(t) + (1 - a) R P, a = exp(-step / tau). The memory has one pole of its own. Software throttling
cuts power so that the step ends at or below max-op (GPU or memory); if its least power is still too much, hardware
slowdown holds the slowdown limit, down to its own least power. Blind to what happens within a step, to leakage (power
that rises with temperature) and to neighbours that warm each other's air.
"""

from dataclasses import dataclass, field

import numpy as np
from pydantic import Field

from healthsvc.simulator.series import Array
from healthsvc.simulator.spec import Spec
from healthsvc.simulator.workload import IDLE_WATTS

# H100 SXM5, as nvidia-smi -q -d TEMPERATURE reports them; shutdown (92, or 95 with T.Limit drivers) is never reached.
MAX_OPERATING_CELSIUS = 87.0
SLOWDOWN_CELSIUS = 89.0
MEMORY_MAX_OPERATING_CELSIUS = 95.0
SOFTWARE_LEAST_SHARE = 0.3  # of the power above idle, at the lowest clock that software throttling asks for
HARDWARE_LEAST_SHARE = 0.08
STEADY_CUT = 0.05  # a governor that must cut this much of the power is throttling all the time; less, part of it


class ThermalSpec(Spec):
    """The thermal path of a typical GPU, and how GPUs differ."""

    resistance_kelvin_per_watt: float = Field(0.0625, gt=0, le=1, description="from coolant or air to the die")
    memory_resistance_kelvin_per_watt: float = Field(0.068, gt=0, le=1, description="to the memory, by board power")
    spread_ratio: float = Field(0.05, ge=0, le=0.3, description="deviation of resistance between GPUs")
    convection_share_ratio: float = Field(0.65, ge=0, le=1, description="part of resistance that depends on flow")
    daily_noise_ratio: float = Field(0.01, ge=0, le=0.2, description="deviation of log resistance from day to day")
    daily_noise_persistence: float = Field(0.4, ge=0, lt=1, description="AR(1) coefficient of that noise")
    fast_share_ratio: float = Field(0.45, gt=0, lt=1, description="part of resistance in the fast pole")
    fast_tau_s: float = Field(20.0, gt=0, description="time constant of die and spreader")
    slow_tau_s: float = Field(240.0, gt=0, description="time constant of cold plate or heat sink")


@dataclass
class Heat:
    """One chunk's answer, each [gpu, time]: celsius, watts, and the share of each step that was throttled (0-1)."""

    temperature: Array
    memory_temperature: Array
    power: Array
    software: Array
    hardware: Array


@dataclass
class Boards:
    """All GPUs' heat, carried from chunk to chunk: kelvin above the coolant in each pole [gpu]."""

    spec: ThermalSpec
    step_s: float
    fast: Array = field(default_factory=lambda: np.zeros(0))
    slow: Array = field(default_factory=lambda: np.zeros(0))
    memory: Array = field(default_factory=lambda: np.zeros(0))

    def run(self, coolant: Array, wanted: Array, resistance: Array, memory_resistance: Array) -> Heat:
        """Steps through a chunk; arguments [gpu, time]: celsius, watts, kelvin per watt (both of board power)."""
        spec = self.spec
        keep_fast, keep_slow = np.exp(-self.step_s / spec.fast_tau_s), np.exp(-self.step_s / spec.slow_tau_s)
        time_first = [np.ascontiguousarray(a.T) for a in (coolant, wanted, resistance, memory_resistance)]
        coolant_t, wanted_t, resistance_t, memory_t = time_first
        fast_r, slow_r = spec.fast_share_ratio * resistance_t, (1 - spec.fast_share_ratio) * resistance_t
        fast_gain, slow_gain, memory_gain = (
            (1 - keep_fast) * fast_r,
            (1 - keep_slow) * slow_r,
            (1 - keep_slow) * memory_t,
        )
        gain = fast_gain + slow_gain
        idle = np.minimum(wanted_t, IDLE_WATTS)
        software_floor = idle + SOFTWARE_LEAST_SHARE * (wanted_t - idle)
        hardware_floor = idle + HARDWARE_LEAST_SHARE * (wanted_t - idle)
        software_room, hardware_room = MAX_OPERATING_CELSIUS - coolant_t, SLOWDOWN_CELSIUS - coolant_t
        memory_room = MEMORY_MAX_OPERATING_CELSIUS - coolant_t

        if not len(self.fast):  # the run begins in equilibrium
            self.fast, self.slow, self.memory = (r[0] * wanted_t[0] for r in (fast_r, slow_r, memory_t))
        fast, slow, memory = self.fast, self.slow, self.memory
        held, power, rise, memory_rise = (np.empty_like(wanted_t) for _ in range(4))
        for t in range(len(wanted_t)):
            left, memory_left = keep_fast * fast + keep_slow * slow, keep_slow * memory
            ceiling = np.minimum((software_room[t] - left) / gain[t], (memory_room[t] - memory_left) / memory_gain[t])
            np.minimum(wanted_t[t], np.maximum(ceiling, software_floor[t]), out=held[t])
            ceiling = np.maximum((hardware_room[t] - left) / gain[t], hardware_floor[t])
            watts = np.minimum(held[t], ceiling, out=power[t])
            fast = keep_fast * fast + fast_gain[t] * watts
            slow = keep_slow * slow + slow_gain[t] * watts
            memory = memory_left + memory_gain[t] * watts
            np.add(fast, slow, out=rise[t])
            memory_rise[t] = memory
        self.fast, self.slow, self.memory = fast, slow, memory

        with np.errstate(invalid="ignore", divide="ignore"):
            cut = np.where(wanted_t > 0, 1.0 - held / wanted_t, 0.0)
            slowed = np.where(held - power > 1e-9, (held - power) / (held - hardware_floor), 0.0)
        return Heat(
            temperature=(coolant_t + rise).T,
            memory_temperature=(coolant_t + memory_rise).T,
            power=power.T,
            software=np.clip(cut / STEADY_CUT, 0.0, 1.0).T,
            hardware=np.clip(slowed, 0.0, 1.0).T,
        )
