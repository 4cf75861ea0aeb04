"""Faults and decoys of the memory. A function draws its whole schedule alike for every chunk, and writes its part."""

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import Signal
from healthsvc.simulator.course import Course
from healthsvc.simulator.drive import GPU_RESET, Drive, Rows
from healthsvc.simulator.series import Array

# Titan, 100,889 GPU-years: how many times the base rate of double-bit errors a card had, by days since its last one.
RECURRENCE_DAYS = np.array([1.0, 7.0, 30.0, 90.0, 365.0])
RECURRENCE_RATIO = np.array([480.0, 290.0, 70.0, 12.0])
MOST_RECURRENCES = 12


def hbm_wear(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """Rows of the memory die faster and faster: each an uncorrectable error (48), a remap (63), a contained loss (94).

    A remap is pending until the operator resets the GPU. The last row finds no spare: remap failure, XID 64.
    Correctable errors rise only weakly (on HBM they hardly foretell the rest). At `end_day` the errors stop.
    """
    life, remaps = fault.severity["days_to_failure"], int(fault.severity["remaps"])
    moments = fault.start_day + wear_days(life, remaps, fault.severity["acceleration"], rng)
    correctable = rng.poisson(fault.severity["correctable_per_day"] * life)
    soft = fault.start_day + life * np.sqrt(rng.uniform(0.0, 1.0, correctable))
    drive.count(rows, soft[soft < fault.over_day], Signal.SBE_VOLATILE)
    for moment in moments[:-1][moments[:-1] < fault.over_day]:
        _lost_row(drive, rows, moment, (48, 63, 94))
        drive.restart(rows, min(moment + fault.severity["reset_after_hours"] / 24.0, fault.over_day), GPU_RESET)
    if moments[-1] < fault.over_day:
        drive.count(rows, moments[-1:], Signal.DBE_VOLATILE)
        drive.announce(rows, moments[-1], (48, 64))
        drive.mark(drive.failed, rows, moments[-1])


def wear_days(life_days: float, remaps: int, acceleration: float, rng: np.random.Generator) -> Array:
    """When the rows of a memory that wears out die, in days since it began: faster and faster, the last at the end."""
    due = (np.arange(1, remaps + 1) / remaps) ** (1.0 / acceleration)
    gap = np.diff(due, prepend=0.0)
    due[:-1] += rng.uniform(-0.3, 0.3, remaps - 1) * np.minimum(gap[:-1], gap[1:])
    return np.asarray(life_days * due, np.float64)


def sudden_dbe(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """One uncorrectable error out of the blue (48), its row remapped (63), pending until a reset at `end_day`."""
    _lost_row(drive, rows, fault.start_day, (48, 63))
    if fault.end_day is not None:
        drive.restart(rows, fault.end_day, GPU_RESET)


def recurrent_dbe(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """An uncorrectable error, a reset, and again: the hazard after each is the base rate times Titan's factors."""
    base_per_day = fault.severity["base_per_year"] / 365.25
    gaps = recurrence_days(rng.exponential(1.0, MOST_RECURRENCES), base_per_day)
    moments = fault.start_day + np.concatenate([[0.0], np.cumsum(gaps)])
    for moment in moments[moments < fault.over_day]:
        _lost_row(drive, rows, moment, (48, 63))
        drive.restart(rows, min(moment + fault.severity["reset_after_hours"] / 24.0, fault.over_day), GPU_RESET)


def recurrence_days(hazards: Array, base_per_day: float) -> Array:
    """Days until the next error, from standard exponential draws: when the cumulative hazard reaches each.

    Nothing within a day (that is the same episode); inf for what a year does not bring.
    """
    reached = np.concatenate([[0.0], np.cumsum(np.diff(RECURRENCE_DAYS) * RECURRENCE_RATIO * base_per_day)])
    return np.asarray(np.interp(hazards, reached, RECURRENCE_DAYS, right=np.inf), np.float64)


def sbe_burst(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: correctable errors by the thousand within `hours`, one row remapped for them, and then peace.

    With `end_day` peace comes then, however many errors the burst still had.
    """
    moments = fault.start_day + fault.severity["hours"] / 24.0 * rng.uniform(0.0, 1.0, int(fault.severity["errors"]))
    moments = np.sort(moments[moments < fault.over_day])
    drive.count(rows, moments, Signal.SBE_VOLATILE)
    drive.count(rows, moments[-1:], Signal.CORRECTABLE_REMAPS)


def _lost_row(drive: Drive, rows: Rows, day: float, codes: tuple[int, ...]) -> None:
    moment: NDArray[np.float64] = np.array([day])
    drive.count(rows, moment, Signal.DBE_VOLATILE)
    drive.count(rows, moment, Signal.UNCORRECTABLE_REMAPS)
    drive.announce(rows, day, codes)
    drive.mark(drive.pending, rows, day)
