"""Slow and obvious twins of the fast numbers: plain loops over plain floats, the oracle that they are tested against.

None stands for "no sample", so that no NaN rule is shared with the code under test.
"""

import itertools
import math
from collections.abc import Sequence

DAY_S = 86_400.0
Maybe = float | None


def median(values: Sequence[float]) -> Maybe:
    """Middle of the sorted values, or the mean of the two middles."""
    if not values:
        return None
    ordered = sorted(values)
    half = len(ordered) // 2
    return ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2


def quantile(values: Sequence[float], q: float) -> Maybe:
    """Linear between order statistics."""
    if not values:
        return None
    ordered = sorted(values)
    at = (len(ordered) - 1) * q
    low = math.floor(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def increments(raw: Sequence[Maybe], before: Maybe) -> tuple[list[Maybe], Maybe]:
    """Counter increments of one GPU: what each sample adds to the one before, a drop being a restart from zero."""
    steps: list[Maybe] = []
    newest = before
    for value in raw:
        if value is None:
            steps.append(None)
            continue
        if newest is None:
            steps.append(0.0)
        elif value < newest:
            steps.append(value)
        else:
            steps.append(value - newest)
        newest = value
    return steps, newest


def group_median(values: Sequence[Sequence[Maybe]], groups: Sequence[int], at_least: int) -> list[list[Maybe]]:
    """For each GPU and column, the median of the observed members of its group."""
    found: list[list[Maybe]] = []
    for own in groups:
        row: list[Maybe] = []
        for column in range(len(values[0])):
            seen = [
                value
                for other, values_of in zip(groups, values, strict=True)
                if other == own >= 0 and (value := values_of[column]) is not None
            ]
            row.append(median(seen) if len(seen) >= at_least else None)
        found.append(row)
    return found


def peer_ratio(log_r: Sequence[Sequence[Maybe]], node: Sequence[int], peers: int = 3) -> list[list[Maybe]]:
    """log R less the node's median where the node has enough GPUs, else log R itself."""
    middle = group_median(log_r, node, peers)
    found: list[list[Maybe]] = []
    for row, own in enumerate(node):
        if own < 0 or sum(other == own for other in node) < peers:
            found.append(list(log_r[row]))
        else:
            found.append(
                [None if y is None or m is None else y - m for y, m in zip(log_r[row], middle[row], strict=True)]
            )
    return found


def trend(
    observations: Sequence[Maybe], noise: float, level_step: float, slope_step: float, slope_prior: float, huber: float
) -> tuple[Maybe, Maybe, float, float]:
    """(level, slope, level variance, slope variance) of one GPU, by two-by-two matrices written out in full."""
    state: list[float] | None = None
    p = [[noise**2, 0.0], [0.0, slope_prior**2]]
    for y in observations:
        if state is None:
            if y is not None:
                state = [y, 0.0]
            continue
        transition = [[1.0, 1.0], [0.0, 1.0]]
        state = [sum(transition[i][k] * state[k] for k in range(2)) for i in range(2)]
        p = [
            [
                sum(transition[i][k] * p[k][m] * transition[j][m] for k in range(2) for m in range(2))
                + (0.0 if i != j else (level_step, slope_step)[i] ** 2)
                for j in range(2)
            ]
            for i in range(2)
        ]
        if y is None:
            continue
        variance = p[0][0] + noise**2
        innovation = y - state[0]
        if abs(innovation) > huber * math.sqrt(variance):
            innovation = math.copysign(huber * math.sqrt(variance), innovation)
        gain = [p[0][0] / variance, p[1][0] / variance]
        state = [state[i] + gain[i] * innovation for i in range(2)]
        p = [[p[i][j] - gain[i] * p[0][j] for j in range(2)] for i in range(2)]
    if state is None:
        return None, None, p[0][0], p[1][1]
    return state[0], state[1], p[0][0], p[1][1]


def normal_cdf(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def log_normal_cdf(x: float) -> float:
    """Its logarithm; far down, where the function itself underflows, by the first terms of its asymptotic series."""
    if x > -30:
        return math.log(normal_cdf(x))
    return -x * x / 2 - math.log(-x * math.sqrt(2 * math.pi)) + math.log(1 - 1 / x**2 + 3 / x**4)


def first_passage(time: float, distance: float, drift: float, drift_sd: float, diffusion: float) -> float:
    """P(hit within time): the inverse Gaussian's distribution for each drift, summed over a dense grid of drifts."""
    if distance <= 0:
        return 1.0
    total = weights = 0.0
    for step in range(-800, 801):
        z = step / 100
        weight = math.exp(-z * z / 2)
        v = drift + z * drift_sd
        root = diffusion * math.sqrt(time)
        direct = normal_cdf((v * time - distance) / root)
        reflected = math.exp(2 * v * distance / diffusion**2 + log_normal_cdf((-v * time - distance) / root))
        weights += weight
        total += weight * (direct + reflected)
    return total / weights


def exceedance(count: int, a: float, b: float, exposure: float) -> float:
    """P(Y >= count) of the negative binomial: one less the sum of the probabilities below."""
    below = 0.0
    for k in range(count):
        below += math.exp(
            math.lgamma(k + a)
            - math.lgamma(a)
            - math.lgamma(k + 1)
            + a * math.log(b / (b + exposure))
            + k * math.log(exposure / (b + exposure))
        )
    return 1.0 - below


def excitation(
    ages_days: Sequence[float],
    horizon_days: float,
    scales_days: Sequence[float],
    weights: Sequence[float],
    frailty: float,
    steps: int = 4000,
) -> float:
    """Extra exposure in seconds: the intensity of all episodes, summed over midpoints of the horizon."""
    if not ages_days:
        return 0.0
    width = horizon_days / steps
    total = 0.0
    for step in range(steps):
        ahead = (step + 0.5) * width
        intensity = frailty
        for age in ages_days:
            for scale, weight in zip(scales_days, weights, strict=True):
                intensity += weight * math.exp(-(age + ahead) / scale)
        total += intensity * width
    return total * DAY_S


def episodes(starts_s: Sequence[float]) -> list[float]:
    """The newest event of each UTC day."""
    newest: dict[int, float] = {}
    for start in starts_s:
        day = math.floor(start / DAY_S)
        newest[day] = max(newest.get(day, -math.inf), start)
    return sorted(newest.values())


def at_least(chances: Sequence[float], certain: int, k: int) -> float:
    """P(certain + successes >= k), by writing down every outcome."""
    total = 0.0
    for outcome in itertools.product((False, True), repeat=len(chances)):
        if certain + sum(outcome) >= k:
            total += math.prod(p if hit else 1 - p for p, hit in zip(chances, outcome, strict=True))
    return total


def steady(
    power: Sequence[Maybe], power_range: Sequence[Maybe], throttled: Sequence[Maybe], limit: float
) -> list[bool]:
    """Which ten-minute windows of one GPU are fit to measure a resistance in."""
    flags = []
    for i, p in enumerate(power):
        before = power[i - 1] if i else None
        spread, heat = power_range[i], throttled[i]
        flags.append(
            p is not None
            and before is not None
            and abs(p - before) < 0.10 * p
            and (spread is None or spread < 0.15 * p)
            and (heat is None or heat <= 0)
            and p > 0.35 * limit
        )
    return flags


def log_resistance(
    temperature: Sequence[Maybe], inlet: Sequence[Maybe], power: Sequence[Maybe], use: Sequence[bool]
) -> Maybe:
    """Median log((T + 0.5 - T_in) / P) of the usable windows, of which there must be twenty."""
    logs = [
        math.log((t + 0.5 - t_in) / p)
        for t, t_in, p, good in zip(temperature, inlet, power, use, strict=True)
        if good and t is not None and t_in is not None and p is not None and t + 0.5 - t_in > 1.0
    ]
    return median(logs) if len(logs) >= 20 else None
