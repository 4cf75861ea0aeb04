"""How forecasts, states and histories are compared, and how a broken rule is put into words."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard, cast

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, HORIZONS_S, LAYERS, Arrays, FleetHistory, Forecast, Topology
from healthsvc.forecasters.base import DomainForecaster, Forecaster

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


@dataclass(frozen=True)
class Said:
    """What was said, by name: of each GPU (device_id) or domain (layer:name), in order of name.

    values: every array of the forecast, the first axis along `names`; so no order of GPUs or domains is left in it.
    """

    names: tuple[str, ...]
    values: Mapping[str, NDArray[Any]]

    def of(self, name: str) -> "Said":
        """What was said of one; nothing if it was not among them."""
        rows = [row for row, known in enumerate(self.names) if known == name]
        return Said((name,) * len(rows), {field: values[rows] for field, values in self.values.items()})


def of_gpus(forecaster: Forecaster | DomainForecaster) -> TypeGuard[Forecaster]:
    """Whether it forecasts GPUs, rather than domains: these alone can be projected."""
    return hasattr(forecaster, "project")


def said(forecaster: Forecaster | DomainForecaster, state: Arrays, history: FleetHistory) -> Said:
    """The forecast of either kind of forecaster, made comparable."""
    ids = [gpu.device_id for gpu in history.gpus]
    if of_gpus(forecaster):
        return _by_name(ids, fields(forecaster.forecast(state, history, HORIZONS)))
    forecast = cast(DomainForecaster, forecaster).forecast(state, history)
    members = [" ".join(sorted(ids[row] for row in rows.tolist())) for rows in forecast.members]
    values = {
        "probability_at_least_k": forecast.probability_at_least_k,
        "expected_lost_gpu_hours": forecast.expected_lost_gpu_hours,
        "throttling": forecast.throttling,
        "members": np.array(members, np.str_),
    }
    return _by_name([f"{layer}:{name}" for layer, name in forecast.domains], values)


def _by_name(names: Sequence[str], values: Mapping[str, NDArray[Any]]) -> Said:
    order = np.argsort(np.array(names, np.str_), kind="stable")
    return Said(tuple(names[i] for i in order.tolist()), {field: array[order] for field, array in values.items()})


def said_anew(forecaster: Forecaster | DomainForecaster, history: FleetHistory) -> Said:
    """Fit and forecast on the same history."""
    return said(forecaster, forecaster.fit(history), history)


def require_equal(one: Said, other: Said, because: str, exact: bool = False) -> None:
    """Both say the same; the sentence names the first field, name and numbers that differ.

    Equal within float32 rounding, NaN to NaN; to the last bit if `exact`.
    """
    apart = sorted({*one.names} ^ {*other.names})
    require(one.names == other.names, f"{because}, but {apart} are forecast only once")
    a_fields, b_fields = sorted(one.values), sorted(other.values)
    require(a_fields == b_fields, f"{because}, but the fields became {b_fields} from {a_fields}")
    for field, a in one.values.items():
        b = other.values[field]
        require(a.shape == b.shape, f"{because}, but {field} went from shape {a.shape} to {b.shape}")
        if a.tobytes() == b.tobytes():
            continue
        same = np.zeros(a.shape, bool) if exact else _close(a, b)
        bad = np.flatnonzero(~same.reshape(len(a), -1).all(axis=1))
        if len(bad):
            row = bad[0]
            raise AssertionError(f"{because}, but {field} of {one.names[row]} went from {a[row]} to {b[row]}")


def _close(a: NDArray[Any], b: NDArray[Any]) -> NDArray[np.bool_]:
    if a.dtype.kind != "f":
        return np.asarray(a == b)
    return np.asarray(np.isclose(a, b, rtol=RTOL, atol=ATOL, equal_nan=True))


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
        pool |= shares(topology.group(layer, gpu_count))
    return pool | (kind == "fleet")


def shares(group: NDArray[np.int32]) -> NDArray[np.bool_]:
    """bool[gpu, gpu]: who is in the same group; group int32[gpu], -1 for none."""
    same: NDArray[np.bool_] = (group[:, None] == group[None, :]) & (group >= 0)[:, None]
    return same
