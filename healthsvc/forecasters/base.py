"""The two contracts. A forecaster is a frozen dataclass of hyper-parameters that owns no data.

What it learns is an `Arrays` mapping, apart from the spec: so there is no "not fitted" error, persistence is npz
without pickle, and swapping a model is an assignment. `healthsvc.testing.check_forecaster` proves the behaviour.
"""

from typing import ClassVar, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import (
    HORIZONS_S,
    Arrays,
    DomainForecast,
    FleetHistory,
    FleetWindow,
    Floats,
    Forecast,
    GpuId,
    Projection,
    Signal,
    align_rows,
)

Pool = Literal["none", "node", "domain", "fleet"]


class Forecaster(Protocol):
    """Cumulative hazard of one failure class for every GPU.

    name: slug = file = config section = models/ folder. requires: any-of groups; a GPU that lacks a whole group is
    unknown (NaN, never 0). uses: what else it reads, itself or as events and ledger columns. pools: with the state
    fixed, GPUs outside a GPU's pool change nothing about its forecast. daily_state: what it says moves with the days
    and with events, so a forecast of this hour stands until either changes.

    May say `reads_events: ClassVar[bool] = False` where `forecast` never looks at the event log: then no new event asks
    for a fresh one. `fit` may read events all the same.
    """

    name: ClassVar[str]
    failure_class: ClassVar[str]
    requires: ClassVar[tuple[frozenset[Signal], ...]]
    uses: ClassVar[frozenset[Signal]]
    pools: ClassVar[Pool]
    daily_state: ClassVar[bool]

    def fit(self, history: FleetHistory) -> Arrays:
        """What the history teaches, as named arrays (numbers and strings only)."""
        ...

    def forecast(self, state: Arrays, history: FleetHistory, horizons_s: tuple[float, ...] = HORIZONS_S) -> Forecast:
        """The hazards as of `history.now_s`."""
        ...

    def project(self, state: Arrays, history: FleetHistory, row: int) -> Projection:
        """One GPU's past and future, for people to look at."""
        ...


def reads_events(forecaster: Forecaster) -> bool:
    """Whether an event may change its forecast while its state stays the same; so it is unless it denies it."""
    return bool(getattr(forecaster, "reads_events", True))


class DomainForecaster(Protocol):
    """Probability that several members of one node, rack, loop or feed are struck together."""

    name: ClassVar[str]
    failure_class: ClassVar[str]
    requires: ClassVar[tuple[frozenset[Signal], ...]]
    uses: ClassVar[frozenset[Signal]]

    def fit(self, history: FleetHistory) -> Arrays:
        """What the history teaches, as named arrays."""
        ...

    def forecast(self, state: Arrays, history: FleetHistory) -> DomainForecast:
        """Probabilities per domain as of `history.now_s`, on the forecaster's own horizons."""
        ...


def aligned(state: Arrays, name: str, gpus: tuple[GpuId, ...], fill: float = np.nan) -> Floats:
    """A per-GPU array of `state` in the order of `gpus`; GPUs that were not there at training get `fill`.

    State is keyed by device_id, so a re-ordered fleet, a newcomer or a departed GPU changes nothing for the others.
    """
    rows = rows_in_state(state, gpus)
    return align_rows(state[name], rows, fill)


def rows_in_state(state: Arrays, gpus: tuple[GpuId, ...]) -> NDArray[np.intp]:
    """Row of each GPU in the trained state, -1 where it is new."""
    trained, asked = state["device_id"].tolist(), [gpu.device_id for gpu in gpus]
    if asked == trained:  # the usual cycle: nobody has come or gone since the training
        return np.arange(len(asked), dtype=np.intp)
    known = {device_id: row for row, device_id in enumerate(trained)}
    return np.fromiter((known.get(device_id, -1) for device_id in asked), np.intp, len(asked))


def device_ids(gpus: tuple[GpuId, ...]) -> NDArray[np.str_]:
    """The key column of a state."""
    return np.array([gpu.device_id for gpu in gpus], np.str_) if gpus else np.zeros(0, "U1")


def observed(history: FleetHistory, requires: tuple[frozenset[Signal], ...]) -> NDArray[np.bool_]:
    """bool[gpu]: whether every required group has at least one sample in the recent window."""
    seen = np.ones(len(history.gpus), bool)
    for group in requires:
        seen &= _sampled(history.recent, group)
    return seen


def _sampled(window: FleetWindow, signals: frozenset[Signal]) -> NDArray[np.bool_]:
    """bool[gpu]: alive(signals).any(axis=1), but looks beyond the newest column only where that one is empty."""
    found = np.zeros(len(window.gpus), bool)
    for signal in signals & window.values.keys():
        values = window.values[signal]
        found |= ~np.isnan(values[:, -1:]).all(axis=1)
        rows = np.flatnonzero(~found)
        found[rows] = ~np.isnan(values[rows]).all(axis=1)
    return found


__all__ = [
    "DomainForecaster",
    "Forecaster",
    "Pool",
    "aligned",
    "device_ids",
    "observed",
    "reads_events",
    "rows_in_state",
]
