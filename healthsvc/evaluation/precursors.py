"""Whether there was something to foresee: the one fixed rule that recall "with a precursor" rests on."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.evaluation.labels import Label
from healthsvc.fleet import CLASSES, DAY_S, LEAD_MIN_S, EventKind, EventLog, Floats
from healthsvc.fleet.xids import XIDS_BY_CLASS

# Wear of the power smoothing circuit: signs of a board that ages, but of no failure class, so without a grade.
POWER_SMOOTHING_XIDS = (162, 163, 164)
PRECURSOR_XIDS = (
    *(code for grades in XIDS_BY_CLASS.values() for code, grade in grades.items() if grade == "P"),
    *POWER_SMOOTHING_XIDS,
)
PRECURSOR_EVENTS = (
    EventKind.UNCORRECTABLE_REMAP,
    EventKind.CORRECTABLE_REMAP,
    EventKind.REMAP_PENDING,
    EventKind.GAP,
    EventKind.LOST,
)
LOOK_BACK_S = 30 * DAY_S
EXCESS_SIGMA = 3.0


def precursor_of(
    label: Label,
    row_of: Mapping[str, int],
    events: EventLog,
    days: NDArray[np.int64],
    resistance_excess_sigma: Floats,
) -> bool | None:
    """What the label says; where it says nothing, what the telemetry of the 30 days before it shows.

    row_of: device_id -> row of `events` and of resistance_excess_sigma [gpu, day], the daily thermal resistance above
    the GPU's own normal in standard deviations (NaN = not tested, and no precursor). days: unix day of each column;
    a day counts once it is over. None = not known: a GPU without telemetry, or a domain, for which no rule is given.
    """
    if label.precursor is not None:
        return label.precursor
    row = row_of.get(label.scope)
    if row is None or label.failure_class not in CLASSES:
        return None
    from_s, to_s = label.start_s - LOOK_BACK_S, label.start_s - LEAD_MIN_S
    before = (events.row == row) & (events.start_s >= from_s) & (events.start_s <= to_s)
    told = np.isin(events.kind, PRECURSOR_EVENTS)
    told |= (events.kind == EventKind.XID) & np.isin(events.value, PRECURSOR_XIDS)
    over = (days * DAY_S >= from_s) & ((days + 1) * DAY_S <= to_s)
    return bool((before & told).any() or (resistance_excess_sigma[row, over] > EXCESS_SIGMA).any())


def with_precursors(
    labels: Iterable[Label],
    device_ids: Sequence[str],
    events: EventLog,
    days: NDArray[np.int64],
    resistance_excess_sigma: Floats,
) -> tuple[Label, ...]:
    """The labels, in their order, each that says nothing of a precursor completed by `precursor_of`.

    A label of which nothing can be known stays as it is.
    """
    row_of = {device_id: row for row, device_id in enumerate(device_ids)}
    return tuple(
        replace(label, precursor=precursor_of(label, row_of, events, days, resistance_excess_sigma)) for label in labels
    )
