"""Power that fails over many nodes: brakes that are pulled together, and for how long they stay so."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.facts import newest_s
from healthsvc.features.medians import nan_sum
from healthsvc.features.throttling import ThrottleKind, throttle_episodes, throttled_seconds
from healthsvc.fleet import HOLDS_SHARE, LAYERS, EventKind, FleetHistory
from healthsvc.incidents.candidate import FLEET, Candidate, Level
from healthsvc.incidents.places import NO_PLACE

Flags = NDArray[np.bool_]
NOW_S = 600.0  # braked now: in the last ten minutes, for more than the share below
NOW_DOSE = 0.01
TOGETHER_S = 600.0  # brakes that begin within so long of each other have one cause
LEAST_NODES = 3
# Of places that hold as many, the one that shares power comes first.
PREFERRED = ("power_feed", *(layer for layer in LAYERS if layer not in ("power_feed", NO_PLACE)))


def braked_now(history: FleetHistory) -> Flags:
    """bool[gpu]: held by the power brake for more than 1 % of the last ten minutes; once a history.

    From the counter, else from the sampled clock event bit 7, which is blind to what lies between samples.
    """
    return history.once("braked_now", _braked_now)


def _braked_now(history: FleetHistory) -> Flags:
    columns = max(1, round(NOW_S / history.recent.step_s))
    newest = history.recent.columns(slice(-columns, None))
    return np.asarray(nan_sum(throttled_seconds(newest, ThrottleKind.POWER_BRAKE)) > NOW_DOSE * NOW_S)


def power_candidates(history: FleetHistory) -> Iterator[Candidate]:
    """One for each time at which brakes began on at least three nodes within ten minutes, and are pulled still.

    By the hardware power brake (clock event reason 7), which is pulled from outside: a power cap is none. On the
    smallest place that holds four fifths of the GPUs; where none does, on the fleet, the GPUs alone its
    members. Blind to a brake shorter than 1 % of ten minutes, and to fewer than three nodes: a node's own supply.
    """
    node = history.topology.group("node", len(history.gpus))
    braked = np.flatnonzero(braked_now(history) & (node >= 0))
    if len(np.unique(node[braked])) < LEAST_NODES:
        return
    began_s = _began_s(history, braked)
    braked, began_s = braked[np.isfinite(began_s)], began_s[np.isfinite(began_s)]
    for together in _together(began_s, node[braked]):
        rows = braked[together]
        nodes = len(np.unique(node[rows]))
        layer, domain, members = _place(history, rows)
        first = int(np.argmin(began_s[together]))
        yield Candidate(
            layer,
            domain,
            tuple(history.gpus[row].device_id for row in members.tolist()),
            tuple(members.tolist()),
            Level.ACTIVE,
            "power",
            f"power brake on {len(rows)} GPUs of {nodes} nodes",
            history.gpus[int(rows[first])].device_id,
            float(began_s[together][first]),
        )


def _began_s(history: FleetHistory, rows: NDArray[np.intp]) -> NDArray[np.float64]:
    """When the newest brake of each of these GPUs began [row]: by the log, else by what the window shows; -inf if it
    has been too short in every five minutes."""
    log = history.events.known_at(history.now_s).of(EventKind.POWER_BRAKE)
    logged, shown = newest_s(log, len(history.gpus))[rows], np.full(len(history.gpus), -np.inf)
    if not np.isfinite(logged).all():
        episodes = throttle_episodes(history.recent, ThrottleKind.POWER_BRAKE)
        np.maximum.at(shown, episodes.row, episodes.start_s)
    return np.where(np.isfinite(logged), logged, shown[rows])


def _together(began_s: NDArray[np.float64], node: NDArray[np.int32]) -> Iterator[NDArray[np.intp]]:
    """Positions of brakes that began within ten minutes of each other on at least three nodes, a chain at a time."""
    order = np.argsort(began_s, kind="stable")
    moments = np.unique(began_s)
    start = np.searchsorted(began_s[order], moments)
    end = np.searchsorted(began_s[order], moments + TOGETHER_S, "right")
    kept: list[tuple[int, int]] = []
    for a, b in zip(start.tolist(), end.tolist(), strict=True):
        if len(np.unique(node[order[a:b]])) >= LEAST_NODES:
            if kept and a < kept[-1][1]:
                kept[-1] = (kept[-1][0], b)
            else:
                kept.append((a, b))
    for a, b in kept:
        yield order[a:b]


def _place(history: FleetHistory, rows: NDArray[np.intp]) -> tuple[str, str, NDArray[np.intp]]:
    """The smallest place that holds four fifths of these GPUs, with its members; else the fleet and they alone."""
    topology, found = history.topology, []
    for rank, layer in enumerate(PREFERRED):
        group = topology.group(layer, len(history.gpus))
        here = group[rows]
        count = np.bincount(here[here >= 0])
        if len(count) and count.max() >= HOLDS_SHARE * len(rows):
            number = int(np.argmax(count))
            members = np.flatnonzero(group == number)
            found.append((len(members), rank, layer, topology.names[layer][number], members))
    if found:
        _, _, layer, name, members = min(found, key=lambda each: each[:2])
        return layer, name, members
    clusters = {history.gpus[row].cluster for row in rows.tolist()}
    return FLEET, (clusters.pop() if len(clusters) == 1 else "") or "all", rows
