"""Hazards of competing classes become one verdict per GPU: probabilities, risk, shares, coverage and a band."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.calibration import Calibration, ClassPrior, prior_hazards
from healthsvc.fleet import (
    CLASSES,
    GRADES,
    HAZARD_CAP,
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
from healthsvc.fleet.boards import MAX_OPERATING, MEMORY_MAX_OPERATING, limit_in_force
from healthsvc.guidance import advise

PRIOR_FLOOR = 0.1  # an observed class is never believed safer than a tenth of its prior
LEAST_COVERAGE = 0.5
CRITICAL_P_24H = 0.5


@dataclass(frozen=True)
class Verdict:
    """The numbers of the fusion, before words. Shapes as in RiskReport."""

    probability: NDArray[np.float64]
    observed: NDArray[np.bool_]
    risk: NDArray[np.float64]
    share: NDArray[np.float64]
    coverage: NDArray[np.float64]


def combine(
    hazard: NDArray[np.float64], prior: NDArray[np.float64], weight: NDArray[np.float64] | None = None
) -> Verdict:
    """Fuse hazards [gpu, class, grade, horizon] (NaN = class not observed) with the priors [class, grade, horizon].

    Unobserved classes count with their prior; observed ones never below a tenth of it. A class is observed if its T2
    hazards are known; an unknown T1 (a board without a slowdown limit) then counts with its prior, T2 at most.
    Competing hazards add: risk = 1 - exp(-sum of T2 hazards). At coverage 0 everything is NaN. weight [class]: of each
    in the coverage, if not that of the priors.
    """
    observed = np.asarray(~np.isnan(hazard[:, :, 0]).any(axis=2), bool)
    known = observed[:, :, None, None] & ~np.isnan(hazard)
    believed = np.where(known, np.maximum(hazard, PRIOR_FLOOR * prior), prior)
    believed = np.minimum(believed, HAZARD_CAP)
    believed[:, :, 1] = np.where(known[:, :, 1], believed[:, :, 1], np.minimum(believed[:, :, 1], believed[:, :, 0]))
    believed = np.maximum.accumulate(believed, axis=3)
    believed[:, :, 0] = np.maximum(believed[:, :, 0], believed[:, :, 1])
    weight = prior[:, 0, 1] if weight is None else weight
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


def class_bands(
    verdict: Verdict, facts: Facts, priors: Mapping[str, ClassPrior], previous: NDArray[np.int8] | None
) -> NDArray[np.int8]:
    """Band that each class has reached by its probability [gpu, class]; left only below half of the threshold.

    previous: of the cycle before. A class that is not observed has reached nothing: a prior alone raises no band. Nor
    has one whose probability only repeats a fact: else a GPU that is back would still be held by having been lost.
    """
    known = [priors[name] for name in CLASSES]
    thresholds = np.array([[p.watch_p_30d, p.failure_p_7d, CRITICAL_P_24H] for p in known])
    chances = verdict.probability[:, :, GRADES.index("T2"), ::-1]  # P(30 d), P(7 d), P(24 h) meet these in this order
    before = np.full(verdict.observed.shape, Band.HEALTHY, np.int8) if previous is None else previous
    certain = facts.terminal.copy()
    certain[:, CLASSES.index("device_loss")] |= ~np.isnan(facts.lost_s)
    speaks = verdict.observed & ~certain
    reached = np.full(verdict.observed.shape, Band.HEALTHY, np.int8)
    for column, band in enumerate((Band.WATCH, Band.DEGRADED, Band.CRITICAL)):
        chance, threshold = chances[:, :, column], thresholds[:, column]
        reached[speaks & ((chance >= threshold) | ((before >= band) & (chance >= threshold / 2)))] = band
    return reached


def bands(
    verdict: Verdict,
    facts: Facts,
    change_p: NDArray[np.float64],
    priors: Mapping[str, ClassPrior],
    by_class: NDArray[np.int8],
) -> NDArray[np.int8]:
    """Band of each GPU: what a class has reached by its probability, or the facts and change alarms of now."""
    degrading = np.array([priors[name].degrading_p for name in CLASSES])
    band: NDArray[np.int8] = by_class.max(axis=1, initial=Band.HEALTHY)
    for holds, least in (
        ((change_p < degrading).any(axis=1), Band.WATCH),
        (facts.open_events.any(axis=1), Band.DEGRADED),
        (facts.terminal.any(axis=1) | ~np.isnan(facts.lost_s), Band.CRITICAL),
    ):
        band[holds] = np.maximum(band[holds], least)
    band[(verdict.coverage < LEAST_COVERAGE) & (band < Band.WATCH)] = Band.UNKNOWN
    return band


def headroom(history: FleetHistory, facts: Facts) -> dict[str, Floats]:
    """Degrees left to the limit at the newest sample {sensor: [gpu]}: reported limit, else the board's own.

    NaN for a lost GPU: what it read last says nothing about now.
    """
    recent = history.recent
    found: dict[str, Floats] = {}
    for sensor, temperature, limit, column in (
        ("gpu", Signal.GPU_TEMPERATURE, Signal.GPU_MAX_OPERATING_LIMIT, MAX_OPERATING),
        ("memory", Signal.MEMORY_TEMPERATURE, Signal.MEMORY_MAX_OPERATING_LIMIT, MEMORY_MAX_OPERATING),
    ):
        limits = limit_in_force(recent.last(limit), history.gpus, column)
        left = (limits - recent.last(temperature)).astype(np.float32)
        found[sensor] = np.where(np.isnan(facts.lost_s), left, np.float32(np.nan))
    return found


def fuse(
    history: FleetHistory,
    forecasts: Mapping[str, Forecast],
    facts: Facts,
    priors: Mapping[str, ClassPrior],
    calibration: Calibration,
    domains: tuple[DomainForecast, ...] = (),
    incidents: tuple[Incident, ...] = (),
    previous: NDArray[np.int8] | None = None,
) -> RiskReport:
    """The report of a cycle. forecasts: by failure class; a class without one is unobserved for everybody.
    previous: class_band of the cycle before, in today's rows.

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
    # What a class is worth knowing does not move with the site, else a GPU would fall blind when others fail.
    worth = np.array([priors[name].t2_per_gpu_year for name in CLASSES])
    verdict = combine(hazard, prior, worth)
    by_class = class_bands(verdict, facts, priors, previous)
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
        band=bands(verdict, facts, change_p, priors, by_class),
        class_band=by_class,
        facts=facts,
        change_p=change_p.astype(np.float32),
        time_to_limit_s=limit_s,
        headroom_celsius=headroom(history, facts),
        evidence={name: forecast.evidence for name, forecast in forecasts.items()},
        watch_p_30d=tuple(priors[name].watch_p_30d for name in CLASSES),
        domains=domains,
        incidents=incidents,
    )
    return advise(report, history, {name: prior.degrading_p for name, prior in priors.items()})
