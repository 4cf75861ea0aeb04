"""What every noun does with its arrays: seal them, and put their rows in another order."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.floating[Any]]


def frozen_array(array: NDArray[Any]) -> NDArray[Any]:
    """A view with writing switched off: what one reader sees, no other can change."""
    view = array.view()
    view.flags.writeable = False
    return view


def align_rows(values: NDArray[Any], rows: NDArray[np.intp], fill: float = np.nan) -> NDArray[Any]:
    """Rows of `values` in the order `rows`; -1 means that the GPU has none and gets `fill`."""
    if len(values) == 0:
        return np.full((len(rows), *values.shape[1:]), fill, values.dtype)
    out = values[np.maximum(rows, 0)]
    out[rows < 0] = fill
    return out
