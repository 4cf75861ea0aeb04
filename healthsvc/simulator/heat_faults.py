"""Faults and decoys that act through heat and power. Called for every chunk; each writes the part that lies in it."""

import numpy as np

from healthsvc.simulator.course import Course
from healthsvc.simulator.drive import Drive, Rows
from healthsvc.simulator.workload import IDLE_WATTS, TDP_WATTS


def tim_drift(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """Thermal interface pumps out: the die's resistance grows by a share a day, compounding; memory is spared."""
    growth = 1.0 + fault.severity["growth_percent_per_day"] / 100.0
    drive.resistance_ratio[rows] *= growth ** fault.age_days(drive.days)


def loop_flow_loss(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A pump fails: flow ramps down to what remains, and every GPU of the loop gets hotter; repair is at once."""
    fallen = fault.grown(drive.days, fault.severity["ramp_minutes"] / 1440.0)
    drive.flow_ratio[drive.layout.loop_of[rows[0]]] *= 1.0 - fallen * (1.0 - fault.severity["remaining_ratio"])


def node_fan_fault(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A node's own airflow falls (in a liquid-cooled one: its branch of the loop clogs): all its GPUs get hotter.

    In one step or over `ramp_hours`. No sensor of the fleet measures it: neither inlet nor loop flow moves.
    """
    fallen = fault.grown(drive.days, fault.severity["ramp_hours"] / 24.0)
    drive.branch_flow_ratio[drive.layout.node_of[rows[0]]] *= 1.0 - fallen * (1.0 - fault.severity["remaining_ratio"])


def constant_hot(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: hot since it was mounted and no worse since."""
    ratio = np.where(fault.active(drive.days), 1.0 + fault.severity["excess_percent"] / 100.0, 1.0)
    drive.resistance_ratio[rows] *= ratio
    drive.memory_resistance_ratio[rows] *= ratio


def workload_step(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: the users of a node begin to work harder, so it is warmer for a good reason."""
    ratio = np.where(fault.active(drive.days), 1.0 + fault.severity["step_percent"] / 100.0, 1.0)
    above_idle = np.maximum(drive.wanted_watts[rows] - IDLE_WATTS, 0.0)
    drive.wanted_watts[rows] = np.minimum(drive.wanted_watts[rows] + above_idle * (ratio - 1.0), TDP_WATTS)


def heat_wave(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: the facility runs warm for days, air and coolant alike; every GPU is warmer and none is worse."""
    rise = fault.severity["rise_celsius"] * fault.grown(drive.days, fault.severity["ramp_hours"] / 24.0)
    drive.inlet_celsius += rise
    drive.supply_celsius += rise


def power_cap_change(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: the operator lowers the power limit of a node or of the fleet, and at `end_day` raises it again."""
    limit = np.where(fault.active(drive.days), fault.severity["limit_watts"], np.inf)
    drive.limit_watts[rows] = np.minimum(drive.limit_watts[rows], limit)


def power_brake(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A power feed is in trouble and pulls the hardware brake of its GPUs for a share of the time: clocks halve."""
    share = np.where(fault.active(drive.days), fault.severity["braked_share_ratio"], 0.0)
    drive.brake_ratio[rows] = np.maximum(drive.brake_ratio[rows], share)
