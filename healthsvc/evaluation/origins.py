"""Rolling origins: what is trained, calibrated and tested on when, so that nothing is judged by what it has seen."""

import math
from dataclasses import dataclass

from healthsvc.fleet import DAY_S, MINUTE_S

BLOCK_S = 28 * DAY_S
TRAIN_S = 60 * DAY_S  # a thermal trend needs them
LEAST_TRAIN_S = 14 * DAY_S  # a GPU's own baseline
SUMMARY_S = 10 * MINUTE_S  # a block begins with a summary
ROLLING, NOT_CROSS_VALIDATED = "rolling origin", "not cross-validated"


@dataclass(frozen=True)
class Fold:
    """Train up to train_end_s, calibrate on a later block, test on the next; (start_s, end_s] each.

    Between any two of them lies the longest horizon: the outcome of the last case of one block is known before the
    next begins. calibrate is None where the history is too short, and `label` says so: then nothing is learnt from
    labels, and the test block begins where the training ends.
    """

    train_end_s: float
    calibrate: tuple[float, float] | None
    test: tuple[float, float]
    label: str = ROLLING


def rolling_origins(start_s: float, end_s: float, horizon_s: float, train_s: float = TRAIN_S) -> tuple[Fold, ...]:
    """Folds in order of time, at least one: blocks of four weeks, the last test ending at end_s, each fold four weeks
    after the one before and trained on train_s of history at least.

    A history too short for one such fold gives a single one that is labelled as not cross-validated: no calibration
    block, and the test block is all that comes after the first 14 days. Raises ValueError when nothing does, and for
    a horizon that is not positive. Fewer than three folds are few: say how many there were.
    """
    if horizon_s <= 0:
        raise ValueError(f"horizon_s = {horizon_s:g}: must be positive")
    folds = []
    test_end_s = end_s
    while True:
        test = (test_end_s - BLOCK_S, test_end_s)
        calibrate = (test[0] - horizon_s - BLOCK_S, test[0] - horizon_s)
        train_end_s = calibrate[0] - horizon_s
        if train_end_s - start_s < train_s:
            break
        folds.append(Fold(train_end_s, calibrate, test))
        test_end_s -= BLOCK_S
    return tuple(reversed(folds)) or (_single(start_s, end_s),)


def _single(start_s: float, end_s: float) -> Fold:
    test_s = math.ceil((start_s + LEAST_TRAIN_S) / SUMMARY_S) * SUMMARY_S
    if test_s >= end_s:
        raise ValueError(
            f"a history of {(end_s - start_s) / DAY_S:.3g} d is too short: {LEAST_TRAIN_S / DAY_S:.0f} d must come "
            "before the first test; begin earlier"
        )
    return Fold(test_s, None, (test_s, end_s), NOT_CROSS_VALIDATED)
