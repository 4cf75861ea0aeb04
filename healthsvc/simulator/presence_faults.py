"""Faults and decoys of a GPU's presence: lost, hung, taken away, or merely complaining about its applications."""

import numpy as np

from healthsvc.fleet import DAY_S, Signal
from healthsvc.simulator.course import Course
from healthsvc.simulator.drive import REBOOT, Drive, Rows

STORM_XIDS = (31, 13, 43, 45)  # of applications: no evidence against the hardware
STORM_SHARES = (0.4, 0.25, 0.15, 0.2)
APART_STEPS = 4  # so that two missed samples are never taken for a loss


def off_bus(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """The GPU falls off the bus: XID 79 in one last sample, then silence until a reboot at `end_day`.

    With `precursor_hours`, missed samples and PCIe replays grow towards the loss; without, nothing foretells it. With
    `again_after_days` it falls off once more, that long after the reboot, and is not brought back.
    """
    _falters(drive, fault, rows, rng)
    _falls_off(drive, rows, fault.start_day, np.inf if fault.end_day is None else fault.end_day)
    if fault.end_day is not None:
        drive.restart(rows, fault.end_day, REBOOT)
        if fault.severity["again_after_days"] > 0:
            _falls_off(drive, rows, fault.end_day + fault.severity["again_after_days"], np.inf)


def _falters(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    ahead_days = fault.severity["precursor_hours"] / 24.0
    if ahead_days <= 0:
        return
    replays, gaps = (
        fault.start_day - ahead_days * (1.0 - np.sqrt(rng.uniform(0.0, 1.0, int(fault.severity[what]))))
        for what in ("replays", "gaps")
    )
    drive.count(rows, replays, Signal.PCIE_REPLAYS)
    step = drive.step_s / DAY_S
    slots = np.unique(np.floor((gaps - fault.start_day) / step / APART_STEPS))
    for slot in slots[slots < -1]:
        column = drive.column(fault.start_day + slot * APART_STEPS * step)
        if column is not None:
            drive.alive[rows, column] = False


def _falls_off(drive: Drive, rows: Rows, day: float, until_day: float) -> None:
    drive.announce(rows, day, (79,))
    last_words = day + drive.step_s / DAY_S
    drive.alive[rows] &= ~((drive.days >= last_words - 1e-9) & (drive.days < until_day))


def gsp_hang(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """The GPU's own firmware no longer answers (119, 120): still visible, doing nothing until a reboot at `end_day`."""
    drive.announce(rows, fault.start_day, (119, 120))
    drive.idle[rows] |= fault.active(drive.days)
    if fault.end_day is not None:
        drive.restart(rows, fault.end_day, REBOOT)


def app_xids(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: a job with a bug makes the GPUs of its node complain (13, 31, 43, 45) for `hours`."""
    each = int(rng.poisson(fault.severity["xids_per_hour"] * fault.severity["hours"]))
    moments = fault.start_day + fault.severity["hours"] / 24.0 * rng.uniform(0.0, 1.0, (len(rows), each))
    codes = rng.choice(STORM_XIDS, (len(rows), each), p=STORM_SHARES)
    columns, inside = drive.columns(moments)
    which, shot = np.nonzero(inside & (moments < fault.over_day))
    row, column = rows[which], columns[which, shot]
    free = drive.xid[row, column] == 0  # a complaint about the hardware is not talked over
    drive.xid[row[free], column[free]] = codes[which, shot][free]


def maintenance(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: a node is drained, its series gone; at `end_day` it is back, and its counters begin again."""
    node = drive.layout.node_of[rows[0]]
    off = drive.days >= fault.start_day + fault.severity["drain_hours"] / 24.0
    drive.idle[rows] |= fault.active(drive.days)
    drive.alive[rows] &= ~(fault.active(drive.days) & off)
    drive.dark[node] |= fault.active(drive.days) & off
    if fault.end_day is not None:
        drive.restart(rows, fault.end_day, REBOOT)


def decommission(drive: Drive, fault: Course, rows: Rows, rng: np.random.Generator) -> None:
    """A decoy: a whole node leaves the fleet for good, or until `end_day`."""
    drive.alive[rows] &= ~fault.active(drive.days)
    drive.dark[drive.layout.node_of[rows[0]]] |= fault.active(drive.days)
