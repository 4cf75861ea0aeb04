"""What a site's back-test has chosen is in force at the next start, and nothing else is."""

from pathlib import Path

import pytest

from healthsvc.config import SettingsError
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.engine.study import workers
from healthsvc.engine.thresholds import keep_thresholds, with_kept_thresholds
from healthsvc.evaluation.thresholds import Threshold


def test_a_threshold_of_a_calibration_block_replaces_the_shipped_one(tmp_path: Path) -> None:
    priors = class_priors(load_priors())
    chosen = {
        "thermal": Threshold(0.17, "calibration block", 4000.0, 3),
        "memory": Threshold(priors["memory"].failure_p_7d, "shipped", 12.0, 0),
    }
    assert keep_thresholds(tmp_path, chosen, 1e9)
    own = with_kept_thresholds(tmp_path, priors)
    assert own["thermal"].failure_p_7d == 0.17
    assert own["memory"] == priors["memory"]
    assert own["device_loss"] == priors["device_loss"]


def test_shipped_thresholds_are_not_kept_as_if_they_were_chosen(tmp_path: Path) -> None:
    priors = class_priors(load_priors())
    assert not keep_thresholds(tmp_path, {"thermal": Threshold(0.3, "shipped", 12.0, 0)}, 1e9)
    assert with_kept_thresholds(tmp_path, priors) == priors


@pytest.mark.parametrize("backend", ["dask", "ray"])
def test_a_cluster_backend_that_is_not_installed_names_its_extra(backend: str) -> None:
    pytest.importorskip("joblib")
    with pytest.raises(SettingsError, match=rf"healthsvc\[{backend}\]"), workers(backend):
        pass


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(SettingsError, match="choose loky, dask or ray"), workers("threads"):
        pass
