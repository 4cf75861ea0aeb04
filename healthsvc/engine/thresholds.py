"""Failure thresholds that a back-test has bought with a site's own history, kept with the trained arrays."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import structlog

from healthsvc.calibration import ClassPrior
from healthsvc.evaluation.thresholds import Threshold
from healthsvc.store import Shelf

log = structlog.get_logger()
NAME = "thresholds"
CHOSEN = "calibration block"


def keep_thresholds(directory: Path, chosen: Mapping[str, Threshold], as_of_s: float) -> bool:
    """Put them on the shelf of a state directory; False, and nothing is kept, if none was chosen on a block.

    Raises StoreError if the disk refuses.
    """
    own = {name: found for name, found in chosen.items() if found.source == CHOSEN}
    if not own:
        return False
    arrays = {
        "failure_class": np.array(list(own)),
        "failure_p_7d": np.array([found.p_7d for found in own.values()]),
        "exposure_gpu_months": np.array([found.exposure_gpu_months for found in own.values()]),
    }
    Shelf(directory).save(NAME, arrays, as_of_s, {"source": CHOSEN})
    return True


def with_kept_thresholds(directory: Path, priors: Mapping[str, ClassPrior]) -> dict[str, ClassPrior]:
    """The priors, with the failure thresholds that this site's back-test has chosen in place of the shipped ones."""
    kept = Shelf(directory).load_latest(NAME)
    if kept is None:
        return dict(priors)
    arrays, as_of_s, _ = kept
    own = dict(zip(arrays["failure_class"].tolist(), arrays["failure_p_7d"].tolist(), strict=True))
    log.info("failure thresholds of this site in force", as_of_s=as_of_s, **own)
    return {name: replace(prior, failure_p_7d=own.get(name, prior.failure_p_7d)) for name, prior in priors.items()}
