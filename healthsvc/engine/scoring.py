"""The score cycle and the train cycle as functions of a history: no source, no store, no clock."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from healthsvc.calibration import Calibration, ClassPrior
from healthsvc.features.facts import facts, throttling_now
from healthsvc.features.site import SITE_RATIO
from healthsvc.fleet import (
    HOUR_S,
    Arrays,
    Band,
    FleetHistory,
    Floats,
    Forecast,
    GpuId,
    Incident,
    Snapshot,
    align_rows,
    first_rows,
)
from healthsvc.forecasters import Prior, shipped_domain_forecasters, shipped_forecasters
from healthsvc.forecasters.base import DomainForecaster, Forecaster, observed, reads_events
from healthsvc.incidents import IncidentPolicy, update_incidents
from healthsvc.risk import fuse

State = Mapping[str, Arrays]


@dataclass(frozen=True)
class _Kept:
    """A slow forecast and what it was made from. events: how many there were; None if it reads none."""

    made_s: float
    events: int | None
    gpus: tuple[GpuId, ...]
    arrays: Arrays
    seen: NDArray[np.bool_]
    forecast: Forecast

    def holds(self, history: FleetHistory, arrays: Arrays, seen: NDArray[np.bool_], refresh_s: float) -> bool:
        """Whether it is still this hour, this fleet and this training, without a new event or a GPU that came back."""
        same_hour = history.now_s // refresh_s == self.made_s // refresh_s
        same_fleet = history.gpus is self.gpus and arrays is self.arrays
        same_events = self.events is None or len(history.events) == self.events
        return same_hour and same_fleet and same_events and not (seen & ~self.seen).any()


@dataclass
class Scorer:
    """The forecasters in service with what they need to become a report. Keeps only the last hour's slow forecasts.

    incidents: of each domain forecaster, from when on what it says is an incident. Raises ValueError if two forecasters
    speak for one failure class, since a report has one forecast a class.
    """

    forecasters: tuple[Forecaster, ...]
    domain_forecasters: tuple[DomainForecaster, ...]
    priors: Mapping[str, ClassPrior]
    incidents: Mapping[str, IncidentPolicy]
    calibration: Calibration = field(default_factory=Calibration)
    refresh_s: float = HOUR_S  # how often the daily-state forecasters speak without a new event
    _kept: dict[str, _Kept] = field(default_factory=dict, init=False, repr=False)

    def __post_init__(self) -> None:
        speaker: dict[str, str] = {}
        for forecaster in self.forecasters:
            other = speaker.get(forecaster.failure_class)
            if other is not None:
                both = f"{other} and {forecaster.name} both forecast {forecaster.failure_class}"
                raise ValueError(f"{both}: put one of them in service")
            speaker[forecaster.failure_class] = forecaster.name

    def train(self, history: FleetHistory) -> dict[str, Arrays]:
        """Fit every forecaster: {name: arrays}."""
        states = {f.name: f.fit(history) for f in self.forecasters}
        return states | {f.name: f.fit(history) for f in self.domain_forecasters}

    def score(
        self,
        state: State,
        history: FleetHistory,
        previous: Snapshot | None,
        trained_at_s: float | None,
        standing: tuple[Incident, ...] = (),
    ) -> Snapshot:
        """One cycle: forecasts, facts, incidents, fusion.

        previous: bands and incidents carry on from it. standing: the incidents to carry on from where there is none.
        """
        forecasts = {f.failure_class: self._forecast(f, state, history) for f in self.forecasters if f.name in state}
        domains = {f.name: f.forecast(state[f.name], history) for f in self.domain_forecasters if f.name in state}
        incidents: tuple[Incident, ...] = previous.report.incidents if previous else standing
        for name, domain in domains.items():
            hot, _ = throttling_now(history)
            incidents = update_incidents(incidents, history, domain, hot, self.incidents[name])
        before = None if previous is None else _carried(previous, history)
        told = tuple(domains.values())
        priors = self._at_site(state)
        report = fuse(history, forecasts, facts(history), priors, self.calibration, told, incidents, before)
        return Snapshot(report, history, dict(state), trained_at_s)

    def _at_site(self, state: State) -> dict[str, ClassPrior]:
        """The priors as the site's own events have re-fitted them, for the forecasters that learn a site's rate."""
        ratio = {
            f.failure_class: float(state[f.name][SITE_RATIO])
            for f in self.forecasters
            if SITE_RATIO in state.get(f.name, {})
        }
        return {name: prior.at_site(ratio.get(name, 1.0)) for name, prior in self.priors.items()}

    def _forecast(self, forecaster: Forecaster, state: State, history: FleetHistory) -> Forecast:
        """Fresh, or for daily-state forecasters the hour's own, blanked where a GPU has fallen silent since."""
        if not forecaster.daily_state:
            return forecaster.forecast(state[forecaster.name], history)
        seen, arrays = observed(history, forecaster.requires), state[forecaster.name]
        kept = self._kept.get(forecaster.name)
        if kept is None or not kept.holds(history, arrays, seen, self.refresh_s):
            fresh = forecaster.forecast(arrays, history)
            events = len(history.events) if reads_events(forecaster) else None
            kept = _Kept(history.now_s, events, history.gpus, arrays, seen, fresh)
            self._kept[forecaster.name] = kept
            return kept.forecast
        return kept.forecast if seen.all() else _blanked(kept.forecast, ~seen)


def make_scorer(documents: Mapping[str, Prior], priors: Mapping[str, ClassPrior]) -> Scorer:
    """The shipped forecasters with the numbers of their prior.json (`documents`); priors: of the classes, with a
    site's own thresholds where it has any. Raises KeyError naming what a document lacks.
    """
    domain_forecasters = shipped_domain_forecasters(documents)
    incidents = {f.name: IncidentPolicy.of(documents[f.name]["thresholds"]) for f in domain_forecasters}
    return Scorer(shipped_forecasters(documents), domain_forecasters, priors, incidents)


def _carried(previous: Snapshot, history: FleetHistory) -> NDArray[np.int8]:
    """What each class had reached in the cycle before, in today's rows; of newcomers nothing."""
    report = previous.report
    if report.gpus is history.gpus:
        return report.class_band
    before = first_rows(report.gpus)
    rows = np.array([before.get(gpu.device_id, -1) for gpu in history.gpus], np.intp)
    return align_rows(report.class_band, rows, Band.HEALTHY)


def _blanked(forecast: Forecast, silent: NDArray[np.bool_]) -> Forecast:
    """The forecast without the GPUs that are silent: what was believed of them an hour ago is not known now."""

    def blank(values: Floats) -> Floats:
        masked: Floats = np.where(silent.reshape(-1, *[1] * (values.ndim - 1)), np.float32(np.nan), values)
        return masked

    return replace(
        forecast,
        cumulative_hazard=blank(forecast.cumulative_hazard),
        change_p=blank(forecast.change_p),
        time_to_limit_s=blank(forecast.time_to_limit_s),
        evidence={name: blank(values) for name, values in forecast.evidence.items()},
    )
