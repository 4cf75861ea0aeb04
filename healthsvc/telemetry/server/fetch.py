"""Many range queries at once, few at a time, each kept to the samples that a query may return."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from math import ceil, floor

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import HOUR_S, Signal
from healthsvc.telemetry.catalogue import EnvironmentRow, Row
from healthsvc.telemetry.decode import Samples
from healthsvc.telemetry.server.prometheus_api import PrometheusApi
from healthsvc.telemetry.server.refusals import TooMuchError
from healthsvc.telemetry.server.sharding import column_chunks

_DENSEST_HZ = 1 / 15  # samples a device and second, until a metric's own density is known
_SPARSEST_HZ = 1 / 300
# Of these a five-minute average is still a reading. Of a state it is nonsense (XID 79 and 48 average to 63.5), and of a
# counter it invents resets: a driver reload in mid-average looks like two.
AVERAGED = frozenset(
    {
        Signal.GPU_TEMPERATURE,
        Signal.MEMORY_TEMPERATURE,
        Signal.POWER,
        Signal.SM_CLOCK,
        Signal.GPU_UTILIZATION,
        Signal.INLET,
        Signal.COOLANT_SUPPLY,
        Signal.COOLANT_FLOW,
    }
)
COARSE_AFTER_S = 40 * HOUR_S  # Thanos averages blocks that are older


@dataclass(frozen=True)
class Ask:
    """One catalogue row's series: the selector that names them, and about how many devices will answer."""

    row: Row | EnvironmentRow
    selector: str
    devices: int


Take = Callable[[Ask, Samples, slice], None]


@dataclass
class Fetched:
    """How much came, and what the server warned of."""

    samples: int = 0
    warnings: set[str] = field(default_factory=set)


class Fetcher:
    """Splits asks by time, learning each metric's density as it goes."""

    def __init__(self, api: PrometheusApi, samples_a_query: int, concurrency: int) -> None:
        self._api, self._samples_a_query, self._concurrency = api, samples_a_query, concurrency
        self._density_hz: dict[str, float] = {}

    def __call__(self, asks: Sequence[Ask], times_s: NDArray[np.float64], step_s: float, take: Take) -> Fetched:
        """Fetch every ask over the grid; `take` gets each answer with its columns, one call at a time.

        Raises the first SourceError; what had not been sent by then is not sent.
        """
        fetched, lock = Fetched(), threading.Lock()

        def fetch(ask: Ask, first: int, last: int) -> None:
            columns = slice(first, last)
            try:
                samples = self._ask(ask, times_s[columns], step_s)
            except TooMuchError:
                if last - first < 2:
                    raise
                middle = (first + last) // 2
                fetch(ask, first, middle)
                fetch(ask, middle, last)
                return
            with lock:
                fetched.samples += len(samples.times_s)
                fetched.warnings.update(samples.warnings)
                take(ask, samples, columns)

        chunks = [
            (ask, *chunk) for ask in asks for chunk in column_chunks(len(times_s), self._most_columns(ask, step_s))
        ]
        with ThreadPoolExecutor(self._concurrency, "prometheus") as pool:
            jobs = [pool.submit(fetch, *chunk) for chunk in chunks]
            try:
                for job in jobs:
                    job.result()
            except BaseException:
                pool.shutdown(wait=False, cancel_futures=True)
                raise
        return fetched

    def _most_columns(self, ask: Ask, step_s: float) -> int:
        hz = self._density_hz.get(ask.row.metric, _DENSEST_HZ)
        budget_s = self._samples_a_query / (max(ask.devices, 1) * hz)
        return max(int(min(budget_s, self._api.backend.profile.longest_range_s) / step_s), 1)

    def _ask(self, ask: Ask, times_s: NDArray[np.float64], step_s: float) -> Samples:
        """Whole seconds that hold (first - step, last]; what lies outside is dropped on the grid."""
        end = ceil(times_s[-1])
        window = end - floor(times_s[0] - step_s)
        samples = self._api.samples(ask.selector, window, end)
        if len(samples.times_s):
            hz = len(samples.times_s) / (max(ask.devices, 1) * window)
            self._density_hz[ask.row.metric] = max(hz, _SPARSEST_HZ)
        elif ask.row.signal in AVERAGED and end < self._api.now() - COARSE_AFTER_S:
            return self._averages(ask, samples, window, end)
        return samples

    def _averages(self, ask: Ask, samples: Samples, window: int, end: int) -> Samples:
        """What the server keeps where raw `samples` are gone, and a warning with it: it is less than was asked for.

        Blind to a window that raw samples cover in part: its older columns stay empty.
        """
        if not self._api.backend.profile.coarse:
            return samples
        samples = self._api.samples(ask.selector, window, end, coarse=True)
        if not len(samples.times_s):
            return samples
        told = (
            f"no raw samples of {ask.row.metric} any more: 5-minute averages stand for them, and counters are missing"
        )
        return replace(samples, warnings=(*samples.warnings, told))
