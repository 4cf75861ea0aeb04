"""Labels of single GPUs: thermal from the hourly dose, memory and device_loss from the event log."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.evaluation.auto_labels.dose import Heat
from healthsvc.evaluation.labels import Label
from healthsvc.features.facts import OPEN_FOR_S, class_events, domain_throttling, lost, recurring
from healthsvc.fleet import DAY_S, HOUR_S, OPEN, EventKind, EventLog, FleetHistory, GpuId, Topology

EPISODE_S = DAY_S  # service events of one GPU within a day are one
WORDS = {
    EventKind.DOUBLE_BIT_ERROR: "uncorrectable error",
    EventKind.UNCORRECTABLE_REMAP: "row remapped after an uncorrectable error",
    EventKind.RETIRED_PAGES: "page retired after an uncorrectable error",
    EventKind.REMAP_FAILURE: "row remap failed",
    EventKind.LOST: "silent while its node answers",
}


@dataclass(frozen=True, order=True)
class Happening:
    """One service event of one GPU; `terminal` makes it a T1."""

    row: int
    start_s: float
    end_s: float
    terminal: bool
    note: str


def thermal_labels(heat: Heat, topology: Topology, until_s: float) -> list[Label]:
    """Hours with the thermal dose on a GPU whose domain is not throttling; T1 with enough hardware slowdown.

    A T2 ends with its last such hour, once a day has passed without another; a T1 lasts.
    """
    own = heat.hot & ~domain_throttling(heat.hot, topology)
    happened = [
        Happening(
            int(row),
            float(heat.onset_s[row, column]),
            float(heat.hours[column] + 1) * HOUR_S,
            bool(heat.severe[row, column]),
            f"{100 * heat.dose[row, column]:.0f} % of the hour throttled",
        )
        for row, column in np.argwhere(own)
    ]
    labels: list[Label] = []
    for episode in episodes(happened):
        end_s = episode[-1].end_s
        labels += graded(heat.gpus, episode, end_s if until_s - end_s >= EPISODE_S else OPEN, OPEN, "thermal")
    return labels


def memory_labels(history: FleetHistory, until_s: float) -> list[Label]:
    """Double-bit errors, rows remapped and pages retired for them, the XIDs of the class; T1: a failed remap, its XIDs.

    A T2 ends with the next driver reload or absence, else after seven days; a T1 lasts.
    """
    events = history.events.known_at(until_s)
    resets = events.of(EventKind.DRIVER_RELOAD, EventKind.LOST, EventKind.GAP)
    happened = _happenings(class_events(events, "memory", ("T2",)))
    fatal = class_events(events, "memory", ("T1",))
    happened += _happenings(fatal, np.ones(len(fatal), bool))
    labels: list[Label] = []
    for episode in episodes(happened):
        labels += graded(history.gpus, episode, _end_s(episode, resets, until_s), OPEN, "memory")
    return labels


def device_loss_labels(history: FleetHistory, until_s: float) -> list[Label]:
    """The XIDs of the class, and GPUs gone while their node answers; never a node that is gone as a whole.

    T1: the same again within 14 days of a reboot, or the GPU was replaced. Either ends with the next driver reload or
    absence of its node, else after seven days; a GPU that is gone still, and a replaced one, does not end.
    """
    events = history.events.known_at(until_s)
    failures = class_events(events, "device_loss")
    resets = events.of(EventKind.DRIVER_RELOAD, EventKind.GAP)
    swapped = replaced(history)
    gone = lost(history) | swapped
    found = episodes(_happenings(failures, recurring(events)))
    last = {episode[0].row: number for number, episode in enumerate(found)}
    labels: list[Label] = []
    for number, episode in enumerate(found):
        row = episode[0].row
        newest = last[row] == number
        end_s = OPEN if newest and gone[row] else _end_s(episode, resets, until_s)
        if newest and swapped[row]:
            episode = [*episode[:-1], replace(episode[-1], terminal=True, note=f"{episode[-1].note}, then replaced")]
        labels += graded(history.gpus, episode, end_s, end_s, "device_loss")
    return labels


def replaced(history: FleetHistory) -> NDArray[np.bool_]:
    """bool[gpu]: another device has come to its socket on a later day. False where socket or ledger is unknown."""
    seen = history.daily.exposure_h > 0
    known = seen.any(axis=1)
    days = seen.shape[1]
    first = np.where(known, np.argmax(seen, axis=1) if days else 0, -1)
    last = np.where(known, days - 1 - np.argmax(seen[:, ::-1], axis=1) if days else 0, days)
    newest: dict[tuple[str, str, str], int] = {}
    for gpu, day in zip(history.gpus, first.tolist(), strict=True):
        newest[gpu.place] = max(day, newest.get(gpu.place, -1))
    later = np.array([newest[gpu.place] for gpu in history.gpus], np.intp)
    placed = np.array([bool(gpu.hostname and (gpu.slot or gpu.index)) for gpu in history.gpus], bool)
    return np.asarray(placed & (later > last))


def episodes(happened: Iterable[Happening]) -> list[list[Happening]]:
    """Events of one GPU, each within a day of the one before; by GPU and time."""
    found: list[list[Happening]] = []
    for event in sorted(happened):
        last = found[-1][-1] if found else None
        if last is not None and last.row == event.row and event.start_s - last.start_s <= EPISODE_S:
            found[-1].append(event)
        else:
            found.append([event])
    return found


def graded(
    gpus: Sequence[GpuId], episode: Sequence[Happening], end_s: float, terminal_end_s: float, what: str
) -> list[Label]:
    """The T2 and the T1 of an episode, whichever it has; a T2 only if it came before the T1."""
    worse = next((event for event in episode if event.terminal), None)
    first = next((event for event in episode if not event.terminal), None)
    if first is not None and worse is not None and first.start_s >= worse.start_s:
        first = None
    rows = ((first, "T2", end_s), (worse, "T1", terminal_end_s))
    return [
        Label(gpus[event.row].device_id, event.start_s, end, what, grade, "auto", note=event.note)
        for event, grade, end in rows
        if event is not None
    ]


def _happenings(events: EventLog, terminal: NDArray[np.bool_] | None = None) -> list[Happening]:
    grave = np.zeros(len(events), bool) if terminal is None else terminal
    columns = (events.row, events.start_s, grave, events.kind, events.value)
    return [
        Happening(row, start_s, start_s, worse, f"XID {value:.0f}" if kind == EventKind.XID else WORDS[EventKind(kind)])
        for row, start_s, worse, kind, value in zip(*(column.tolist() for column in columns), strict=True)
    ]


def _end_s(episode: Sequence[Happening], resets: EventLog, until_s: float) -> float:
    """The first reset after the episode's last event, else seven days after it; inf if that lies ahead."""
    last_s = episode[-1].start_s
    after = resets.start_s[(resets.row == episode[0].row) & (resets.start_s > last_s)]
    end_s = min(float(after.min(initial=OPEN)), last_s + OPEN_FOR_S)
    return end_s if end_s <= until_s else OPEN
