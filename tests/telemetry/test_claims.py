"""One UUID in two places: carried from one to the other, or claimed by both at once."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.fleet import GpuId, Signal
from healthsvc.telemetry.catalogue import GPU_ROWS
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.framing.gathering import Gathering, KnownDevices
from healthsvc.telemetry.server.discovery import Found
from healthsvc.telemetry.source import RawGrid

ROW = next(row for row in GPU_ROWS if row.signal is Signal.GPU_TEMPERATURE)
TIMES_S = np.array([60.0, 120.0, 180.0, 240.0])
COLD, HOT = 30.0, 80.0


def gpu(host: str, slot: str = "", index: str = "0") -> GpuId:
    return GpuId("GPU-1", host, index, "H100", slot)


def found(*places: GpuId) -> dict[str, Found]:
    return {"GPU-1": Found(places[0], "UUID", "GPU-1", (("UUID", "GPU-1"),), places)}


def read(told: dict[str, list[float]], known: KnownDevices | None = None, **values: float) -> RawGrid:
    """Hosts with the times of their samples of one GPU; each reports its own temperature."""
    places = tuple(gpu(host) for host in sorted(told))
    known = known or KnownDevices()
    known.learn(found(*places))
    gathering = Gathering(Framer(places[:1], TIMES_S, 60.0), places[:1], found(*places), known, TIMES_S, 60.0)
    labels = tuple({"UUID": "GPU-1", "Hostname": host, "gpu": "0"} for host in told)
    times = [at_s for each in told.values() for at_s in each]
    temperatures = [values.get(host, COLD) for host, each in told.items() for _ in each]
    counts = np.array([len(each) for each in told.values()], np.int64)
    samples = Samples(labels, counts, np.array(times), np.array(temperatures))
    gathering.take(ROW, samples, slice(0, len(TIMES_S)))
    return gathering.grid(len(times), [])


def temperatures(raw: RawGrid) -> list[float]:
    found: list[float] = raw.values[Signal.GPU_TEMPERATURE][0].tolist()
    return found


def test_a_gpu_that_is_carried_has_the_readings_of_the_host_it_is_at() -> None:
    raw = read({"old": [30.0, 90.0], "new": [150.0, 210.0]}, old=COLD, new=HOT)
    assert temperatures(raw) == [COLD, COLD, HOT, HOT]
    assert [(s.at_s, s.gpu.hostname) for s in raw.sightings] == [(60.0, "old"), (180.0, "new")]
    assert raw.gpus[0].hostname == "new"
    assert not raw.rejected
    assert raw.warnings == ()


def test_two_hosts_that_claim_one_uuid_at_once_are_never_mixed() -> None:
    times = [30.0, 90.0, 150.0, 210.0]
    raw = read({"a": times, "b": times}, a=COLD, b=HOT)
    assert temperatures(raw) == [COLD] * 4  # the first by name
    assert raw.rejected == {(Signal.GPU_TEMPERATURE, "duplicate_device"): 4}
    assert raw.warnings == ("claimed by two hosts at once, the first is believed: GPU-1 by a and b",)
    assert [s.gpu.hostname for s in raw.sightings] == ["a"]
    assert not raw.incomplete


def test_the_host_that_was_known_before_is_believed() -> None:
    known, times = KnownDevices(), [30.0, 90.0, 150.0, 210.0]
    read({"b": times}, known)
    raw = read({"a": times, "b": times}, known, a=COLD, b=HOT)
    assert temperatures(raw) == [HOT] * 4
    assert raw.gpus[0].hostname == "b"


def test_in_the_column_of_a_change_the_old_place_is_still_right() -> None:
    raw = read({"old": [30.0, 70.0], "new": [110.0, 170.0]}, old=COLD, new=HOT)
    assert temperatures(raw)[:3] == [COLD, COLD, HOT]
    assert raw.rejected == {(Signal.GPU_TEMPERATURE, "duplicate_device"): 1}


def test_another_index_on_the_same_host_is_told_and_nothing_is_left_out() -> None:
    places = (gpu("n1", index="0"), gpu("n1", index="4"))
    known = KnownDevices()
    known.learn(found(*places))
    gathering = Gathering(Framer(places[:1], TIMES_S, 60.0), places[:1], found(*places), known, TIMES_S, 60.0)
    labels = tuple({"UUID": "GPU-1", "Hostname": "n1", "gpu": index} for index in "04")
    samples = Samples(labels, np.array([2, 3]), np.array([30.0, 90.0, 100.0, 150.0, 210.0]), np.full(5, COLD))
    gathering.take(ROW, samples, slice(0, 4))
    raw = gathering.grid(5, [])
    assert [(s.at_s, s.gpu.index) for s in raw.sightings] == [(60.0, "0"), (180.0, "4")]
    assert temperatures(raw) == [COLD] * 4
    assert not raw.rejected


COLUMNS = st.lists(st.sets(st.sampled_from("abc")), min_size=4, max_size=4)


@given(columns=COLUMNS, was=st.sampled_from(["", "a", "b", "c"]))
def test_in_no_column_is_more_than_one_host_believed(columns: list[set[str]], was: str) -> None:
    """Against a plain walk: whoever was right stays right while there, else the first by name."""
    level = {"a": 20.0, "b": 50.0, "c": 80.0}
    told = {host: [float(TIMES_S[k]) - 5 for k in range(4) if host in columns[k]] for host in "abc"}
    known = KnownDevices()
    if was:
        known.at["GPU-1"] = gpu(was)
    right, plain = was, []
    for there in columns:
        if there:
            right = right if right in there else min(there)
        plain.append(level[right] if there else None)
    raw = read(told, known, **level)
    got = temperatures(raw) if raw.values else [np.nan] * 4
    assert [None if value != value else value for value in got] == plain
    dropped = sum(len(there) - 1 for there in columns if there)
    assert sum(raw.rejected.values()) == dropped
