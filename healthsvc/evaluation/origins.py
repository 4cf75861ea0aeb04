"""Rolling origins: what is trained, calibrated and tested on when, so that nothing is judged by what it has seen."""

from dataclasses import dataclass

from healthsvc.fleet import DAY_S

BLOCK_S = 28 * DAY_S
TRAIN_S = 60 * DAY_S  # a thermal trend needs them
LEAST_TRAIN_S = 14 * DAY_S  # a GPU's own baseline
ROLLING, NOT_CROSS_VALIDATED = "rolling origin", "not cross-validated"


@dataclass(frozen=True)
class Fold:
    """Train up to train_end_s, calibrate on a later block, test on the next; (start_s, end_s] each.

    Between any two of them lies gap_s, the longest horizon: the outcome of the last case of one block is known before
    the next begins. calibrate is None where the history is too short, and `label` says so.
    """

    train_end_s: float
    gap_s: float
    calibrate: tuple[float, float] | None
    test: tuple[float, float]
    label: str = ROLLING


def rolling_origins(
    start_s: float,
    end_s: float,
    horizon_s: float,
    train_s: float = TRAIN_S,
    block_s: float = BLOCK_S,
    step_s: float = BLOCK_S,
    least_train_s: float = LEAST_TRAIN_S,
) -> tuple[Fold, ...]:
    """Folds in order of time, the last test block ending at end_s, each trained on train_s of history at least.

    A history too short for one such fold gives a single one that is labelled as not cross-validated: no calibration
    block, the test block at the end and cut short so that least_train_s remain. Raises ValueError when even that does
    not fit. Fewer than three folds are few: say how many there were.
    """
    for name, value in (("horizon_s", horizon_s), ("block_s", block_s), ("step_s", step_s)):
        if value <= 0:
            raise ValueError(f"{name} = {value:g}: must be positive")
    folds = []
    test_end_s = end_s
    while True:
        test = (test_end_s - block_s, test_end_s)
        calibrate = (test[0] - horizon_s - block_s, test[0] - horizon_s)
        train_end_s = calibrate[0] - horizon_s
        if train_end_s - start_s < train_s:
            break
        folds.append(Fold(train_end_s, horizon_s, calibrate, test))
        test_end_s -= step_s
    return tuple(reversed(folds)) or (_single(start_s, end_s, horizon_s, block_s, least_train_s),)


def _single(start_s: float, end_s: float, horizon_s: float, block_s: float, least_train_s: float) -> Fold:
    test_start_s = max(end_s - block_s, start_s + least_train_s + horizon_s)
    if test_start_s >= end_s:
        had, needed = (end_s - start_s) / DAY_S, (least_train_s + horizon_s) / DAY_S
        raise ValueError(
            f"a history of {had:.3g} d is too short: training and a gap of one horizon take {needed:.3g} d and leave "
            "nothing to test on; begin earlier, or choose a shorter horizon"
        )
    return Fold(test_start_s - horizon_s, horizon_s, None, (test_start_s, end_s), NOT_CROSS_VALIDATED)
