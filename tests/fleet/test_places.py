"""Environment series joined in time."""

import numpy as np

from healthsvc.fleet import PlaceSeries, Signal, join_places


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
