"""Slow and obvious twins of the fast numbers: plain loops over plain floats, the oracle that they are tested against.

None stands for "no sample", so that no NaN rule is shared with the code under test.
"""

import itertools
import json
import math
from collections.abc import Sequence, Set

import numpy as np

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
    """Counter increments of one GPU: what each sample adds to the one before, a drop of 1 being a restart from zero."""
    steps: list[Maybe] = []
    newest = before
    for value in raw:
        if value is None:
            steps.append(None)
            continue
        if newest is None:
            steps.append(0.0)
        elif value <= newest - 1:
            steps.append(value)
        else:
            steps.append(max(value - newest, 0.0))
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


def peer_ratio(
    log_r: Sequence[Sequence[Maybe]], node: Sequence[int], peers: int = 3, rounds: int = 3
) -> list[list[Maybe]]:
    """log R less what its node has in common that day, where the node has enough GPUs, else log R itself."""
    day = group_median(log_r, node, peers)
    for _ in range(rounds):
        apart = [middle_of(row) for row in less(log_r, day)]
        alike = [[less_one(y, own) for y in row] for row, own in zip(log_r, apart, strict=True)]
        day = group_median(alike, node, peers)
    common = [[less_one(y, middle_of(row)) for y in row] for row in day]
    cleared = less(log_r, common)
    enough = [own >= 0 and sum(other == own for other in node) >= peers for own in node]
    return [cleared[row] if enough[row] else list(log_r[row]) for row in range(len(node))]


def middle_of(row: Sequence[Maybe]) -> Maybe:
    """Median of what is observed."""
    return median([y for y in row if y is not None])


def less_one(y: Maybe, m: Maybe) -> Maybe:
    """y - m, where both are known."""
    return None if y is None or m is None else y - m


def less(rows: Sequence[Sequence[Maybe]], others: Sequence[Sequence[Maybe]]) -> list[list[Maybe]]:
    """Differences, entry by entry."""
    return [[less_one(y, m) for y, m in zip(row, other, strict=True)] for row, other in zip(rows, others, strict=True)]


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


def trend_log_likelihood(
    observations: Sequence[Maybe], noise: float, level_step: float, slope_step: float, slope_prior: float
) -> float:
    """Sum over the days of the log density of what was observed, given all days before: a filter anew for each day."""
    total = 0.0
    for day in range(len(observations)):
        y = observations[day]
        if y is None or all(v is None for v in observations[:day]):
            continue
        arguments = (noise, level_step, slope_step, slope_prior, math.inf)
        level, _, level_var, _ = trend([*observations[:day], None], *arguments)
        assert level is not None
        variance = level_var + noise**2
        total -= (math.log(2 * math.pi * variance) + (y - level) ** 2 / variance) / 2
    return total


def change_z(values: Sequence[Maybe], shape: Sequence[float], deviation: float, persistence: float) -> float:
    """z of a change of this shape on a constant, by generalised least squares with the whole covariance matrix."""
    seen = [i for i, y in enumerate(values) if y is not None]
    covariance = np.array([[deviation**2 * persistence ** abs(i - j) for j in seen] for i in seen])
    design = np.array([[1.0, shape[i]] for i in seen])
    y = np.array([values[i] for i in seen], float)
    weight = np.linalg.inv(covariance)
    precision = design.T @ weight @ design
    beta = np.linalg.solve(precision, design.T @ weight @ y)
    return float(beta[1] / math.sqrt(np.linalg.inv(precision)[1, 1]))


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


def passage(
    time: float,
    limit: float,
    level: float,
    slope: float,
    covariance: Sequence[Sequence[float]],
    diffusion: float,
    noise: float,
    persistence: float,
) -> float:
    """P(a day beyond the limit): `first_passage` from a dense grid of levels, the limit nearer as days scatter."""
    reach = 0.85 - 0.6 * persistence
    pace = max(slope / noise, 8 * (diffusion / noise) ** 2, max(reach, 0.6) / time)
    near = limit - 0.54 * math.log(reach / min(pace, reach)) * noise
    level_var = covariance[0][0] + (0.7 * noise) ** 2
    pull = covariance[0][1] / level_var
    slope_sd = math.sqrt(max(covariance[1][1] - pull * covariance[0][1], 0.0))
    total = weights = 0.0
    for step in range(-20, 21):
        z = step / 4
        weight = math.exp(-z * z / 2)
        off = z * math.sqrt(level_var)
        weights += weight
        total += weight * first_passage(time, near - level - off, slope + pull * off, slope_sd, diffusion)
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


def forward(times_s: Sequence[float], now_s: float) -> list[str]:
    """What becomes of each sample of one series: "" is kept, else the reason."""
    verdicts: list[str] = []
    newest = -math.inf
    for time_s in times_s:
        if not math.isfinite(time_s):
            verdicts.append("not_a_number")
        elif time_s > now_s:
            verdicts.append("future")
        elif time_s == newest:
            verdicts.append("duplicate_time")
        elif time_s < newest:
            verdicts.append("out_of_order")
        else:
            verdicts.append("")
            newest = time_s
    return verdicts


def percentages(values: Sequence[Maybe], by_default: bool) -> list[bool]:
    """Which values of one series are percentages: those above 1, and after (else before) those the silent ones."""
    proven = [None if v is None or v == 0 or v == 1 else v > 1 for v in values]
    first = next((each for each in proven if each is not None), by_default)
    found: list[bool] = []
    newest: bool | None = None
    for each in proven:
        newest = each if each is not None else newest
        found.append(first if newest is None else newest)
    return found


def merged(
    series: Sequence[Sequence[tuple[float, Maybe]]], columns_s: Sequence[float], step_s: float, how: str
) -> list[Maybe]:
    """One device on the grid: of each series the last sample of a column, of those the largest, smallest or newest."""
    line: list[Maybe] = []
    for end_s in columns_s:
        candidates: list[tuple[float, float]] = []
        for samples in series:
            inside = [(t, v) for t, v in samples if end_s - step_s < t <= end_s and v is not None]
            if inside:
                candidates.append(inside[-1])
        if not candidates:
            line.append(None)
        elif how == "last":
            line.append(max(candidates)[1])
        else:
            values = [v for _, v in candidates]
            line.append(max(values) if how == "max" else min(values))
    return line


def held(line: Sequence[Maybe], step_s: float, for_s: float) -> list[Maybe]:
    """A line whose samples are believed for so long after the end of their column."""
    found: list[Maybe] = []
    newest, age_s = None, math.inf
    for value in line:
        age_s += step_s
        if value is not None:
            newest, age_s = value, 0.0
        found.append(newest if age_s == 0 or age_s < for_s else None)
    return found


def readiness(requires: Sequence[Set[str]], uses: Set[str], has: Set[str], cannot: Set[str], born: Set[str]) -> str:
    """What a forecaster can do for one GPU: has, cannot: its signals and those its board cannot have; born: signals
    that have no series before their first event, and are known to be on."""
    if any(not (group & has) for group in requires):
        return "starved"
    return "degraded" if uses - has - cannot - born else "ready"


def smi_cell(cell: str, unit: str) -> tuple[Maybe, str]:
    """One cell of an nvidia-smi log in watts, or None and the reason."""
    factors = {"W": 1.0, "mW": 1e-3, "C": 1.0, "%": 1e-2, "MHz": 1e6, "s": 1.0, "ms": 1e-3, "us": 1e-6}
    factors |= {"J": 1.0, "mJ": 1e-3, "B": 1.0, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30}
    plain = cell.strip("[]() ").lower()
    words = {"active": 1.0, "yes": 1.0, "enabled": 1.0, "not active": 0.0, "no": 0.0, "disabled": 0.0}
    digits = cell.rstrip("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ% ")
    told = cell[len(digits) :].strip()
    if digits and set(digits) <= set("0123456789.+-eE") and any(c.isdigit() for c in digits) and " " not in told:
        try:
            number = float(digits)
        except ValueError:
            return None, "not_a_number"
        factor = factors.get(told or unit)
        return (None, "not_a_number") if factor is None else (number * factor, "")
    if plain in words:
        return words[plain], ""
    if plain.startswith("0x"):
        try:
            return float(int(plain, 16)), ""
        except ValueError:
            return None, "not_a_number"
    if plain in ("n/a", "not supported", "requested functionality has been deprecated", "-"):
        return None, "no_sensor"
    lost = ("", "unknown error", "gpu is lost", "insufficient permissions", "err!", "error", "unknown")
    return None, "blank" if plain in (*lost, "gpu requires reset") else "not_a_number"


def identity_changes(before: dict[str, tuple[str, str]], now: dict[str, tuple[str, str]]) -> list[tuple[str, str]]:
    """(device, kind) of one column: `before` is where every known device was last, `now` where those seen are."""
    if not before:
        return []
    found = []
    for device, (host, slot) in now.items():
        if device not in before:
            occupants = [d for d, place in before.items() if place == (host, slot) and host]
            stayed = [d for d in occupants if now.get(d) == before[d]]
            if occupants and not stayed:
                found.append((device, "SWAP"))
            continue
        old_host, old_slot = before[device]
        if not host or not old_host or host == old_host:
            if slot != old_slot:
                found.append((device, "RE_ENUMERATION"))
        else:
            members = [d for d, place in before.items() if place[0] == old_host]
            seen = [d for d in members if d in now]
            together = all(now[d] == (host, before[d][1]) for d in seen)
            unheard_of = all(place[0] != host for place in before.values())
            rename = together and unheard_of and len(seen) > len(members) / 2
            found.append((device, "RENAME" if rename else "MOVE"))
    return found


def samples_of_answer(body: bytes) -> list[tuple[dict[str, str], list[tuple[float, float]]]]:
    """Labels and (time, value) pairs of each series of a matrix, a sample at a time."""
    told = json.loads(body)
    if told["status"] != "success" or told["data"]["resultType"] != "matrix":
        raise ValueError("no matrix")
    return [
        (series["metric"], [(float(time_s), float(value)) for time_s, value in series["values"]])
        for series in told["data"]["result"]
    ]


def rises(values: Sequence[float], times_s: Sequence[float], least_s: float) -> list[float]:
    """Rise per second between every two samples that lie so far apart, the counter having risen and never fallen."""
    found = []
    for i in range(len(values)):
        for j in range(i + 1, len(values)):
            fell = any(values[k + 1] < values[k] for k in range(i, j))
            if times_s[j] - times_s[i] >= least_s and values[j] > values[i] and not fell:
                found.append((values[j] - values[i]) / (times_s[j] - times_s[i]))
    return found


def stood_still(
    energy: Sequence[Maybe], power: Sequence[Maybe], times_s: Sequence[float], least_s: float, least_watts: float
) -> list[bool]:
    """Where an energy counter has repeated itself so long though power was drawn, its first showing left out."""
    found = [False] * len(energy)
    for begin, value in enumerate(energy):
        before = [each for each in energy[:begin] if each is not None]
        if value is None or (before and before[-1] == value):
            continue
        end = begin + 1
        while end < len(energy) and energy[end] in (None, value):
            end += 1
        run = range(begin + 1, end)
        drawn = [power[k] for k in run if power[k] is not None]
        long = any(energy[k] is not None and times_s[k] - times_s[begin] >= least_s for k in run)
        if long and drawn and all(watts >= least_watts for watts in drawn if watts is not None):
            for k in run:
                found[k] = True
    return found


def negative_binomial_log_likelihood(
    counts: Sequence[float], exposures: Sequence[float], mean: float, shape: float
) -> float:
    """Of counts with the given mean per exposure and shape, one after the other."""
    total = 0.0
    for y, t in zip(counts, exposures, strict=True):
        m = mean * t
        total += math.lgamma(shape + y) - math.lgamma(shape) - math.lgamma(y + 1)
        total += shape * math.log(shape / (shape + m)) + y * math.log(m / (shape + m))
    return total


def false_discovery(p: Sequence[Maybe]) -> list[Maybe]:
    """Benjamini and Hochberg: of every level at which this one would be reported, the lowest."""
    tested = sorted(value for value in p if value is not None)
    found: list[Maybe] = []
    for own in p:
        if own is None:
            found.append(None)
            continue
        levels = [value * len(tested) / sum(other <= value for other in tested) for value in tested if value >= own]
        found.append(min(1.0, *levels) if levels else 1.0)
    return found


def share_at_least(own: int, total: int, a: float, b: float) -> float:
    """P(X >= own) of the beta-binomial, by adding up."""

    def log_beta(x: float, y: float) -> float:
        return math.lgamma(x) + math.lgamma(y) - math.lgamma(x + y)

    return sum(
        math.comb(total, k) * math.exp(log_beta(k + a, total - k + b) - log_beta(a, b)) for k in range(own, total + 1)
    )


def crow_exponent(counts: Sequence[Maybe], exposures: Sequence[float]) -> Maybe:
    """n over the sum of log(T / t): t the middle of each day with errors, on a clock of observed time."""
    clock, moments = 0.0, []
    for count, exposure in zip(counts, exposures, strict=True):
        if count is None or exposure <= 0:
            continue
        if count > 0:
            moments.append(clock + exposure / 2)
        clock += exposure
    if len(moments) < 5:
        return None
    return len(moments) / sum(math.log(clock / moment) for moment in moments)


def dispersion(counts: Sequence[float]) -> float:
    """Sample variance by mean."""
    mean = sum(counts) / len(counts)
    return sum((y - mean) ** 2 for y in counts) / (len(counts) - 1) / mean


def rate_chances(
    y: float, t: float, shares: Sequence[float], gammas: Sequence[tuple[float, float]], steps: int = 20_000
) -> list[float]:
    """P(class | y errors in t): the Poisson probability averaged over each class's gamma, on a grid of log rates."""
    weights = []
    for share, (a, b) in zip(shares, gammas, strict=True):
        total = 0.0
        for step in range(steps):
            log_rate = -20.0 + 30.0 * (step + 0.5) / steps
            rate = math.exp(log_rate)
            density = a * math.log(b) - math.lgamma(a) + a * log_rate - b * rate
            total += math.exp(density + y * math.log(rate * t) - rate * t - math.lgamma(y + 1))
        weights.append(share * total * 30.0 / steps)
    return [weight / sum(weights) for weight in weights]


def excited_cells(
    cells: Sequence[tuple[int, float, float, float]],
    episodes: Sequence[tuple[int, float]],
    kernel: Sequence[tuple[float, float]],
    frailty: float,
) -> tuple[list[float], list[float]]:
    """(excited seconds, events) of each (row, start, end, exposure); kernel: (scale in seconds, weight) each."""
    excited, events = [], []
    for row, start, end, exposure in cells:
        own = [at for who, at in episodes if who == row]
        events.append(float(sum(start <= at < end for at in own)))
        earlier = [at for at in own if at < start]
        mass = 0.0
        for at in earlier:
            for scale, weight in kernel:
                mass += weight * scale * (math.exp(-(start - at) / scale) - math.exp(-(end - at) / scale))
        excited.append(mass * exposure / (end - start) + (frailty * exposure if earlier else 0.0))
    return excited, events


def day_tail(count: int, profile: dict[str, float], steps: int = 4000) -> float:
    """P(a day has `count` errors or more): two negative binomials by adding up, bursts averaged over their rates."""

    def calm(mean: float, shape: float) -> float:
        return exceedance(count, shape, shape / mean, 1.0)

    shape, a, b = profile["burst_shape"], profile["burst_a"], profile["burst_b"]
    burst = weights = 0.0
    for step in range(steps):  # over log rates, within which the size of a burst is gamma
        log_rate = -25.0 + 30.0 * (step + 0.5) / steps
        rate = math.exp(log_rate)
        weight = math.exp(a * math.log(b) - math.lgamma(a) + a * log_rate - b * rate)
        weights += weight
        burst += weight * gamma_above(count * rate, shape)
    high, share = profile["elevated_share"], profile["bursting_share"]
    tail = (1 - high - share) * calm(profile["quiet_mean"], profile["quiet_shape"])
    return tail + high * calm(profile["elevated_mean"], profile["elevated_shape"]) + share * burst / weights


def gamma_above(x: float, shape: float, terms: int = 400) -> float:
    """P(G > x) of a gamma with unit rate, from the series of the lower one; 0 where that would lose all digits."""
    if x > 60.0:
        return 0.0
    term = total = 1.0 / shape
    for k in range(1, terms):
        term *= x / (shape + k)
        total += term
    return 1.0 - total * math.exp(-x + shape * math.log(x) - math.lgamma(shape)) if x > 0 else 1.0
