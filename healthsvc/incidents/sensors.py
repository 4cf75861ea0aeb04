"""What the sensors of a place show over the recent window: which moved, by how much and when."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.lead_lag import BASE_BINS, BIN_S, CLEAR_CORRELATION, five_minute_means, lead, middle, moved_at
from healthsvc.features.medians import nan_last
from healthsvc.fleet import FleetHistory, PlaceSeries, Signal

Numbers = NDArray[np.float64]
Rows = NDArray[np.int32]
FLOW_FELL = 0.08  # of what it was; readings scatter by half a percent
WARMED_CELSIUS = 2.0  # within the window; the day's own swing stays below one degree in two hours
NAMES = {Signal.COOLANT_FLOW: "coolant flow", Signal.COOLANT_SUPPLY: "coolant supply", Signal.INLET: "inlet"}


@dataclass(frozen=True)
class Track:
    """One signal of some places: five-minute means [bin], the median over the places.

    change: since the window began, in its unit; moved_s: when it began to move, None if it did not.
    """

    signal: Signal
    where: str
    means: Numbers
    change: float
    moved_s: float | None

    @property
    def name(self) -> str:
        return f"{NAMES[self.signal]} of {self.where}"


def tracks(history: FleetHistory, rows: Rows) -> tuple[Track, ...]:
    """The sensors of the places in which the GPUs `rows` stand: flow, supply, inlet, as far as they are measured."""
    return tuple(_tracks(history, rows))


def _tracks(history: FleetHistory, rows: Rows) -> Iterator[Track]:
    for signal in NAMES:
        series = history.environment.get(signal)
        if series is None:
            continue
        names = _places(history, series.layer, rows)
        known = _numbers(history, signal, series)
        at = [known[name] for name in names if name in known]
        if not at or np.isnan(series.values[at]).all():
            continue
        means = five_minute_means(middle(series.values[at]), history.recent.step_s)
        base = float(np.nanmedian(means[:BASE_BINS])) if (~np.isnan(means[:BASE_BINS])).any() else np.nan
        moved = moved_at(means, FLOW_FELL * abs(base) if signal is Signal.COOLANT_FLOW else WARMED_CELSIUS)
        where = names[0] if len(names) == 1 else f"{len(names)} {series.layer.replace('_', ' ')}s"
        yield Track(signal, where, means, float(nan_last(means) - base), _bin_start_s(history, means, moved))


def _places(history: FleetHistory, layer: str, rows: Rows) -> list[str]:
    group = np.unique(history.topology.group(layer, len(history.gpus))[rows])
    return [history.topology.names[layer][number] for number in group.tolist() if number >= 0]


def _numbers(history: FleetHistory, signal: Signal, series: PlaceSeries) -> dict[str, int]:
    return history.once(f"places_of_{signal.value}", lambda _: {name: i for i, name in enumerate(series.names)})


def _bin_start_s(history: FleetHistory, means: Numbers, number: int | None) -> float | None:
    return None if number is None else history.now_s - (len(means) - number) * BIN_S


def flow_shares(history: FleetHistory) -> dict[tuple[str, str], float]:
    """Measured coolant flow over rated, by place; only where both are measured."""
    flow = history.environment.get(Signal.COOLANT_FLOW)
    rated = history.environment.get(Signal.RATED_COOLANT_FLOW)
    if flow is None or rated is None:
        return {}
    ratings = dict(zip(rated.names, nan_last(rated.values).tolist(), strict=True))
    newest = zip(flow.names, nan_last(flow.values).tolist(), strict=True)
    shares = {name: value / ratings[name] for name, value in newest if ratings.get(name, 0.0) > 0}
    return {(flow.layer, name): share for name, share in shares.items() if not np.isnan(share)}


def what_led(history: FleetHistory, rows: Rows, found: tuple[Track, ...]) -> str:
    """In words, which sensors of the place moved before or after its GPUs' temperatures; "" where none clearly did.

    By cross-correlation of the changes from five minutes to five minutes, half an hour to either side.
    """
    heat = history.recent.values.get(Signal.GPU_TEMPERATURE)
    if heat is None:
        return ""
    temperature = five_minute_means(middle(heat[rows]), history.recent.step_s)
    said = []
    for track in found:
        bins, correlation = lead(track.means, temperature)
        if track.moved_s is None or not abs(correlation) >= CLEAR_CORRELATION:
            continue
        when = "together with" if not bins else f"{abs(bins) * BIN_S / 60:.0f} min {'before' if bins > 0 else 'after'}"
        said.append(f"{track.name} moved {when} the GPU temperatures (correlation {correlation:.2f})")
    return "; ".join(said)
