"""Failure thresholds that a back-test has bought with a site's own history, kept with the trained arrays."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import structlog

from healthsvc.calibration import ClassPrior
from healthsvc.evaluation.thresholds import CHOSEN, Threshold
from healthsvc.store import Shelf

log = structlog.get_logger()
NAME = "thresholds"


def keep_thresholds(directory: Path, chosen: Mapping[str, Threshold], as_of_s: float, source: str) -> None:
    """Put those that were chosen on a block on the shelf of a state directory; nothing if there is none.

    source: `source_identity` of the history they come from. Raises StoreError if the disk refuses.
    """
    own = {name: found for name, found in chosen.items() if found.source == CHOSEN}
    if not own:
        return
    arrays = {
        "failure_class": np.array(list(own)),
        "failure_p_7d": np.array([found.p_7d for found in own.values()]),
        "exposure_gpu_months": np.array([found.exposure_gpu_months for found in own.values()]),
    }
    Shelf(directory).save(NAME, arrays, as_of_s, {"source": source})


def with_kept_thresholds(directory: Path, priors: Mapping[str, ClassPrior], source: str) -> dict[str, ClassPrior]:
    """The priors, with the failure thresholds that a back-test on this source has chosen in place of the shipped ones.

    Thresholds of another source are left alone: they say nothing about this fleet. Raises StoreError.
    """
    kept = Shelf(directory).load_latest(NAME)
    if kept is None:
        return dict(priors)
    arrays, as_of_s, about = kept
    if about.get("source") != source:
        log.warning("failure thresholds left alone: a back-test on another source has chosen them", as_of_s=as_of_s)
        return dict(priors)
    own = dict(zip(arrays["failure_class"].tolist(), arrays["failure_p_7d"].tolist(), strict=True))
    log.info("failure thresholds of this site in force", as_of_s=as_of_s, **own)
    return {name: replace(prior, failure_p_7d=own.get(name, prior.failure_p_7d)) for name, prior in priors.items()}
