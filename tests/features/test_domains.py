"""Which GPUs share a place, a job, or whatever moves their nodes together."""

import time
from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from healthsvc.features.comovement import nodes_moving_together
from healthsvc.features.domains import DomainTable, domains_of, job_of
from healthsvc.fleet import FleetHistory, Placement, Workload, build_topology
from tests import naive_comovement
from tests.histories import as_maybe, flat_window, make_daily, make_gpus, make_history

Layout = Mapping[str, Mapping[str, str]]
RACKS_OF_TWO = {f"node-{i:02d}": {"rack": f"r{i // 2}"} for i in range(8)}


def history_of(nodes: int, layout: Layout | None = None, per_node: int = 8) -> FleetHistory:
    history = make_history(flat_window(nodes * per_node, 3, per_node))
    return replace(history, topology=build_topology(history.gpus, Placement(layout or {})))


def by_layer(history: FleetHistory) -> dict[str, DomainTable]:
    return {table.layer: table for table in domains_of(history)}


def members(table: DomainTable) -> dict[str, list[int]]:
    return {name: [r for r in row if r >= 0] for name, row in zip(table.names, table.table.tolist(), strict=True)}


def test_each_known_layer_has_its_domains_with_all_their_members() -> None:
    found = by_layer(history_of(8, RACKS_OF_TWO))
    assert list(found) == ["node", "rack"]
    assert members(found["node"])["node-01"] == list(range(8, 16))
    assert members(found["rack"])["r3"] == list(range(48, 64))
    assert not found["rack"].inferred


def test_a_domain_of_two_gpus_is_none() -> None:
    assert domains_of(history_of(3, per_node=2)) == ()
    layout = {"node-00": {"rack": "a"}, "node-01": {"rack": "a"}, "node-02": {"rack": "b"}}
    assert members(by_layer(history_of(3, layout, per_node=2))["rack"]) == {"a": [0, 1, 2, 3]}


def test_domains_of_unequal_size_are_padded() -> None:
    layout = {"node-00": {"rack": "a"}, "node-01": {"rack": "a"}, "node-02": {"rack": "b"}}
    assert by_layer(history_of(3, layout, per_node=3))["rack"].table.tolist() == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, -1, -1, -1],
    ]


def test_a_layer_with_the_domains_of_a_narrower_one_is_not_judged_twice() -> None:
    layout = {f"node-{i:02d}": {"rack": f"r{i // 2}", "cooling_loop": f"l{9 - i // 2}"} for i in range(8)}
    found = by_layer(history_of(8, layout))
    assert list(found) == ["node", "rack"]
    assert found["rack"].same_as == {"cooling_loop": ("l9", "l8", "l7", "l6")}  # in the order of r0 to r3
    apart = dict(layout)
    apart["node-07"] = {"rack": "r3", "cooling_loop": "another"}
    assert list(by_layer(history_of(8, apart))) == ["node", "rack", "cooling_loop"]


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        ("train-0", "train"),
        ("train-11", "train"),
        ("llm-train-worker-3", "llm-train-worker"),
        ("batch-x7k2p", "batch"),  # Job
        ("batch-2-x7k2p", "batch"),  # indexed Job
        ("serve-6d4cf56db6-x7k2p", "serve"),  # Deployment
        ("notebook", "notebook"),
        ("fine-tuning", "fine-tuning"),
        ("0", "0"),
    ],
)
def test_pods_of_one_job_share_the_stem_of_their_names(pod: str, job: str) -> None:
    assert job_of(pod) == job


def with_pods(history: FleetHistory, pods: Mapping[int, tuple[str, str]]) -> FleetHistory:
    """pods: node number -> (namespace, pod) on all its GPUs."""
    held = {
        gpu.device_id: Workload(*pods[number]) for gpu in history.gpus if (number := int(gpu.hostname[-2:])) in pods
    }
    return replace(history, workloads=held)


def test_a_job_is_the_gpus_of_its_pods_on_several_nodes() -> None:
    history = history_of(8, RACKS_OF_TWO)
    pods = {1: ("a", "train-0"), 6: ("a", "train-1"), 3: ("b", "train-2"), 4: ("b", "alone-0")}
    found = by_layer(with_pods(history, pods))["job"]
    # Another namespace is another job, and what sits on one node alone is judged as that node.
    assert members(found) == {"a/train": [*range(8, 16), *range(48, 56)]}


def test_the_order_of_the_gpus_changes_nothing_but_their_rows() -> None:
    history = with_pods(history_of(8, RACKS_OF_TWO), {1: ("a", "train-0"), 6: ("a", "train-1")})
    order = np.random.default_rng(3).permutation(64)
    for ours, theirs in zip(domains_of(history), domains_of(history.take(order)), strict=True):
        assert (ours.layer, ours.names) == (theirs.layer, theirs.names)
        again = {name: sorted(order[rows].tolist()) for name, rows in members(theirs).items()}
        assert again == members(ours)


def moving(
    days: int,
    groups: list[int],
    shared: NDArray[np.float64],
    seed: int = 0,
    layout: Layout | None = None,
    unfinished: bool = False,
) -> FleetHistory:
    """Nodes of eight whose log R follows row groups[node] of `shared` [group, day], with a GPU's noise of 1 % a day."""
    rng = np.random.default_rng(seed)
    gpus = make_gpus(8 * len(groups))
    node = np.arange(len(gpus)) // 8
    level = rng.normal(-2.6, 0.05, (len(gpus), 1))
    log_r = level + shared[np.array(groups)[node]] + rng.normal(0, 0.01, (len(gpus), days))
    history = make_history(
        flat_window(len(gpus), 3), make_daily(gpus, days, {"gpu_log_resistance": log_r.astype(np.float32)}, unfinished)
    )
    return replace(history, topology=build_topology(history.gpus, Placement(layout or {})))


def waves(groups: int, days: int, seed: int = 1, size: float = 0.03) -> NDArray[np.float64]:
    """Levels that wander from day to day about a mean."""
    rng = np.random.default_rng(seed)
    return size * rng.standard_normal((groups, days))


def test_nodes_that_move_together_are_a_place_of_their_own_and_marked_so() -> None:
    groups = [0, 1, 2, 0, 1, 2, 0, 1, 3, 4]
    found = by_layer(moving(30, groups, waves(5, 30)))["inferred"]
    assert found.inferred
    nodes = {name: sorted({r // 8 for r in rows}) for name, rows in members(found).items()}
    assert nodes == {"inferred-1": [0, 3, 6], "inferred-2": [1, 4, 7], "inferred-3": [2, 5]}


def test_where_racks_are_named_nothing_is_guessed() -> None:
    layout = {f"node-{i:02d}": {"rack": f"r{i}"} for i in range(5)}
    assert "inferred" not in by_layer(moving(30, [0, 0, 0, 1, 1], waves(2, 30), layout=layout))


def test_two_weeks_of_finished_days_are_needed() -> None:
    groups = [0, 0, 0, 0, 1, 1, 1, 1, 2, 3]
    assert "inferred" not in by_layer(moving(13, groups, waves(4, 13)))
    assert "inferred" not in by_layer(moving(14, groups, waves(4, 14), unfinished=True))
    assert "inferred" in by_layer(moving(14, groups, waves(4, 14)))


def test_a_steady_drift_of_several_nodes_is_not_a_shared_place() -> None:
    ageing = np.linspace(0, 1, 60)[None, :] * np.array([[0.0], [0.3], [0.2], [0.25], [-0.1], [0.1]])
    assert "inferred" not in by_layer(moving(60, [0, 1, 2, 3, 4, 5, 0], ageing))


def test_noise_alone_makes_no_places() -> None:
    found = 0
    for seed in range(40):
        found += "inferred" in by_layer(moving(20, list(range(40)), waves(40, 20, seed), seed))
    assert found <= 5  # 2 in 40 by the level that is aimed at


def test_missing_days_are_left_out_of_the_pairs_that_they_concern() -> None:
    history = moving(40, [0, 0, 0, 1, 1, 1, 2, 3], waves(4, 40))
    log_r = history.daily.get("gpu_log_resistance").copy()
    log_r[:8, :20] = np.nan
    log_r[24:28] = np.nan  # half of a node is never seen
    log_r[40:48, :] = np.nan
    gappy = replace(history, daily=make_daily(history.gpus, 40, {"gpu_log_resistance": log_r}))
    found = members(by_layer(gappy)["inferred"])
    assert [sorted({r // 8 for r in rows}) for rows in found.values()] == [[0, 1, 2], [3, 4]]


@pytest.mark.parametrize("seed", range(8))
def test_nodes_move_together_as_the_slow_twin_says(seed: int) -> None:
    rng = np.random.default_rng(seed)
    groups = rng.integers(0, 5, 9)
    history = moving(25, groups.tolist(), waves(5, 25, seed, size=0.012), seed)
    log_r = history.daily.get("gpu_log_resistance").copy()
    log_r[rng.random(log_r.shape) < 0.3] = np.nan
    log_r[np.ix_(np.arange(8), rng.permutation(25)[:8])] = np.nan
    node = history.topology.group("node", len(history.gpus))
    found = nodes_moving_together(make_daily(history.gpus, 25, {"gpu_log_resistance": log_r}), node)
    assert found.tolist() == naive_comovement.together([as_maybe(row) for row in log_r], node.tolist())
    assert found.max() >= 0  # else nothing was compared


def test_a_hundred_thousand_gpus_are_placed_within_half_a_second() -> None:
    nodes = 12_500
    layout = {
        f"node-{i:02d}": {"rack": f"r{i // 4}", "cooling_loop": f"l{i // 16}", "power_feed": f"f{i // 8}"}
        for i in range(nodes)
    }
    history = history_of(nodes, layout)
    held = {g.device_id: Workload("ns", f"train{(i + 24) // 64}-{i // 8}") for i, g in enumerate(history.gpus)}
    history = replace(history, workloads=held)
    began = time.process_time()
    found = by_layer(history)
    took = time.process_time() - began
    assert list(found) == ["node", "rack", "cooling_loop", "power_feed", "job"]
    assert took < 0.5, took
    assert domains_of(history) is domains_of(history)
