"""How forecasts, states and histories are compared, and how a broken rule is put into words."""

import io
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, HORIZONS_S, LAYERS, Arrays, FleetHistory, Forecast, Topology
from healthsvc.forecasters.base import Forecaster

RTOL, ATOL = 1e-5, 1e-9  # float32, and sums taken in another order
HORIZONS = (3600.0, *HORIZONS_S, 90 * DAY_S)  # more than the usual ones: a horizon is an argument


def require(holds: bool, sentence: str) -> None:
    """Raises AssertionError with `sentence` unless the claim holds. (Kept by python -O, unlike assert.)"""
    if not holds:
        raise AssertionError(sentence)


def answer(forecaster: Forecaster, history: FleetHistory) -> Forecast:
    """Fit and forecast on the same history."""
    return forecaster.forecast(forecaster.fit(history), history, HORIZONS)


def fields(forecast: Forecast) -> dict[str, NDArray[Any]]:
    """Every array of a forecast by name; the first axis is always the GPU."""
    evidence = {f"evidence[{name}]": values for name, values in forecast.evidence.items()}
    return {
        "cumulative_hazard": forecast.cumulative_hazard,
        "change_p": forecast.change_p,
        "time_to_limit_s": forecast.time_to_limit_s,
        **evidence,
    }


def known(forecast: Forecast) -> NDArray[np.bool_]:
    """bool[gpu]: any number at all in the hazard."""
    return np.asarray(~np.isnan(forecast.cumulative_hazard).all(axis=(1, 2)))


def differing_rows(one: NDArray[Any], other: NDArray[Any]) -> NDArray[np.intp]:
    """Rows that are not equal within float32 rounding; NaN equals NaN."""
    close = np.isclose(one, other, rtol=RTOL, atol=ATOL, equal_nan=True)
    return np.flatnonzero(~close.reshape(len(close), -1).all(axis=1)) if close.size else np.zeros(0, np.intp)


def require_equal_rows(
    left: Forecast, right: Forecast, rows: NDArray[np.intp], because: str, exact: bool = False
) -> None:
    """Both forecasts say the same about `rows`; the sentence names the first field, GPU row and numbers that differ."""
    one, other = fields(left), fields(right)
    require(one.keys() == other.keys(), f"{because}, but the fields became {sorted(other)} from {sorted(one)}")
    for name, values in one.items():
        a, b = values[rows], other[name][rows]
        require(a.shape == b.shape, f"{because}, but {name} went from shape {a.shape} to {b.shape}")
        if exact and a.tobytes() == b.tobytes():
            continue
        bad = differing_rows(a, b)
        if exact and not len(bad):
            bad = np.array([0])  # equal within rounding, yet not the same bits
        if len(bad):
            row = bad[0]
            raise AssertionError(f"{because}, but {name} of row {rows[row]} went from {a[row]} to {b[row]}")


def arrays_of(history: FleetHistory) -> Iterator[tuple[str, NDArray[Any]]]:
    """Every array that a history holds, with its name."""
    yield "recent.times_s", history.recent.times_s
    yield from ((f"recent.values[{s.value}]", v) for s, v in history.recent.values.items())
    daily = history.daily
    yield from (("daily.days", daily.days), ("daily.exposure_h", daily.exposure_h))
    yield "daily.completeness", daily.completeness
    yield from ((f"daily.features[{k}]", v) for k, v in daily.features.items())
    yield from ((f"events.{n}", getattr(history.events, n)) for n in ("row", "start_s", "end_s", "kind", "value"))
    groups = history.topology.groups
    yield from ((f"topology.groups[{layer}]", groups[layer]) for layer in LAYERS if layer in groups)
    yield from ((f"environment[{s.value}]", series.values) for s, series in history.environment.items())


def pictures(named: Iterator[tuple[str, NDArray[Any]]]) -> dict[str, bytes]:
    """The bits of every array."""
    return {name: array.tobytes() for name, array in named}


def reloaded(state: Arrays) -> dict[str, NDArray[Any]]:
    """The state after a trip through an npz file, read without pickle. Raises ValueError on object arrays."""
    file = io.BytesIO()
    arrays: dict[str, Any] = {name: np.asarray(values) for name, values in state.items()}
    np.savez(file, **arrays)
    file.seek(0)
    with np.load(file, allow_pickle=False) as stored:
        return {name: stored[name] for name in stored.files}


def pools_of(kind: str, topology: Topology, gpu_count: int) -> NDArray[np.bool_]:
    """bool[gpu, gpu]: who may change whose forecast while the state stays as it is."""
    pool = np.eye(gpu_count, dtype=bool)
    layers = {"none": (), "node": ("node",), "domain": LAYERS, "fleet": ()}[kind]
    for layer in layers:
        group = topology.group(layer, gpu_count)
        pool |= (group[:, None] == group[None, :]) & (group >= 0)[:, None]
    return pool | (kind == "fleet")
