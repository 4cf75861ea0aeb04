"""Hazards of competing classes become one verdict per GPU: probabilities, risk, shares, coverage and a band."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.calibration import PROBABILITY_CAP, Calibration, ClassPrior, prior_hazards
from healthsvc.fleet import (
    CLASSES,
    GRADES,
    HORIZONS_S,
    QUANTILES,
    Band,
    DomainForecast,
    Facts,
    FleetHistory,
    Floats,
    Forecast,
    Incident,
    RiskReport,
    Signal,
)
from healthsvc.fleet.boards import board_limits
from healthsvc.guidance import advise

HAZARD_CAP = float(-np.log1p(-PROBABILITY_CAP))
PRIOR_FLOOR = 0.1  # an observed class is never believed safer than a tenth of its prior
LEAST_COVERAGE = 0.5
CRITICAL_P_24H = 0.5
WATCH_P_30D = 0.01
WATCH_TIMES_PRIOR = 5.0
DOMAIN_FAILURE_P_2H = 0.5


@dataclass(frozen=True)
class Verdict:
    """The numbers of the fusion, before words. Shapes as in RiskReport."""

    probability: NDArray[np.float64]
    observed: NDArray[np.bool_]
    risk: NDArray[np.float64]
    share: NDArray[np.float64]
    coverage: NDArray[np.float64]


def combine(hazard: NDArray[np.float64], prior: NDArray[np.float64]) -> Verdict:
    """Fuse hazards [gpu, class, grade, horizon] (NaN = class not observed) with the priors [class, grade, horizon].

    Unobserved classes count with their prior; observed ones never below a tenth of it. A class is observed if its T2
    hazards are known; an unknown T1 (a board without a slowdown limit) then counts with its prior, T2 at most.
    Competing hazards add: risk = 1 - exp(-sum of T2 hazards). At coverage 0 everything is NaN.
    """
    observed = np.asarray(~np.isnan(hazard[:, :, 0]).any(axis=2), bool)
    known = observed[:, :, None, None] & ~np.isnan(hazard)
    believed = np.where(known, np.maximum(hazard, PRIOR_FLOOR * prior), prior)
    believed = np.minimum(believed, HAZARD_CAP)
    believed[:, :, 1] = np.where(known[:, :, 1], believed[:, :, 1], np.minimum(believed[:, :, 1], believed[:, :, 0]))
    believed = np.maximum.accumulate(believed, axis=3)
    believed[:, :, 0] = np.maximum(believed[:, :, 0], believed[:, :, 1])
    weight = prior[:, 0, 1]
    coverage = (observed * weight).sum(axis=1) / weight.sum()
    believed = np.where((coverage > 0)[:, None, None, None], believed, np.nan)
    t2 = believed[:, :, 0]
    return Verdict(
        -np.expm1(-believed),
        observed,
        -np.expm1(-t2.sum(axis=1)),
        t2[:, :, 1] / t2[:, :, 1].sum(axis=1, keepdims=True),
        coverage,
    )


def bands(
    verdict: Verdict,
    facts: Facts,
    change_p: NDArray[np.float64],
    priors: Mapping[str, ClassPrior],
    prior_p_30d: NDArray[np.float64],
    previous: NDArray[np.int8] | None,
) -> NDArray[np.int8]:
    """Band of each GPU. A band once reached is left only below half of the threshold that led to it."""
    gpus = len(verdict.coverage)
    before = np.full(gpus, Band.UNKNOWN, np.int8) if previous is None else previous
    failure = np.array([priors[name].failure_p_7d for name in CLASSES])
    degrading = np.array([priors[name].degrading_p for name in CLASSES])
    watch = np.maximum(WATCH_P_30D, WATCH_TIMES_PRIOR * prior_p_30d)
    t2 = np.where(verdict.observed[:, :, None], verdict.probability[:, :, 0], np.nan)  # a prior alone raises no band

    def reached(p: NDArray[np.float64], threshold: NDArray[np.float64] | float, band: Band) -> NDArray[np.bool_]:
        held = (before >= band)[:, None] & (p >= np.asarray(threshold) / 2)
        return np.asarray(((p >= threshold) | held).any(axis=1), bool)

    band = np.full(gpus, Band.HEALTHY, np.int8)
    band[reached(t2[:, :, 2], watch, Band.WATCH) | (change_p < degrading).any(axis=1)] = Band.WATCH
    open_t2 = facts.open_events.any(axis=1)
    band[reached(t2[:, :, 1], failure, Band.DEGRADED) | open_t2] = Band.DEGRADED
    critical = facts.terminal.any(axis=1) | ~np.isnan(facts.lost_s)
    band[reached(t2[:, :, 0], CRITICAL_P_24H, Band.CRITICAL) | critical] = Band.CRITICAL
    blind = np.asarray(verdict.coverage < LEAST_COVERAGE) & (band < Band.WATCH)
    band[blind] = Band.UNKNOWN
    return band


def headroom(history: FleetHistory) -> dict[str, Floats]:
    """Degrees left to the limit at the newest sample {sensor: [gpu]}: reported limit, else the board's own."""
    boards = board_limits(history.gpus)
    recent = history.recent
    found: dict[str, Floats] = {}
    for sensor, temperature, limit, fallback in (
        ("gpu", Signal.GPU_TEMPERATURE, Signal.GPU_MAX_OPERATING_LIMIT, boards[:, 0]),
        ("memory", Signal.MEMORY_TEMPERATURE, Signal.MEMORY_MAX_OPERATING_LIMIT, boards[:, 2]),
    ):
        reported = recent.last(limit)
        found[sensor] = (np.where(np.isnan(reported), fallback, reported) - recent.last(temperature)).astype(np.float32)
    return found


def fuse(
    history: FleetHistory,
    forecasts: Mapping[str, Forecast],
    facts: Facts,
    priors: Mapping[str, ClassPrior],
    calibration: Calibration,
    domains: tuple[DomainForecast, ...] = (),
    incidents: tuple[Incident, ...] = (),
    previous_band: NDArray[np.int8] | None = None,
) -> RiskReport:
    """The report of a cycle. forecasts: by failure class; a class without one is unobserved for everybody.

    A T1 fact or a lost GPU is certain, whatever its hazard or the calibration says: its class gets the largest hazard
    there is; of a lost GPU only T2 is certain.
    """
    gpus = len(history.gpus)
    prior = prior_hazards(priors, HORIZONS_S)
    hazard = np.full((gpus, len(CLASSES), len(GRADES), len(HORIZONS_S)), np.nan)
    change_p = np.full((gpus, len(CLASSES)), np.nan)
    limit_s = np.full((gpus, len(CLASSES), len(QUANTILES)), np.nan, np.float32)
    for column, name in enumerate(CLASSES):
        forecast = forecasts.get(name)
        if forecast is None:
            continue
        hazard[:, column] = calibration.of(name).apply(forecast.cumulative_hazard.astype(np.float64))
        change_p[:, column] = forecast.change_p
        limit_s[:, column] = forecast.time_to_limit_s
    hazard[~np.isnan(facts.lost_s), CLASSES.index("device_loss"), GRADES.index("T2")] = HAZARD_CAP
    hazard = np.where(facts.terminal[:, :, None, None], HAZARD_CAP, hazard)
    verdict = combine(hazard, prior)
    band = bands(verdict, facts, change_p, priors, -np.expm1(-prior[:, 0, 2]), previous_band)
    calibrated = np.array([calibration.of(name).calibrated for name in CLASSES]) & verdict.observed
    report = RiskReport(
        as_of_s=history.now_s,
        gpus=history.gpus,
        probability=verdict.probability.astype(np.float32),
        calibrated=calibrated,
        observed=verdict.observed,
        risk=verdict.risk.astype(np.float32),
        share=verdict.share.astype(np.float32),
        coverage=verdict.coverage.astype(np.float32),
        band=band,
        facts=facts,
        change_p=change_p.astype(np.float32),
        time_to_limit_s=limit_s,
        headroom_celsius=headroom(history),
        evidence={name: forecast.evidence for name, forecast in forecasts.items()},
        domains=domains,
        incidents=incidents,
    )
    return advise(report, history, {name: prior.degrading_p for name, prior in priors.items()})
