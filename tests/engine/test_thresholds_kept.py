"""What a site's back-test has chosen is in force at the next start, and nothing else is."""

from pathlib import Path

import pytest

from healthsvc.config import Settings, SettingsError
from healthsvc.engine.build import source_identity
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.engine.study import workers
from healthsvc.engine.thresholds import keep_thresholds, with_kept_thresholds
from healthsvc.evaluation.thresholds import CHOSEN, SHIPPED, Threshold
from healthsvc.telemetry.recorded import RecordedSource


def test_a_threshold_of_a_calibration_block_replaces_the_shipped_one(tmp_path: Path) -> None:
    priors = class_priors(load_priors())
    chosen = {
        "thermal": Threshold(0.17, CHOSEN, 4000.0, 3),
        "memory": Threshold(priors["memory"].failure_p_7d, SHIPPED, 12.0, 0),
    }
    keep_thresholds(tmp_path, chosen, 1e9, "this site")
    own = with_kept_thresholds(tmp_path, priors, "this site")
    assert own["thermal"].failure_p_7d == 0.17
    assert own["memory"] == priors["memory"]
    assert own["device_loss"] == priors["device_loss"]


def test_shipped_thresholds_are_not_kept_as_if_they_were_chosen(tmp_path: Path) -> None:
    priors = class_priors(load_priors())
    keep_thresholds(tmp_path, {"thermal": Threshold(0.3, SHIPPED, 12.0, 0)}, 1e9, "this site")
    assert with_kept_thresholds(tmp_path, priors, "this site") == priors
    assert list(tmp_path.iterdir()) == []


def test_thresholds_of_another_source_are_left_alone(tmp_path: Path) -> None:
    priors = class_priors(load_priors())
    keep_thresholds(tmp_path, {"thermal": Threshold(0.17, CHOSEN, 4000.0, 3)}, 1e9, "this site")
    assert with_kept_thresholds(tmp_path, priors, "another site") == priors


def test_a_source_is_known_by_what_it_holds_and_not_by_where_it_lies(tiny: RecordedSource, tmp_path: Path) -> None:
    def of(folder: Path) -> str:
        return source_identity(Settings(recorded={"directory": folder}))

    copy = tmp_path / "copy"
    copy.mkdir()
    told = (tiny.directory / "recording.json").read_text()
    (copy / "recording.json").write_text(told)
    assert of(copy) == of(tiny.directory)
    (copy / "recording.json").write_text(told.replace('"seed": 1', '"seed": 2'))
    assert of(copy) != of(tiny.directory)
    servers = [
        Settings(prometheus={"url": url, "selector": s}) for url in ("http://a", "http://b") for s in ("", 'x="1"')
    ]
    assert len({source_identity(settings) for settings in servers}) == 4
    with pytest.raises(SettingsError, match=r"recorded\.directory = .*nowhere"):
        of(tmp_path / "nowhere")


@pytest.mark.parametrize(("backend", "package"), [("dask", "distributed"), ("ray", "ray")])
def test_a_cluster_backend_that_is_not_installed_names_its_package(backend: str, package: str) -> None:
    pytest.importorskip("joblib")
    with pytest.raises(SettingsError, match=f"pip install {package}$"), workers(backend):
        pass


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(SettingsError, match="choose loky, dask or ray"), workers("threads"):
        pass
