"""The study of correctable errors: its fleets are healthy and repeatable, and its tables come out of its figures."""

from pathlib import Path

import numpy as np
import pytest

from healthsvc.fleet import DAY_S, Signal
from scripts.studies.ecc_fleet import FIRST_DAY, HOURS, KINDS, history_at, make_run
from scripts.studies.ecc_rates import THRESHOLDS, least_p, study
from scripts.studies.ecc_rates_tables import tables
from scripts.studies.ecc_smartmem import smartmem_table


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_seed_makes_the_same_errors(kind: str) -> None:
    one, again, other = (make_run(kind, 40, 20, seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(one.errors, again.errors)
    assert (one.errors != other.errors).any()
    assert one.days == 20


def test_few_gpus_hold_most_of_the_errors() -> None:
    total = np.sort(make_run("few", 4000, 60, 3).errors.sum(axis=1))
    assert 0.5 < total[-40:].sum() / total.sum() < 0.9
    assert total.var() / total.mean() > 100


def test_what_the_service_sees_ends_with_the_hour_it_is_asked_at() -> None:
    run = make_run("wild", 16, 10, 7)
    history = history_at(run, 5 * HOURS + 3)
    assert history.now_s == FIRST_DAY * DAY_S + (5 * HOURS + 4) * 3600.0
    np.testing.assert_array_equal(history.daily.get("sbe_errors")[:, -1], run.errors[:, 4 * HOURS : 5 * HOURS].sum(1))
    newest = run.errors[:, 5 * HOURS + 3]
    np.testing.assert_array_equal(history.recent.get(Signal.SBE_AGGREGATE)[:, -1], newest.astype(np.float32))


def test_a_healthy_fleet_is_hardly_ever_out_of_character() -> None:
    least = least_p(make_run("wild", 64, 97, 8))
    assert (least > 1e-4).all()


def test_a_missing_recording_is_said_and_no_error(tmp_path: Path) -> None:
    assert "not at" in smartmem_table(tmp_path)


def test_two_modules_are_told_hour_by_hour(tmp_path: Path) -> None:
    begin_s = 1_704_067_200
    for name, times in {"sn_6": [7200.0] * 9, "sn_6454": [3 * 86_400.0 + 60, 3 * 86_400.0 + 4000]}.items():
        rows = [f"{begin_s + at:.0f},CE.READ" for at in times] + [f"{begin_s + 10**6},UCE.READ"]
        (tmp_path / f"{name}.csv").write_text("\n".join(["\ufeffLogTime,error_type_full_name", *rows]), "utf-8")
    (tmp_path / "ticket.csv").write_text(f"\ufeffsn_name,alarm_time\nsn_6454,{begin_s + 3 * 86_400 + 7200}\n", "utf-8")
    table = smartmem_table(tmp_path)
    assert "`sn_6454`, ticket at 2024-01-04 02:00" in table
    assert "| to 2024-01-04 01:00 | 1 |" in table
    assert "60 min |" in table
    assert "`sn_6`, no ticket" in table
    assert "| to 2024-01-01 03:00 | 9 |" in table
    assert "insufficient events" in table
    assert "proves nothing" in table


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_the_quick_study_fills_every_table() -> None:
    text = tables({"fixed": study((101,), quick=True)})
    assert text.count("| fixed |") >= 15
    assert "Seeds, fixed: 101." in text
    for threshold in THRESHOLDS:
        assert f"below {threshold:g}" in text
