"""Correctable errors: how often a healthy fleet is called out of character, how soon a storm is, what intervals hold.

Made fleets (scripts/studies/ecc_fleet) of the development seeds, and of five fresh ones made from the day of the run;
past 90 days the service learns anew each week and looks at every hour.
"""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.bursts import PROFILE, day_tail, fit_profiles
from healthsvc.features.mixture import code_days
from healthsvc.features.rate_classes import RatePosterior
from healthsvc.fleet import HOUR_S
from healthsvc.forecasters.ecc.rates import models_of, posterior_rate, unusual_errors
from scripts.studies.ecc_fleet import HOURS, KINDS, Run, fit, history_at, make_run, with_hour

ROOT = Path(__file__).resolve().parents[2]
FIXED = (101, 102, 103)
THRESHOLDS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6)
PAST, AHEAD = 90, 30
DEGRADING_P = float(
    json.loads((ROOT / "models" / "ecc_growth" / "prior.json").read_text())["thresholds"]["degrading_p"]
)
STORMS_PER_S = (17_700.0, 100.0, 10.0, 1.0, 0.1, 0.02)
Figures = dict[str, Any]


def least_p(run: Run, past: int = PAST) -> NDArray[np.float64]:
    """The smallest change_p of each GPU over all hours after `past` days, learned anew every week."""
    least = np.ones(len(run.gpus))
    for hour in range(past * HOURS, run.days * HOURS):
        if (hour - past * HOURS) % (7 * HOURS) == 0:
            history = history_at(run, hour)
            state = fit(history)
        least = np.fmin(least, unusual_errors(state, with_hour(history, run.errors, hour))[0])
    return least


def false_alerts(seeds: Sequence[int], quick: bool) -> Figures:
    """GPUs of healthy fleets that are once below each threshold in 30 days, sites of 8 and of 1,000 GPUs.

    Of four small sites one has watched for 14 days when the 30 begin, and one for a single day.
    """
    found: Figures = {}
    for kind in KINDS:
        for gpus, sites in ((8, 2 if quick else 40), (1000, 1)):
            gpus = 64 if quick and gpus > 64 else gpus
            tally, months = np.zeros(len(THRESHOLDS), int), 0
            for seed in seeds:
                for site in range(sites):
                    past = (PAST, 14, PAST, 1)[site % 4]  # half of the small sites are young, or begin
                    least = least_p(make_run(kind, gpus, past + AHEAD, seed * 1000 + site), past)
                    tally += [int((least < threshold).sum()) for threshold in THRESHOLDS]
                    months += gpus
            found[f"{kind}, sites of {gpus}"] = {"gpu_months": months, "alerts": tally.tolist()}
    return found


def coverage(seeds: Sequence[int], quick: bool) -> Figures:
    """What holds the next 30 days' errors: the Gamma-Poisson interval of a GPU, and its mixture's."""
    found: Figures = {}
    for kind in KINDS[:2]:
        parts = [_covered(make_run(kind, 200 if quick else 4000, PAST + AHEAD, seed), seed) for seed in seeds]
        found[kind] = {name: np.sum([part[name] for part in parts], axis=0).tolist() for name in parts[0]}
    return found


def _covered(run: Run, seed: int) -> dict[str, list[float]]:
    """[how many held, of how many] by name; for the fleet the variance, mean and top 1 % share summed over runs."""
    rng = np.random.default_rng(seed)
    begin = PAST * HOURS
    state = fit(history_at(run, begin))
    ahead = run.errors[:, begin:].sum(axis=1)
    struck = (run.single_hour >= begin) | (run.single_hour < 0)
    quiet = ~run.bursts_always & (run.single_hour < 0)
    rate = _rate_at(run, begin)
    low, high = rate.quantile(0.05, AHEAD), rate.quantile(0.95, AHEAD)
    inside = (ahead >= low) & (ahead <= high)
    above, below = rate.tail(ahead, AHEAD), rate.tail(ahead + 1, AHEAD)
    rank = below + rng.random(len(ahead)) * (above - below)  # uniform if the distribution is right, although discrete
    even = (rank > 0.05) & (rank < 0.95)
    drawn = month_by_mixture(state["rate_profile"][run.bursts_always], rng)
    held = ahead[run.bursts_always, None]
    by_mixture = (np.quantile(drawn, 0.05, axis=1) <= held[:, 0]) & (held[:, 0] <= np.quantile(drawn, 0.95, axis=1))
    days = run.errors[:, begin:].reshape(len(ahead), AHEAD, HOURS).sum(axis=2)
    single = np.flatnonzero(struck & (run.single_hour >= begin))
    burst_days = days[single, run.single_hour[single] // HOURS - PAST]
    explained = day_tail(burst_days, state["rate_profile"][single]) > DEGRADING_P
    top = np.sort(ahead)[-max(1, len(ahead) // 100) :].sum() / ahead.sum()
    return {
        "quiet_plain": [int(inside[quiet].sum()), int(quiet.sum())],
        "quiet_randomised": [int(even[quiet].sum()), int(quiet.sum())],
        "bursting_gamma_poisson": [int(inside[run.bursts_always].sum()), int(run.bursts_always.sum())],
        "bursting_mixture": [int(by_mixture.sum()), int(run.bursts_always.sum())],
        "single_bursts_explained": [int(explained.sum()), len(single)],
        "variance_by_mean": [float(ahead.var() / ahead.mean()), 1.0],
        "top_percent_share": [float(top), 1.0],
    }


def _rate_at(run: Run, hour: int) -> RatePosterior:
    """Errors a day outside bursts, from all days before `hour`."""
    daily = history_at(run, hour).daily
    _, groups = models_of(daily.gpus)
    counts = daily.get("sbe_errors")
    return posterior_rate(fit_profiles(code_days(counts, daily.exposure_h / 24.0), counts, groups), groups)[0]


def month_by_mixture(profile: NDArray[np.float64], rng: np.random.Generator, draws: int = 500) -> NDArray[np.float64]:
    """Totals of 30 days drawn from each GPU's own mixture [gpu, draw]."""
    column = dict(zip(PROFILE, profile.T[:, :, None, None], strict=True))
    shape = (len(profile), draws, AHEAD)
    which = rng.random(shape)
    quiet = rng.gamma(column["quiet_shape"], column["quiet_mean"] / column["quiet_shape"], shape)
    high = rng.gamma(column["elevated_shape"], column["elevated_mean"] / column["elevated_shape"], shape)
    rate = rng.gamma(column["burst_a"], 1.0 / column["burst_b"], (len(profile), draws, 1))
    burst = rng.gamma(column["burst_shape"], 1.0 / rate, shape)
    bursts = which < column["bursting_share"]
    elevated = ~bursts & (which < column["bursting_share"] + column["elevated_share"])
    mean = np.where(bursts, burst, np.where(elevated, high, quiet))
    return np.asarray(rng.poisson(np.minimum(mean, 1e12)).sum(axis=2), np.float64)


def storms(seeds: Sequence[int], quick: bool) -> Figures:
    """A GPU that leaps to so many errors a second at a random moment: how often change_p is below each threshold by the
    end of that hour, so within 1 h of onset; last how many were tried. Siblings as they are, the load half of the time.
    """
    found: Figures = {f"{rate:g}": [0] * (len(THRESHOLDS) + 1) for rate in STORMS_PER_S}
    for kind in KINDS:
        for seed in seeds:
            rng = np.random.default_rng(seed)
            run = make_run(kind, 64 if quick else 1000, PAST + 2, seed)
            hour = PAST * HOURS + 20
            history = history_at(run, hour)
            state = fit(history)
            for rate in STORMS_PER_S:
                for _ in range(5 if quick else 25):
                    row, errors = int(rng.integers(len(run.gpus))), run.errors.copy()
                    seconds = max(rng.uniform(1.0, HOUR_S) * rng.uniform(0.3, 0.7), 1.0)
                    errors[row, hour] += rng.poisson(rate * seconds)
                    p = unusual_errors(state, with_hour(history, errors, hour))[0][row]
                    told = [*(int(p < threshold) for threshold in THRESHOLDS), 1]
                    found[f"{rate:g}"] = np.add(found[f"{rate:g}"], told).tolist()
    return found


def study(seeds: Sequence[int], quick: bool = False) -> Figures:
    """All figures of these seeds."""
    return {
        "seeds": list(seeds),
        "thresholds": list(THRESHOLDS),
        "alerts": false_alerts(seeds, quick),
        "coverage": coverage(seeds, quick),
        "storms": storms(seeds, quick),
    }
