"""What happened to who the GPUs are: swapped, moved, renamed, re-enumerated, re-partitioned, decommissioned.

A pure function over who was known, who is seen, and when: a day that is lived minute by minute and the same day walked
later give the same events.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from types import MappingProxyType

import numpy as np

from healthsvc.fleet import EventKind, EventLog, GpuId, Sighting

Present = Callable[[str, float], bool]  # whether this device has a sample in the column that ends then
Host = tuple[str, str]  # cluster and hostname


@dataclass(frozen=True)
class IdentityEvent:
    """One event of one device."""

    device_id: str
    at_s: float
    kind: EventKind
    value: float = 1.0


@dataclass(frozen=True)
class Known:
    """Who is known, by device_id: the newest labels, and the MIG instances where the telemetry told of them."""

    gpus: Mapping[str, GpuId] = field(default_factory=lambda: MappingProxyType({}))
    instances: Mapping[str, frozenset[str]] = field(default_factory=lambda: MappingProxyType({}))

    def only(self, devices: Iterable[str]) -> "Known":
        """Without those that are not among `devices`."""
        kept = set(devices)
        return Known(
            {device: gpu for device, gpu in self.gpus.items() if device in kept},
            {device: cut for device, cut in self.instances.items() if device in kept},
        )


def identity_events(known: Known, seen: Sequence[Sighting], present: Present) -> tuple[list[IdentityEvent], Known]:
    """What `seen` (in order of time) adds to what is known, and who is known afterwards.

    SWAP: an unknown device in a socket whose last occupant is silent by now. MOVE: a known device on another host.
    RENAME: most of a host's GPUs, and all that answer, stand under one new name in the sockets they had.
    RE_ENUMERATION: another index or bus address on the same host. REPARTITION: other MIG instances. A label that
    appears or vanishes (an exporter's upgrade) is no change.

    Blind to a single board that is carried, into the same socket, to a host that nobody has heard of, while its old
    host is dark: that looks like a rename. Nor is a board known that was away longer than `known` reaches back.
    """
    events: list[IdentityEvent] = []
    gpus, instances = dict(known.gpus), dict(known.instances)
    for at_s, together in groupby(seen, key=lambda sighting: sighting.at_s):
        column = list(together)
        changed = [s for s in column if gpus.get(s.gpu.device_id) != s.gpu]
        events += _places(gpus, changed, at_s, present)
        for s in column:
            before = instances.get(s.gpu.device_id)
            if s.instances is None:
                continue
            if before is not None and before != s.instances:
                events.append(IdentityEvent(s.gpu.device_id, at_s, EventKind.REPARTITION, float(len(s.instances))))
            instances[s.gpu.device_id] = s.instances
        gpus.update({s.gpu.device_id: s.gpu for s in changed})
    return events, Known(gpus, instances)


def _places(
    gpus: Mapping[str, GpuId], changed: Sequence[Sighting], at_s: float, present: Present
) -> list[IdentityEvent]:
    if not changed or not gpus:  # of a fleet's first column nothing has been known before
        return []
    renamed = _renamed(gpus, changed, at_s, present)
    newcomers = [s.gpu for s in changed if s.gpu.device_id not in gpus and s.gpu.hostname]
    before = _occupants(gpus) if newcomers else {}
    left = {s.gpu.device_id for s in changed}  # whoever stands elsewhere from this column on has left the socket
    events = []
    for gpu in newcomers:
        occupants = {device for socket in _sockets(gpu) for device in before.get(socket, ())}
        # Indices are dealt anew at every boot: where both sides have a bus address, that decides.
        occupants = {device for device in occupants if not _differ(gpus[device].slot, gpu.slot)}
        if occupants and not any(present(device, at_s) for device in occupants - left):
            events.append(IdentityEvent(gpu.device_id, at_s, EventKind.SWAP))
    for gpu in (sighting.gpu for sighting in changed):
        was = gpus.get(gpu.device_id)
        if was is None:
            continue
        if _other(_host(was), _host(gpu)):
            kind = EventKind.RENAME if renamed.get(_host(was)) == _host(gpu) else EventKind.MOVE
            events.append(IdentityEvent(gpu.device_id, at_s, kind))
        elif _differ(was.index, gpu.index) or _differ(was.slot, gpu.slot):
            events.append(IdentityEvent(gpu.device_id, at_s, EventKind.RE_ENUMERATION))
    return events


def _host(gpu: GpuId) -> Host:
    return gpu.cluster, gpu.hostname


def _differ(one: str, other: str) -> bool:
    return bool(one and other and one != other)


def _other(one: Host, other: Host) -> bool:
    return _differ(one[0], other[0]) or _differ(one[1], other[1])


def _sockets(gpu: GpuId) -> list[tuple[str, str, str]]:
    """What this GPU's socket may be called."""
    return [(gpu.cluster, gpu.hostname, name) for name in (gpu.slot, f"index {gpu.index}" if gpu.index else "") if name]


def _occupants(gpus: Mapping[str, GpuId]) -> Mapping[tuple[str, str, str], list[str]]:
    """Socket -> the devices known in it."""
    found: defaultdict[tuple[str, str, str], list[str]] = defaultdict(list)
    for device, gpu in gpus.items():
        for socket in _sockets(gpu):
            found[socket].append(device)
    return found


def _renamed(
    gpus: Mapping[str, GpuId], changed: Sequence[Sighting], at_s: float, present: Present
) -> Mapping[Host, Host]:
    """Hosts that are called something else from this column on: the old name, the new one."""
    targets: defaultdict[Host, set[Host]] = defaultdict(set)
    came: defaultdict[Host, dict[str, GpuId]] = defaultdict(dict)
    for gpu in (sighting.gpu for sighting in changed):
        was = gpus.get(gpu.device_id)
        if was is not None and was.hostname and _other(_host(was), _host(gpu)):
            targets[_host(was)].add(_host(gpu))
            came[_host(was)][gpu.device_id] = gpu
    if not targets:
        return {}
    members: defaultdict[Host, list[GpuId]] = defaultdict(list)
    for gpu in gpus.values():
        members[_host(gpu)].append(gpu)
    renamed = {}
    for old, new_names in targets.items():
        (new,) = new_names if len(new_names) == 1 else (None,)
        if new is None or new in members:
            continue
        answering = [g for g in members[old] if g.device_id in came[old] or present(g.device_id, at_s)]
        stayed_put = all(
            (now := came[old].get(g.device_id)) is not None
            and not _differ(g.slot, now.slot)
            and (bool(g.slot) or not _differ(g.index, now.index))
            for g in answering
        )
        if stayed_put and 2 * len(answering) > len(members[old]):
            renamed[old] = new
    return renamed


def decommissioned(before: Iterable[GpuId], now: Iterable[GpuId]) -> tuple[GpuId, ...]:
    """Those of the day `before` that are not in the day `now`, and nor is anybody on their host, in order of name.

    A GPU that is gone beside a live sibling is lost, not decommissioned. Without a hostname nothing can be said, and
    nor where nobody at all reports: then it is the telemetry that is gone.
    """
    there = tuple(now)
    if not there:
        return ()
    devices, hosts = {gpu.device_id for gpu in there}, {_host(gpu) for gpu in there}
    gone = [g for g in before if g.hostname and g.device_id not in devices and _host(g) not in hosts]
    return tuple(sorted(gone, key=lambda gpu: gpu.device_id))


def as_log(events: Sequence[IdentityEvent], rows: Mapping[str, int]) -> EventLog:
    """The events of the GPUs that have a row, as a log: points in time."""
    told = [event for event in events if event.device_id in rows]
    if not told:
        return EventLog()
    at_s = np.array([event.at_s for event in told])
    log = EventLog(
        np.array([rows[event.device_id] for event in told], np.int32),
        at_s,
        at_s,
        np.array([event.kind for event in told], np.int16),
        np.array([event.value for event in told]),
    )
    return EventLog().merged(log)
