"""GPUs that are swapped, carried, renamed and cut up: told alike by who lives through it and by who reads it later."""

from pathlib import Path

import numpy as np
import pytest

from healthsvc.engine.digest import digest_day
from healthsvc.engine.recall import recall
from healthsvc.features.daily import definitions
from healthsvc.fleet import DAY_S, HOUR_S, EventKind, EventLog, GpuId, Sighting, Workload
from healthsvc.store import Ledger
from healthsvc.telemetry.read_ahead import ReadAhead
from healthsvc.telemetry.source import RawGrid, Source
from tests.engine.recordings import START_DAY, START_S, STEP_S, settings_for
from tests.engine.sources import NomadSource, steady_source

IDENTITY = [kind for kind in EventKind if kind >= EventKind.SWAP]


def gpu(device: str, host: str, slot: int) -> GpuId:
    return GpuId(device, host, str(slot), "NVIDIA H100 80GB HBM3", f"bus-{slot}")


def at(hours: float) -> float:
    return START_S + hours * HOUR_S


def turn(hours: float, now: GpuId, *instances: str) -> Sighting:
    return Sighting(at(hours), now, frozenset(instances))


@pytest.fixture(scope="module")
def nomads() -> NomadSource:
    """Three days. Of the first day nothing; on the second everything happens; then host n3 is dark."""
    gpus = [gpu(d, "n1", k) for k, d in enumerate("abcd")] + [gpu(d, "n2", k) for k, d in enumerate("efg")]
    gpus += [gpu("h", "n3", 0), gpu("i", "n3", 1), gpu("new", "n2", 2)]
    alive = {
        "g": (-np.inf, at(30)),  # swapped for "new", an hour later
        "new": (at(31), np.inf),
        "h": (-np.inf, at(40)),  # n3 is switched off for good
        "i": (-np.inf, at(40)),
    }
    courses = {
        **{d: [turn(27, gpu(d, "n1.example", k))] for k, d in enumerate("bcd", 1)},  # n1 gets another name
        "a": [turn(27, gpu("a", "n1.example", 0)), turn(29, gpu("a", "n2", 3))],  # then one of it is carried to n2
        "e": [turn(33, gpu("e", "n2", 0), "1", "2"), turn(47.5, gpu("e", "n2", 0), "1", "2", "3")],
        "f": [turn(47.75, GpuId("f", "n2", "9", "NVIDIA H100 80GB HBM3", "bus-1"))],
    }
    return NomadSource(steady_source(gpus, START_S, START_S + 4 * DAY_S, STEP_S, alive), courses)


EXPECTED = {
    *{(d, at(27), "RENAME") for d in "abcd"},
    ("a", at(29), "MOVE"),
    ("new", at(31) + STEP_S, "SWAP"),
    ("e", at(33), "REPARTITION"),
    ("e", at(47.5), "REPARTITION"),
    ("f", at(47.75), "RE_ENUMERATION"),
    ("h", at(72), "DECOMMISSION"),  # dark for the whole third day
    ("i", at(72), "DECOMMISSION"),
}


def told(gpus: tuple[GpuId, ...], events: EventLog) -> set[tuple[str, float, str]]:
    of = events.of(*IDENTITY)
    rows = zip(of.row.tolist(), of.start_s.tolist(), of.kind.tolist(), strict=True)
    return {(gpus[row].device_id, at_s, EventKind(kind).name) for row, at_s, kind in rows}


def written(ledger: Ledger) -> set[tuple[str, float, str]]:
    daily, events = ledger.read(START_DAY, START_DAY + 3)
    return told(daily.gpus, events)


def walked(source: Source, folder: Path, days: int = 3) -> Ledger:
    ledger = Ledger(folder, definitions())
    for day in reversed(range(START_DAY, START_DAY + days)):  # newest first, as a walk goes
        digest_day(source, ledger, day, (day + 1) * DAY_S, STEP_S, 1024, None)
    return ledger


def lived(source: Source, ledger: Ledger, from_h: float, until_h: float, steps: int = 1) -> Ledger:
    def ignore(raw: RawGrid) -> None:
        """Nobody listens."""

    memory = recall(source, ledger, at(from_h), settings_for(ledger.directory), None, ignore)
    while memory.now_s + STEP_S <= at(until_h):
        memory.advance(source, min(memory.now_s + steps * STEP_S, at(until_h)), ignore)
        memory.finish_days(ledger)
    return ledger


@pytest.fixture(scope="module")
def read_later(nomads: NomadSource, tmp_path_factory: pytest.TempPathFactory) -> Ledger:
    return walked(nomads, tmp_path_factory.mktemp("walked"))


def test_a_walk_through_history_tells_what_happened(read_later: Ledger) -> None:
    assert written(read_later) == EXPECTED


@pytest.mark.parametrize("steps", [1, 5])
def test_days_lived_and_days_walked_tell_the_same(nomads: NomadSource, tmp_path: Path, steps: int) -> None:
    first = walked(nomads, tmp_path, days=1)
    assert written(first) == set()
    assert written(lived(nomads, first, 25.0, 72.6, steps)) == EXPECTED


def test_a_restart_in_between_loses_and_doubles_nothing(nomads: NomadSource, tmp_path: Path) -> None:
    ledger = walked(nomads, tmp_path, days=1)
    lived(nomads, ledger, 25.0, 28.0)
    lived(nomads, ledger, 28.5, 47.6)
    assert written(lived(nomads, ledger, 47.7, 72.6)) == EXPECTED


def test_a_source_that_is_read_ahead_does_not_tell_who_they_will_be(nomads: NomadSource, tmp_path: Path) -> None:
    ahead = ReadAhead(nomads)
    early = ahead.read(np.array([at(26), at(26) + STEP_S]))
    assert {g.hostname for g in early.gpus} == {"n1", "n2", "n3"}
    assert not early.partitions
    assert not early.sightings
    ledger = walked(nomads, tmp_path, days=1)
    assert written(lived(ahead, ledger, 25.0, 72.6)) == EXPECTED


def test_a_carried_gpu_keeps_its_history_and_gets_other_neighbours(nomads: NomadSource, tmp_path: Path) -> None:
    memory = recall(nomads, walked(nomads, tmp_path, 1), at(28.9), settings_for(tmp_path), None, lambda raw: None)
    row = [g.device_id for g in memory.gpus].index("a")
    before = memory.history()
    memory.advance(nomads, at(29.5), lambda raw: None)
    after = memory.history()
    moved = [g.device_id for g in after.gpus].index("a")
    np.testing.assert_array_equal(after.daily.exposure_h[moved, 0], before.daily.exposure_h[row, 0])
    node = after.topology.groups["node"]
    assert {g.device_id for g, n in zip(after.gpus, node, strict=True) if n == node[moved]} == set("aefg")


def test_a_swapped_in_gpu_begins_without_a_past(nomads: NomadSource, tmp_path: Path) -> None:
    memory = recall(nomads, walked(nomads, tmp_path, 1), at(30.5), settings_for(tmp_path), None, lambda raw: None)
    memory.advance(nomads, at(32), lambda raw: None)
    devices = [g.device_id for g in memory.gpus]
    assert "g" not in devices
    history = memory.history().take(np.array([devices.index("new")]))
    assert history.daily.exposure_h[0, 0] == 0
    assert history.events.kind.tolist() == [EventKind.SWAP]


class _Held(NomadSource):
    """A pod holds the first GPU until hour 26."""

    def read(self, times_s, gpus=None, step_s=None):  # type: ignore[no-untyped-def]
        from dataclasses import replace

        raw = super().read(times_s, gpus, step_s)
        return replace(raw, workloads={"a": Workload("team", "job-1")} if times_s[-1] <= at(26) else {})


def test_the_pod_of_a_gpu_is_remembered_until_it_is_seen_without(nomads: NomadSource, tmp_path: Path) -> None:
    source = _Held(nomads.whole, nomads.courses)
    memory = recall(source, walked(nomads, tmp_path, 1), at(25.5), settings_for(tmp_path), None, lambda raw: None)
    assert memory.history().workloads == {"a": Workload("team", "job-1")}
    memory.advance(source, at(26), lambda raw: None)
    assert memory.history().workloads == {"a": Workload("team", "job-1")}
    memory.advance(source, at(26) + STEP_S, lambda raw: None)
    assert not memory.history().workloads
