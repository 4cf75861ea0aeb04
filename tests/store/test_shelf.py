"""Trained arrays come back as they were, or not at all; the training before stands in."""

import json
from pathlib import Path

import numpy as np
import pytest
from structlog.testing import capture_logs

from healthsvc.store import Shelf

ARRAYS: dict[str, np.ndarray] = {
    "slope": np.array([[0.5, np.nan]], np.float32),
    "rows": np.arange(3, dtype=np.int64),
    "device_id": np.array(["GPU-a", "GPU-bé"]),
    "trained": np.array(True),
    "nothing": np.zeros((0, 4)),
}
MARCH_S = 1_772_323_200.0


def number(value: float) -> dict[str, np.ndarray]:
    return {"x": np.array([value])}


def test_a_training_comes_back_bit_for_bit_and_read_only(tmp_path: Path) -> None:
    Shelf(tmp_path).save("thermal_trend", ARRAYS, MARCH_S + 0.5, {"window_days": 60, "limits": (1, 2)})
    found = Shelf(tmp_path).load_latest("thermal_trend")
    assert found is not None
    arrays, trained_at_s, spec = found
    assert (trained_at_s, spec) == (MARCH_S + 0.5, {"window_days": 60, "limits": [1, 2]})
    assert arrays.keys() == ARRAYS.keys()
    for key, array in ARRAYS.items():
        np.testing.assert_array_equal(arrays[key], array)
        assert arrays[key].dtype == array.dtype
        assert not arrays[key].flags.writeable
    about = json.loads(next((tmp_path / "models" / "thermal_trend").glob("*.json")).read_text())
    assert about["arrays"]["slope"] == ["float32", [1, 2]]


def test_a_shelf_without_a_training_gives_none(tmp_path: Path) -> None:
    assert Shelf(tmp_path).load_latest("ecc_growth") is None


@pytest.mark.parametrize("array", [np.array([{"a": 1}], object), np.zeros(1, [("a", object)])])
def test_an_array_of_objects_is_refused_by_name(tmp_path: Path, array: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"ecc_growth\.forest: an array of objects"):
        Shelf(tmp_path).save("ecc_growth", {"forest": array}, MARCH_S, {})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["../escape", "", ".hidden", "a/b"])
def test_a_name_that_leaves_the_shelf_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="shelf name"):
        Shelf(tmp_path).save(name, ARRAYS, MARCH_S, {})


def test_only_the_newest_trainings_are_kept(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, keep=2)
    for day in range(4):
        shelf.save("anomaly", number(day), MARCH_S + day * 86_400, {})
    names = sorted(p.name for p in (tmp_path / "models" / "anomaly").iterdir())
    assert [n[:8] for n in names] == ["20260303", "20260303", "20260304", "20260304"]


def test_a_replay_is_not_given_a_training_of_its_future(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for day in range(3):
        shelf.save("anomaly", number(day), MARCH_S + day * 86_400, {})
    found = shelf.load_latest("anomaly", not_after_s=MARCH_S + 1.5 * 86_400)
    assert found is not None
    assert found[0]["x"][0] == 1
    assert shelf.load_latest("anomaly", not_after_s=MARCH_S - 1) is None


def test_a_training_older_than_all_kept_ones_is_kept_too(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path, keep=1)
    shelf.save("anomaly", number(1), MARCH_S, {})
    shelf.save("anomaly", number(0), MARCH_S - 86_400, {})
    found = shelf.load_latest("anomaly", not_after_s=MARCH_S - 1)
    assert found is not None
    assert found[0]["x"][0] == 0


@pytest.mark.parametrize("fault", ["flipped bit", "cut short", "no arrays", "no json", "other format"])
def test_a_damaged_training_is_set_aside_and_the_one_before_it_used(tmp_path: Path, fault: str) -> None:
    shelf = Shelf(tmp_path)
    for day in range(2):
        shelf.save("anomaly", number(day), MARCH_S + day * 86_400, {})
    npz = max((tmp_path / "models" / "anomaly").glob("*.npz"))
    data, sheet = npz.read_bytes(), npz.with_suffix(".json")
    match fault:
        case "flipped bit":
            npz.write_bytes(data[:-100] + bytes([data[-100] ^ 1]) + data[-99:])
        case "cut short":
            npz.write_bytes(data[:50])
        case "no arrays":
            npz.unlink()
        case "no json":
            sheet.write_text("{")
        case "other format":
            sheet.write_text(sheet.read_text().replace('"format_version": 1', '"format_version": 9'))
    with capture_logs() as logs:
        found = shelf.load_latest("anomaly")
    assert found is not None
    assert found[0]["x"][0] == 0
    assert logs[0]["log_level"] == "warning"
    assert sheet.with_name(f"{sheet.name}.corrupt-1").exists()


def test_arrays_without_their_json_are_a_training_that_was_killed_and_do_not_count(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path)
    for day in range(2):
        shelf.save("anomaly", number(day), MARCH_S + day * 86_400, {})
    max((tmp_path / "models" / "anomaly").glob("*.json")).unlink()
    found = shelf.load_latest("anomaly")
    assert found is not None
    assert found[0]["x"][0] == 0
