"""Reductions that skip NaN: as NumPy's own, without its warnings, and NaN where nothing was observed."""

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from healthsvc.features.medians import (
    group_count,
    group_median,
    group_rows,
    nan_last,
    nan_max,
    nan_mean,
    nan_median,
    nan_quantile,
    nan_sum,
)
from healthsvc.fleet import Floats
from tests.histories import random_floats

Reduction = Callable[[NDArray[np.float64]], Floats]
PAIRS: list[tuple[Reduction, Reduction]] = [
    (nan_median, lambda v: np.nanmedian(v, axis=-1)),
    (lambda v: nan_quantile(v, 0.95), lambda v: np.nanquantile(v, 0.95, axis=-1)),
    (nan_mean, lambda v: np.nanmean(v, axis=-1)),
    (nan_sum, lambda v: np.nansum(v, axis=-1)),
    (nan_max, lambda v: np.nanmax(v, axis=-1)),
]


@pytest.mark.parametrize(("ours", "theirs"), PAIRS, ids=["median", "quantile", "mean", "sum", "max"])
@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 2**32 - 1), columns=st.integers(1, 12))
def test_reductions_agree_with_numpy(ours: Reduction, theirs: Reduction, seed: int, columns: int) -> None:
    values = random_floats(np.random.default_rng(seed), (3, 4, columns), gaps=0.4)
    values[0, 0] = np.nan
    empty: NDArray[np.bool_] = np.all(np.isnan(values), axis=-1)
    wanted = np.where(empty, np.nan, theirs(np.where(empty[..., None], 0.0, values)))
    np.testing.assert_allclose(ours(values), wanted, rtol=1e-12, atol=1e-12)  # between values of either sign


@pytest.mark.parametrize("reduce", [nan_median, nan_mean, nan_sum, nan_max, nan_last])
def test_no_columns_at_all_is_nan_and_no_error(reduce: Reduction) -> None:
    np.testing.assert_array_equal(reduce(np.zeros((3, 0))), np.full(3, np.nan))


def test_the_last_value_is_the_newest_that_was_observed() -> None:
    values = np.array([[1, 2, np.nan], [np.nan, np.nan, np.nan], [7, np.nan, 9]])
    np.testing.assert_array_equal(nan_last(values), [2, np.nan, 9])


def test_a_sum_of_float32_counts_is_taken_in_float64() -> None:
    assert nan_sum(np.full((1, 3), 16_777_216 + 2, np.float32))[0] == 3 * (16_777_216 + 2)


def test_group_tables_hold_every_known_row_once() -> None:
    groups = np.array([2, -1, 0, 2, 0, 2], np.int32)
    assert group_rows(groups).tolist() == [[2, 4, -1], [-1, -1, -1], [0, 3, 5]]
    assert group_rows(np.full(3, -1, np.int32)).shape == (0, 0)


def test_a_gpu_without_a_group_has_neither_median_nor_count() -> None:
    groups = np.array([0, 0, -1], np.int32)
    np.testing.assert_array_equal(group_median(np.array([[1.0], [3.0], [9.0]]), groups)[:, 0], [2, 2, np.nan])
    assert group_count(np.ones(3, bool), groups).tolist() == [2, 2, 0]
    alone = np.full(3, -1, np.int32)
    assert np.isnan(group_median(np.ones((3, 2)), alone)).all()
    assert group_count(np.ones((3, 2), bool), alone).tolist() == [[0, 0]] * 3
