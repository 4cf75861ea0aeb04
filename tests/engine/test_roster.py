"""Who is in the fleet: newcomers join, swapped and departed GPUs leave, a lost one stays in sight."""

import numpy as np

from healthsvc.engine.roster import Roster
from healthsvc.fleet import GpuId

NOW_S = 1_790_000_000.0
HOUR_S, DAY_S = 3600.0, 86_400.0
DEPARTED_S, LOST_S = DAY_S, 7 * DAY_S


def gpu(device: str, host: str = "n1", slot: str = "", index: str = "0") -> GpuId:
    return GpuId(device, host, index, "H100", slot or f"slot-{device}")


def roster(*seen_ago: tuple[GpuId, float]) -> Roster:
    return Roster().seen([g for g, _ in seen_ago], np.array([NOW_S - ago for _, ago in seen_ago]))


def staying(known: Roster, now_s: float = NOW_S) -> dict[str, bool]:
    keep = known.staying(now_s, DEPARTED_S, LOST_S)
    return {g.device_id: bool(k) for g, k in zip(known.gpus, keep, strict=True)}


def test_newcomers_come_last_and_nobody_moves() -> None:
    known = roster((gpu("a"), 0.0), (gpu("b"), 0.0)).seen([gpu("c"), gpu("a")], np.array([NOW_S, NOW_S]))
    assert [g.device_id for g in known.gpus] == ["a", "b", "c"]
    assert known.rows_of([gpu("c"), gpu("x"), gpu("b")]).tolist() == [2, -1, 1]


def test_an_unchanged_fleet_stays_the_same_object() -> None:
    known = roster((gpu("a"), 0.0), (gpu("b"), 0.0))
    assert known.seen([gpu("b")], np.array([NOW_S + 60])).gpus is known.gpus


def test_the_newest_labels_win_and_the_newest_sample_counts() -> None:
    moved = gpu("a", host="n2")
    known = roster((gpu("a"), 0.0)).seen([moved], np.array([NOW_S - HOUR_S]))
    assert known.gpus == (moved,)
    assert known.last_seen_s.tolist() == [NOW_S]


def test_a_gpu_listed_without_a_sample_was_not_seen() -> None:
    known = roster((gpu("a"), HOUR_S)).seen([gpu("a"), gpu("b")], np.array([np.nan, -np.inf]))
    assert known.last_seen_s.tolist() == [NOW_S - HOUR_S, -np.inf]


def test_a_gpu_lost_beside_a_live_node_is_kept_for_seven_days() -> None:
    for days, kept in ((2, True), (6.9, True), (7.1, False)):
        assert staying(roster((gpu("a"), days * DAY_S), (gpu("b"), 0.0))) == {"a": kept, "b": True}


def test_a_whole_node_that_is_gone_departs_after_a_day() -> None:
    for hours, kept in ((23, True), (25, False)):
        gone = roster((gpu("a"), hours * HOUR_S), (gpu("b"), hours * HOUR_S), (gpu("c", host="n2"), 0.0))
        assert staying(gone) == {"a": kept, "b": kept, "c": True}


def test_a_gpu_swapped_in_its_slot_leaves_at_once() -> None:
    known = roster((gpu("old", slot="0000:1B"), 600.0), (gpu("new", slot="0000:1B"), 0.0))
    assert staying(known) == {"old": False, "new": True}


def test_the_same_slot_on_another_node_or_cluster_is_another_socket() -> None:
    far = GpuId("far", "n1", slot="0000:1B", cluster="east")
    known = roster((gpu("a", slot="0000:1B"), 600.0), (gpu("b", host="n2", slot="0000:1B"), 0.0), (far, 0.0))
    assert staying(known) == {"a": True, "b": True, "far": True}


def test_gpus_whose_socket_nobody_names_are_never_taken_for_swapped() -> None:
    known = roster((GpuId("a", "n1"), 600.0), (GpuId("b", "n1"), 0.0))
    assert staying(known) == {"a": True, "b": True}


def test_gpus_whose_node_nobody_names_are_never_taken_for_swapped() -> None:
    known = roster((GpuId("a", index="0"), 600.0), (GpuId("b", index="0"), 0.0))
    assert staying(known) == {"a": True, "b": True}


def test_a_subset_keeps_its_times() -> None:
    known = roster((gpu("a"), 1.0), (gpu("b"), 2.0), (gpu("c"), 3.0)).take(np.array([2, 0]))
    assert [g.device_id for g in known.gpus] == ["c", "a"]
    assert known.last_seen_s.tolist() == [NOW_S - 3, NOW_S - 1]
