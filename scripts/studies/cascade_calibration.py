"""Are the probabilities of domains honest, on weeks that were not learned from?"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.engine.scoring import Scorer
from healthsvc.evaluation.probability import probability_metrics
from healthsvc.features.facts import throttling_now
from healthsvc.fleet import LEAST_MEMBERS, DomainForecast
from scripts.studies.cascade_fleet import FLOW, Site, domains_only
from scripts.studies.cascade_weeks import BINS_A_DAY, Life, cooling_faults, decoys

Figures = dict[str, Any]
AHEAD_BINS = {"30 min": 3, "2 h": 12}


@dataclass
class _Said:
    """Of every cycle: P(>= 3 members) [domain, horizon], how many throttle now, and who is hot."""

    at_bin: list[int] = field(default_factory=list)
    p: list[NDArray[np.float32]] = field(default_factory=list)
    hot: list[NDArray[np.bool_]] = field(default_factory=list)


def calibration(loops: int, learn_days: int, held_out_days: int, seed: int, scorer: Scorer | None = None) -> Figures:
    """Probabilities of weeks that were not learned from, with every outcome; every second fleet measures no flow.

    y: whether three members throttle now or in any ten minutes (more than a hundredth of them) within the horizon.
    open: fewer than three throttle now, so that there is something left to foretell.
    """
    days = learn_days + held_out_days
    site = Site(hidden=FLOW) if seed % 2 else Site()
    life = Life(loops, days, [*decoys(loops, days), *cooling_faults(loops, days)], seed, site)
    forecaster = (scorer or domains_only()).domain_forecasters[0]
    state: Any = None
    said, domains = _Said(), None
    first = learn_days * BINS_A_DAY
    onsets = 0
    for history in life.histories():
        if life.bin_at(history.now_s) < first:
            continue
        if state is None:
            state = forecaster.fit(history)
            onsets = sum(int(part.onset.sum()) for part in history.onset_bins)
        forecast = forecaster.forecast(state, history)
        if domains is None:
            domains = forecast
        if forecast.domains != domains.domains:
            raise ValueError("the domains of a fleet that all answers do not change")
        said.at_bin.append(life.bin_at(history.now_s))
        said.p.append(forecast.probability_at_least_k[:, LEAST_MEMBERS - 1, :2])
        said.hot.append(throttling_now(history)[0])
    assert domains is not None  # noqa: S101 - a run is longer than what it learns from
    return {"onsets_learned": onsets, **_outcomes(life, domains, said)}


def _outcomes(life: Life, domains: DomainForecast, said: _Said) -> Figures:
    throttles = life.throttles
    member = np.zeros((len(domains.domains), len(throttles)), np.float32)
    for row, rows in enumerate(domains.members):
        member[row, rows] = 1.0
    layers = np.array([layer for layer, _ in domains.domains])
    found: Figures = {"layer": [], "open": [], **{name: {"p": [], "y": []} for name in AHEAD_BINS}}
    last = throttles.shape[1] - max(AHEAD_BINS.values()) - 1
    for at, p, hot in zip(said.at_bin, said.p, said.hot, strict=True):
        if at > last:
            break
        found["layer"].append(layers)
        found["open"].append(member @ hot.astype(np.float32) < LEAST_MEMBERS)
        for column, (name, ahead) in enumerate(AHEAD_BINS.items()):
            struck = hot | throttles[:, at + 1 : at + 1 + ahead].any(axis=1)
            found[name]["p"].append(p[:, column])
            found[name]["y"].append(member @ struck.astype(np.float32) >= LEAST_MEMBERS)
    return found


def skill(parts: list[Figures]) -> Figures:
    """The parts together: for each horizon all cases, and those in which fewer than three throttle yet."""
    layer, still = (np.concatenate([each for part in parts for each in part[name]]) for name in ("layer", "open"))
    found: Figures = {"onsets_learned": [part["onsets_learned"] for part in parts]}
    for name in AHEAD_BINS:
        p, y = (np.concatenate([each for part in parts for each in part[name][of]]) for of in ("p", "y"))
        found[name] = {"all": _metrics(p, y), "still calm": _metrics(p[still], y[still])}
        for each in sorted(set(layer.tolist())):
            chosen = still & (layer == each)
            found[name][f"still calm, {each}"] = _metrics(p[chosen], y[chosen])
    return found


def _metrics(p: NDArray[np.float32], y: NDArray[np.bool_]) -> Figures:
    told = probability_metrics(p, y.astype(np.float64))
    table = told.reliability
    seen = np.flatnonzero(table.n)
    return {
        "cases": told.n,
        "events": told.events,
        "brier_skill": told.brier_skill,
        "said_over_came": told.calibration.value,
        "slope": told.slope.value,
        "reliability": [
            [float(f"{x:.4g}") for x in (table.edges[i], table.edges[i + 1], table.n[i], table.mean_p[i])]
            + [float(f"{x:.4g}") for x in (table.observed[i], table.lower[i], table.upper[i])]
            for i in seen
        ],
    }
