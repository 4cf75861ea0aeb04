"""Which MIG instances a GPU has, and from which column on they are others."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.identity.partitions import CutBefore, Partitions

TIMES_S = np.array([60.0, 120.0, 180.0, 240.0])
Told = dict[str, list[float]]  # instance ("": whole) -> when


def samples(device: str, told: Told) -> Samples:
    labels = tuple({"UUID": device, **({"GPU_I_ID": name} if name else {})} for name in told)
    times = [at_s for each in told.values() for at_s in each]
    counts = np.array([len(each) for each in told.values()], np.int64)
    return Samples(labels, counts, np.array(times), np.zeros(len(times)))


def timeline(told: Told, before: CutBefore | None = None) -> list[tuple[float, set[str]]]:
    parts = Partitions(TIMES_S, 60.0, before or CutBefore())
    parts.take("temp", samples("GPU-1", told))
    return [(at_s, set(cut)) for at_s, cut in parts.timelines().get("GPU-1", [])]


def test_the_instances_of_the_first_column_and_every_change_are_told() -> None:
    told = {"1": [30.0, 90.0, 150.0, 210.0], "2": [30.0, 90.0], "7": [150.0, 210.0]}
    assert timeline(told) == [(60.0, {"1", "2"}), (180.0, {"1", "7"})]


def test_in_a_column_the_newest_scrape_counts() -> None:
    assert timeline({"1": [70.0], "2": [70.0], "3": [100.0]}) == [(120.0, {"3"})]


def test_a_gap_is_no_change() -> None:
    assert timeline({"1": [30.0, 210.0], "2": [30.0, 210.0]}) == [(60.0, {"1", "2"})]


def test_a_gpu_is_whole_again_once_the_same_metric_comes_without_instances() -> None:
    assert timeline({"1": [30.0, 90.0], "": [150.0]}) == [(60.0, {"1"}), (180.0, set())]
    before = CutBefore()
    timeline({"1": [30.0]}, before)
    assert timeline({"": [90.0]}, before) == [(120.0, set())]


def test_a_metric_that_never_comes_by_instance_says_nothing() -> None:
    before = CutBefore()
    parts = Partitions(TIMES_S, 60.0, before)
    parts.take("temp", samples("GPU-1", {"1": [30.0, 90.0]}))
    parts.take("fan", samples("GPU-1", {"": [30.0, 100.0]}))
    parts.take("temp", samples("GPU-2", {"": [30.0, 100.0]}))
    assert parts.timelines() == {"GPU-1": [(60.0, frozenset({"1"}))]}


def test_samples_beside_the_grid_count_for_nothing() -> None:
    assert timeline({"1": [0.0, 30.0], "2": [-60.0, 0.0, 900.0]}) == [(60.0, {"1"})]
    assert timeline({"1": []}) == []


CUTS = st.lists(st.sets(st.sampled_from(["1", "2", "3", "11"]), min_size=1), min_size=4, max_size=4)


@given(cuts=CUTS, split=st.integers(1, 3))
def test_it_is_told_alike_whether_the_answers_come_whole_or_in_parts(cuts: list[set[str]], split: int) -> None:
    """Against a plain walk over the columns."""
    told: Told = {name: [TIMES_S[k] - 5 for k in range(4) if name in cuts[k]] for name in ("1", "2", "3", "11")}
    plain = [(float(TIMES_S[k]), cuts[k]) for k in range(4) if k == 0 or cuts[k] != cuts[k - 1]]
    assert timeline(told) == plain
    parts = Partitions(TIMES_S, 60.0, CutBefore())
    for early in (False, True):  # in any order
        half = {n: [t for t in each if (t <= TIMES_S[split]) == early] for n, each in told.items()}
        parts.take("temp", samples("GPU-1", half))
    assert [(at_s, set(cut)) for at_s, cut in parts.timelines()["GPU-1"]] == plain
