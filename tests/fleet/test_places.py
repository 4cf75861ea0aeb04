"""Environment series joined in time."""

import numpy as np

from healthsvc.fleet import PlaceSeries, Signal, at_nodes, first_of, join_places


def series(names: tuple[str, ...], *rows: list[float], layer: str = "node") -> PlaceSeries:
    return PlaceSeries(layer, names, np.array(rows, np.float32))


def test_every_place_of_any_stretch_has_a_row_and_nan_where_it_was_absent() -> None:
    first = {Signal.INLET: series(("b", "a"), [1, 2], [3, 4])}
    second = {Signal.INLET: series(("c", "b"), [5], [6]), Signal.COOLANT_FLOW: series(("l",), [7])}
    joined = join_places([(first, 2), ({}, 1), (second, 1)])
    nan = np.nan
    assert joined[Signal.INLET].names == ("a", "b", "c")
    wanted = [[3, 4, nan, nan], [1, 2, nan, 6], [nan, nan, nan, 5]]
    np.testing.assert_array_equal(joined[Signal.INLET].values, wanted)
    np.testing.assert_array_equal(joined[Signal.COOLANT_FLOW].values, [[nan, nan, nan, 7]])
    assert all(one.values.dtype == np.float32 for one in joined.values())


def test_the_newest_stretch_names_the_layer_and_another_layer_has_other_places() -> None:
    old = {Signal.INLET: series(("a",), [1], layer="rack")}
    new = {Signal.INLET: series(("a",), [2])}
    joined = join_places([(old, 1), (new, 1)])[Signal.INLET]
    assert joined.layer == "node"
    np.testing.assert_array_equal(joined.values, [[np.nan, 2]])


def test_nothing_joins_to_nothing() -> None:
    assert join_places([({}, 3), ({}, 1)]) == {}
    assert join_places([]) == {}


def test_of_several_sources_the_earlier_wins_place_by_place_and_sample_by_sample() -> None:
    nan = np.nan
    merged = first_of([series(("b", "a"), [1, nan], [nan, nan]), series(("a", "c"), [5, 6], [7, 8])])
    assert merged.names == ("a", "b", "c")
    np.testing.assert_array_equal(merged.values, [[5, 6], [1, nan], [7, 8]])


def test_the_first_source_with_a_sample_says_the_layer() -> None:
    empty = series(("x",), [np.nan], layer="rack")
    merged = first_of([empty, series(("n",), [3]), series(("r",), [4], layer="rack")])
    assert (merged.layer, merged.names) == ("node", ("n",))
    assert first_of([empty]).names == ("x",)


def test_a_node_is_recognised_without_its_domain_and_by_its_controller() -> None:
    told = series(("node1.example.org", "idrac-node2", "NODE3-BMC.mgmt", "10.0.0.4", "zz"), [1], [2], [3], [4], [5])
    found = at_nodes(told, ["node1", "node2", "node3", "node4.example.org"], {"10.0.0.4": "node4.example.org"})
    assert found.names == ("node1", "node2", "node3", "node4.example.org", "zz")
    np.testing.assert_array_equal(found.values[:, 0], [1, 2, 3, 4, 5])


def test_a_name_that_could_be_two_nodes_is_none_of_them() -> None:
    told = series(("node1",), [1])
    assert at_nodes(told, ["node1.east", "node1.west"], {}).names == ("node1",)


def test_two_sensors_of_one_node_become_one_and_its_own_name_changes_nothing() -> None:
    told = series(("node1-bmc", "node1"), [np.nan, 2], [3, np.nan])
    found = at_nodes(told, ["node1"], {})
    assert found.names == ("node1",)
    np.testing.assert_array_equal(found.values, [[3, 2]])
    same = series(("a", "b"), [1], [2])
    assert at_nodes(same, ["a", "b", "c"], {}) is same
