"""Where the constants of the drift test come from: how well the best drift fits noise in which nothing drifts."""

from typing import Any

import numpy as np

from healthsvc.features.drift import best_change, tail_of_best, whiten
from healthsvc.forecasters.thermal.path import PathSpec
from scripts.studies.thermal_fleet import autocorrelated

DAYS, BLOCK = 60, 10_000
BARS = (3.0, 3.5, 4.0, 4.5)


def constants(quick: bool = False, seed: int = 101) -> dict[str, Any]:
    """P(best z > bar) as simulated and as `tail_of_best` says, and the mean odds of a drift over the prior ones.

    Series of 60 days of AR(1) noise, its deviation and persistence known: what pooling them costs is in the false
    alarms. The mean odds have a heavy tail and grow with the number of series, so the number is told.
    """
    spec, rng = PathSpec(), np.random.default_rng(seed)
    found: dict[str, Any] = {
        "seed": seed,
        "days": DAYS,
        "tries": spec.tries,
        "slopes": spec.slopes,
        "bars": list(BARS),
        "by_persistence": [],
    }
    for persistence in (0.0, 0.4, 0.6):
        best = []
        for _ in range(1 if quick else 25):
            series = autocorrelated(rng, BLOCK, DAYS, persistence)
            best.append(best_change(whiten(series, np.ones(BLOCK), persistence), "ramp", 1, 0, 3).z)
        z = np.concatenate(best)
        odds = np.mean(np.exp(np.maximum(z, 0.0) ** 2 / 2)) / (spec.tries * spec.slopes)
        found["by_persistence"].append(
            {
                "persistence": persistence,
                "series": len(z),
                "mean_odds_over_prior": float(odds),
                "simulated": [float(np.mean(z > bar)) for bar in BARS],
                "said": tail_of_best(np.array(BARS), spec.tries).tolist(),
            }
        )
    return found
