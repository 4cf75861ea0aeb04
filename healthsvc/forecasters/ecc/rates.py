"""What correctable errors tell: a GPU's own rate, whether the newest hour is out of its character, and of its node's.

Once per whole hour the hour's errors are held against the GPU's own mixture of quiet, elevated and bursting days; what
the service has learned until a week ago explains it, so a week of storm does not explain itself. The tails of the
fleet are then adjusted for how many there are (Benjamini and Hochberg). Where at least half of a GPU's siblings are out
of character in the same hour, only its share of the node's errors can make it stand out: a driver that counts anew, or
a common cause, is no GPU's own.

Blind to growth that is slower than a few days' errors in an hour (that is the growth exponent's), to errors that nobody
looks for (an idle GPU finds few), and to a gap: what came in it counts for the hour in which the GPU is seen again.
"""

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.bursts import PROFILE, Profiles, day_tail, expected_day, fit_profiles
from healthsvc.features.counts import adjusted, dispersions, upper_rate
from healthsvc.features.growth import fit_growth
from healthsvc.features.medians import nan_sum
from healthsvc.features.mixture import ELEVATED, LEAST_EXPOSURE_DAYS, QUIET, code_days
from healthsvc.features.rate_classes import RatePosterior, fit_rate_classes, rate_posterior
from healthsvc.features.shares import share_tail
from healthsvc.features.windows import preferred
from healthsvc.fleet import HOUR_S, Arrays, FleetHistory, FleetWindow, Floats, GpuId, Signal, align_rows
from healthsvc.forecasters.base import rows_in_state

Numbers = NDArray[np.float64]

GUARD_DAYS = 7  # the newest days, which do not explain themselves
GUARD_SHARE = 3  # but at most a third of a short ledger
UNUSUAL = 0.01  # own tail from which a sibling counts as out of character too
LEAST_SIBLINGS = 2
BURST_SHAPE = PROFILE.index("burst_shape")
GROWTH = ("exponent", "low", "high", "days")  # of features.growth, NaN exponent below 5 error-days
OWN_RATE = ("mean_per_day", "upper_per_day")


def fit_rates(history: FleetHistory) -> dict[str, NDArray[np.generic]]:
    """Per GPU its profile [gpu, column], rate and growth, and the same of each model for GPUs that come later.

    rate_profile [gpu, PROFILE]; rate_own [gpu, OWN_RATE]: expected errors a day outside bursts, and the 95 % upper
    bound of that rate (3 / t of none), NaN without a day outside bursts; rate_growth [gpu, GROWTH]; rate_model [model]
    and rate_model_profile [model + 1, PROFILE], the site's last. Reads the finished days of `sbe_errors`: growth all
    of them, the rest those until a week ago.
    """
    daily = history.daily
    finished = len(daily.days) - int(daily.unfinished)
    past = finished - min(GUARD_DAYS, finished // GUARD_SHARE)
    names, groups = models_of(daily.gpus)
    counts, exposure_days = daily.get("sbe_errors")[:, :past], daily.exposure_h[:, :past] / np.float32(24.0)
    found = fit_profiles(code_days(counts, exposure_days), counts, groups)
    grown = fit_growth(daily.get("sbe_errors")[:, :finished], daily.exposure_h[:, :finished])
    return {
        "rate_profile": found.own,
        "rate_own": _own_rate(found, groups),
        "rate_growth": np.stack([getattr(grown, name) for name in GROWTH], axis=1),
        "rate_model": np.array(names, np.str_) if names else np.zeros(0, "U1"),
        "rate_model_profile": found.of_group,
    }


def unusual_errors(state: Arrays, history: FleetHistory) -> tuple[Numbers, dict[str, Floats]]:
    """(change_p, evidence), each [gpu], as of the newest whole hour of `history.recent`.

    change_p: the hour's tail, adjusted over the fleet; NaN where the hour was not observed, so the same until the next
    hour is whole. Needs the arrays of `fit_rates` and device_id. Of the growth exponent NaN means too few events:
    correctable_error_days says how many there were.
    """
    gpus = history.gpus
    rows = rows_in_state(state, gpus)
    model = _models(state, gpus)
    profile = np.where(
        (rows >= 0)[:, None], align_rows(state["rate_profile"], rows), state["rate_model_profile"][model]
    )
    own = align_rows(state["rate_own"], rows)
    growth = align_rows(state["rate_growth"], rows)
    hour = errors_of_hour(history.recent)
    tail = day_tail(hour, profile)
    node = history.topology.group("node", len(gpus))
    siblings, share, together = _among_siblings(hour, tail, expected_day(profile), node, profile[:, BURST_SHAPE])
    change_p = adjusted(np.where(together, np.fmax(tail, share), tail))
    evidence: dict[str, Floats] = {
        "correctable_errors_1h_errors": hour,
        "sibling_errors_1h_errors": siblings,
        "sibling_share_tail_ratio": share,
        "own_tail_ratio": tail,
        "correctable_rate_per_h": own[:, OWN_RATE.index("mean_per_day")] / 24.0,
        "correctable_rate_upper_per_h": own[:, OWN_RATE.index("upper_per_day")] / 24.0,
        "correctable_burst_days_ratio": profile[:, PROFILE.index("bursting_share")],
        "correctable_error_days_30d_days": _error_days(history, 30),
        "correctable_error_days": growth[:, GROWTH.index("days")],
        "growth_exponent": growth[:, GROWTH.index("exponent")],
        "growth_exponent_low": growth[:, GROWTH.index("low")],
        "growth_exponent_high": growth[:, GROWTH.index("high")],
    }
    return change_p, evidence


def models_of(gpus: tuple[GpuId, ...]) -> tuple[list[str], NDArray[np.int32]]:
    """Names of the models in sorted order, and the number of each GPU's [gpu]."""
    names = sorted({gpu.product for gpu in gpus})
    number = {name: group for group, name in enumerate(names)}
    return names, np.array([number[gpu.product] for gpu in gpus], np.int32)


def errors_of_hour(window: FleetWindow) -> Numbers:
    """Correctable errors of the newest whole hour [gpu]; NaN where it has no sample or the window has not all of it."""
    end_s = np.floor(window.now_s / HOUR_S) * HOUR_S
    inside = (window.times_s > end_s - HOUR_S) & (window.times_s <= end_s)
    if not inside.any() or window.times_s[0] - window.step_s > end_s - HOUR_S:
        return np.full(len(window.gpus), np.nan)
    first = int(np.argmax(inside))
    increments = preferred(window, Signal.SBE_AGGREGATE, Signal.SBE_VOLATILE)
    return nan_sum(increments[:, first : first + int(inside.sum())])


def posterior_rate(found: Profiles, groups: NDArray[np.int32]) -> tuple[RatePosterior, Numbers]:
    """(errors a day outside bursts, days observed outside bursts), each [gpu]; groups [gpu]: the model."""
    sums, calm = found.sums, [QUIET, ELEVATED]
    days, exposure, errors, squares = (
        each[calm].sum(axis=0) for each in (sums.days, sums.exposure_days, sums.errors, sums.squares)
    )
    dispersion = dispersions(days, errors, squares)
    told, over = errors / dispersion, exposure / dispersion  # what comes in clusters tells so much less of a rate
    site = fit_rate_classes(told, over)
    number = int(groups.max(initial=-1)) + 1
    members = [groups == group for group in range(number)]
    of_model = [site] if number == 1 else [fit_rate_classes(told[rows], over[rows], site) for rows in members]
    return rate_posterior(errors, exposure, dispersion, of_model, groups), exposure


def _own_rate(found: Profiles, groups: NDArray[np.int32]) -> Numbers:
    """[gpu, OWN_RATE]."""
    rate, exposure = posterior_rate(found, groups)
    errors = found.sums.errors[[QUIET, ELEVATED]].sum(axis=0)
    upper = upper_rate(errors / rate.dispersion, exposure / rate.dispersion)
    told = exposure >= LEAST_EXPOSURE_DAYS  # else it bursts on every day
    return np.where(told[:, None], np.stack([rate.mean, upper], axis=1), np.nan)


def _models(state: Arrays, gpus: tuple[GpuId, ...]) -> NDArray[np.intp]:
    """Row of each GPU's model in the trained tables; the last, the site's, where it is new."""
    number = {name: row for row, name in enumerate(state["rate_model"].tolist())}
    site = len(number)
    return np.fromiter((number.get(gpu.product, site) for gpu in gpus), np.intp, len(gpus))


def _among_siblings(
    hour: Numbers, tail: Numbers, expected: Numbers, node: NDArray[np.int32], shape: Numbers
) -> tuple[Numbers, Numbers, NDArray[np.bool_]]:
    """(errors of its siblings, tail of its share of the node's, whether half of them are out of character) [gpu].

    NaN without a sibling that was observed in the hour. GPUs whose node has too few others stand together, as do those
    without a node: a driver that counts anew everywhere is a common cause there too.
    """
    known = ~np.isnan(hour)
    alone = int(node.max(initial=-1)) + 1
    size = np.bincount(np.where(known & (node >= 0), node, alone), minlength=alone + 1)
    at = np.where(known & (node >= 0) & (size[node] > LEAST_SIBLINGS), node, alone)

    def others(values: Numbers) -> Numbers:
        """What the other observed GPUs of the node have of `values`, summed."""
        own = np.where(known, values, 0.0)
        return np.asarray(np.bincount(at, own, alone + 1)[at] - own, np.float64)

    count = others(np.ones(len(hour)))
    peered = known & (count > 0)
    errors, rest, odd = others(hour), others(expected), others((tail < UNUSUAL).astype(np.float64))
    siblings = np.where(peered, errors, np.nan)
    share_expected = expected / (expected + rest)
    # Large sums come from bursts, so their spread is that of the sizes of bursts, or more.
    share = share_tail(hour, hour + siblings, share_expected, np.minimum(shape, 1.0) * (count + 1.0))
    together = peered & (count >= LEAST_SIBLINGS) & (odd >= count / 2.0)
    return np.where(at == alone, np.nan, siblings), share, together


def _error_days(history: FleetHistory, days: int) -> Numbers:
    """Of the ledger's last `days` days those with any error, today's part included [gpu]; NaN if none was observed."""
    errors = history.daily.get("sbe_errors")[:, -days:]
    if not errors.shape[1]:
        return np.full(len(errors), np.nan)
    return nan_sum(np.where(np.isnan(errors), np.nan, errors > 0))
