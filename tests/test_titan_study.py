"""The study of Titan's failures: every row counts, nothing comes from the future, and without the data it says so."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from healthsvc.features.recurrence import Kernel
from healthsvc.fleet import DAY_S
from scripts.studies import ecc, titan, titan_fleet
from scripts.studies.titan_fleet import Titan, load, moment_s, origins_s

KERNEL = Kernel((7.0, 30.0, 90.0), (20.0, 10.0, 5.0), 1.0)
REAL = Path(__file__).resolve().parents[2] / "shared" / "data" / titan_fleet.NAME
CHOICE = titan.Choice(window_days=120.0)


def written(folder: Path, rows: list[tuple[str, str, str, str, str]]) -> Titan:
    """(serial, location, insert, remove, event) each."""
    table = pd.DataFrame(rows, columns=["SN", "location", "insert", "remove", "event"])
    table.to_csv(folder / "gc_full.csv", index=False)
    return load(folder)


def fleet(folder: Path, more: tuple[tuple[str, str, str, str, str], ...] = ()) -> Titan:
    """Forty boards from 2014 to 2019, of which every fourth failed in 2015, and what else is told."""
    rows = [
        (f"0323{number:08d}", f"c1-{number % 8}c{number % 3}s0n0", "2014-01-21 10:00:00", "2019-08-01 20:00:00", "")
        for number in range(40)
    ]
    rows += [(rows[n][0], rows[n][1], "", f"2015-0{n // 8 + 3}-11 12:00:00", "DBE") for n in range(0, 40, 4)]
    return written(folder, [*rows, *more])


def test_events_within_a_stay_and_those_that_end_it_all_count(tmp_path: Path) -> None:
    told = written(
        tmp_path,
        [
            ("032300000001", "c1-2c2s0n0", "2014-02-01 00:00:00", "2015-06-15 12:00:00", "DBE"),
            ("032300000001", "c1-2c2s0n0", "", "2015-03-03 12:00:00", "DBE"),
            ("032300000001", "c1-2c2s0n0", "", "2015-03-03 18:00:00", "DBE"),  # the same day: the same episode
            ("032100000002", "c1-2c0s0n0", "2016-01-01 00:00:00", "2019-08-01 00:00:00", "OTB"),
        ],
    )
    assert [len(told.events[kind]) for kind in titan_fleet.KINDS] == [3, 1, 4]
    assert len(told.episodes("DBE")) == 2
    cells, stays = told.person_time("DBE", moment_s("2015-01-01"), moment_s("2016-03-01"))
    _, events = cells.tally(told.episodes("DBE"), KERNEL)
    assert events.sum() == 2
    observed = {row: cells.exposure_s[cells.row == row].sum() / DAY_S for row in (0, 1)}
    assert observed[1] == pytest.approx(31 + 28 + 31 + 30 + 31 + 14.5, abs=0.01)
    assert observed[0] == pytest.approx(60.0, abs=0.01)
    assert told.in_place(moment_s("2015-07-01")).tolist() == []
    x = told.covariates(stays, cells.start_s)
    assert sorted(set(x[:, 1].tolist())) == [-1.0, 1.0]


def test_what_happens_later_changes_nothing_that_was_said_before(tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    (tmp_path / "more").mkdir()
    origins = origins_s("2015-06-01", "2015-12-01")
    later = tuple((f"0323{n:08d}", "c1-0c0s0n0", "", "2016-02-20 10:00:00", "DBE") for n in range(1, 39, 2))
    plain, changed = fleet(tmp_path / "plain"), fleet(tmp_path / "more", later)
    before, after = (titan.predict(each, "DBE", origins, KERNEL, CHOICE) for each in (plain, changed))
    np.testing.assert_allclose(before.p, after.p, rtol=1e-9)
    assert after.y.sum() == before.y.sum()


def test_a_board_that_has_failed_is_said_to_be_likelier_to_fail_again(tmp_path: Path) -> None:
    told = fleet(tmp_path)
    cases = titan.predict(told, "DBE", origins_s("2015-08-01", "2015-09-01"), KERNEL, CHOICE)
    failed = np.isin(cases.gpu, told.events["DBE"].row)
    assert cases.p[failed].min() > 1.3 * cases.p[~failed].max()
    assert ((cases.p > 0) & (cases.p < 1)).all()


def test_boards_are_drawn_whole_and_a_way_differs_from_itself_by_nothing(tmp_path: Path) -> None:
    cases = titan.predict(fleet(tmp_path), "DBE", origins_s("2015-03-01", "2015-07-01"), KERNEL, CHOICE)
    assert titan.ap_difference(cases, cases, np.random.default_rng(0)) == [0.0, 0.0, 0.0]
    found = titan.figures(cases, np.random.default_rng(0))
    assert found["events"] == cases.y.sum() > 0
    assert found["ap_95"][0] <= found["ap"] <= found["ap_95"][1]


def test_without_the_data_the_part_says_so(tmp_path: Path) -> None:
    assert "no titan-gpu-life" in ecc.run_titan("20260101", tmp_path)["missing"]


@pytest.mark.skipif(not (REAL / "gc_full.csv").is_file(), reason="titan-gpu-life is not among the data")
def test_the_real_file_has_the_events_that_its_authors_count() -> None:
    told = load(REAL)
    assert len(told.serial) == 30_207
    assert [len(told.events[kind]) for kind in titan_fleet.KINDS] == [4826, 1541, 6367]
