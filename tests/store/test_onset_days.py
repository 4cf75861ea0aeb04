"""The bins that onsets are learned from, day by day on disk: as they were written, or none at all."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from structlog.testing import capture_logs

from healthsvc.fleet import DAY_S, ONSET_COVARIATES, DailyLedger, EventLog, GpuId, OnsetBins
from healthsvc.store import Ledger

DAY = 20_000
NOW_S = (DAY + 1) * DAY_S
COLUMNS = ("row", "start_s", "onset", "share", "inlet_source", "x")


def fleet(*names: str) -> tuple[GpuId, ...]:
    return tuple(GpuId(f"GPU-{name}", "node0", name) for name in names)


def one_day(gpus: tuple[GpuId, ...], day: int = DAY) -> DailyLedger:
    whole = np.ones((len(gpus), 1), np.float32)
    return DailyLedger(gpus, np.array([day]), {}, 24 * whole, whole)


def drawn(rows: list[int], day: int = DAY, seed: int = 0) -> OnsetBins:
    """One bin a row, ten minutes apart, in order of time."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(len(rows), len(ONSET_COVARIATES))).astype(np.float32)
    x[:, -1] = np.nan
    return OnsetBins(
        np.array(rows, np.int32),
        np.arange(1, len(rows) + 1) * np.float64(600.0) + day * DAY_S,
        rng.random(len(rows)) < 0.5,
        rng.random(len(rows)).astype(np.float32),
        rng.integers(0, 3, len(rows)).astype(np.int8),
        x,
    )


def write(ledger: Ledger, gpus: tuple[GpuId, ...], bins: OnsetBins, day: int = DAY) -> None:
    ledger.write_day(day, one_day(gpus, day), EventLog(), NOW_S, bins=bins)


def assert_same(one: OnsetBins, other: OnsetBins) -> None:
    for name in COLUMNS:
        assert getattr(one, name).dtype == getattr(other, name).dtype, name
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name), err_msg=name)


def test_bins_are_read_as_they_were_written_one_part_a_day(tmp_path: Path) -> None:
    ledger, gpus = Ledger(tmp_path, {}), fleet("a", "b", "c")
    days = {DAY: drawn([0, 2, 0], DAY), DAY + 1: drawn([], DAY + 1), DAY + 2: drawn([1, 1], DAY + 2, 1)}
    for day, bins in days.items():
        write(ledger, gpus, bins, day)
    parts = ledger.onset_bins(gpus, DAY - 1, DAY + 3)
    assert len(parts) == 2  # a day without any is no part
    for part, day in zip(parts, (DAY, DAY + 2), strict=True):
        assert_same(part, days[day])
    (last,) = ledger.onset_bins(gpus, DAY + 1, DAY + 2)
    assert_same(last, days[DAY + 2])


def test_bins_come_in_the_rows_of_those_who_ask(tmp_path: Path) -> None:
    ledger, gpus = Ledger(tmp_path, {}), fleet("a", "b", "c")
    bins = drawn([0, 2, 1])
    write(ledger, gpus, bins)
    (part,) = ledger.onset_bins(fleet("c", "new", "a"), DAY, DAY)
    assert_same(part, replace(bins.where(np.array([True, True, False])), row=np.array([2, 0], np.int32)))
    assert ledger.onset_bins(fleet("new"), DAY, DAY) == ()
    assert ledger.onset_bins((), DAY, DAY) == ()


def test_a_gpu_written_again_replaces_its_own_bins_only(tmp_path: Path) -> None:
    ledger, gpus = Ledger(tmp_path, {}), fleet("a", "b")
    first, again = drawn([0, 1, 0, 1]), drawn([0, 0], seed=1)
    write(ledger, gpus, first)
    write(ledger, gpus[:1], again)
    (part,) = ledger.onset_bins(gpus, DAY, DAY)
    assert_same(part.where(part.row == 0), again)
    assert_same(part.where(part.row == 1), first.where(first.row == 1))
    write(ledger, gpus[:1], OnsetBins())
    (rest,) = ledger.onset_bins(gpus, DAY, DAY)
    assert_same(rest, first.where(first.row == 1))


def test_shards_written_one_after_the_other_equal_one_write(tmp_path: Path) -> None:
    whole, shards = Ledger(tmp_path / "whole", {}), Ledger(tmp_path / "shards", {})
    gpus, bins = fleet("c", "a", "b"), drawn([0, 1, 2, 1, 0])
    write(whole, gpus, bins)
    for rows in ([1, 2], [0]):
        write(shards, tuple(gpus[i] for i in rows), bins.take(np.array(rows)))
    one, other = ((tmp_path / name / "onsets").glob("*") for name in ("whole", "shards"))
    assert repr(pq.read_table(next(one)).to_pylist()) == repr(pq.read_table(next(other)).to_pylist())


def test_a_ledger_from_before_there_were_bins_is_whole(tmp_path: Path) -> None:
    """Its days have none; none of them is missing, stale or to be read again for that."""
    ledger, gpus = Ledger(tmp_path, {}), fleet("a")
    write(ledger, gpus, drawn([0]))
    next((tmp_path / "onsets").iterdir()).unlink()
    assert ledger.onset_bins(gpus, DAY, DAY) == ()
    assert (ledger.missing_days(DAY, DAY), ledger.stale_days(), ledger.incomplete_days(NOW_S)) == ([], [], [])
    write(ledger, gpus, drawn([0]))
    assert len(ledger.onset_bins(gpus, DAY, DAY)) == 1


@pytest.mark.parametrize("change", ["version", "covariates", "nothing said"])
def test_bins_that_were_worked_out_otherwise_are_none_and_never_mixed(tmp_path: Path, change: str) -> None:
    ledger, gpus = Ledger(tmp_path, {}), fleet("a", "b")
    write(ledger, gpus, drawn([0, 1]))
    (path,) = (tmp_path / "onsets").iterdir()
    table = pq.read_table(path)
    version, *names = json.loads(table.schema.metadata[b"healthsvc.onsets"])
    assert names == list(ONSET_COVARIATES)
    other = {"version": [version + 1, *names], "covariates": [version, *names[::-1]]}.get(change)
    metadata = {k: v for k, v in table.schema.metadata.items() if k != b"healthsvc.onsets"}
    metadata |= {b"healthsvc.onsets": json.dumps(other).encode()} if other else {}
    pq.write_table(table.replace_schema_metadata(metadata), path)
    assert ledger.onset_bins(gpus, DAY, DAY) == ()
    assert ledger.quarantined() == []
    write(ledger, gpus[:1], drawn([0], seed=2))
    (part,) = ledger.onset_bins(gpus, DAY, DAY)
    assert_same(part, drawn([0], seed=2))


def test_a_damaged_file_costs_the_bins_of_its_day_only(tmp_path: Path) -> None:
    ledger, gpus = Ledger(tmp_path, {}), fleet("a")
    for day in (DAY, DAY + 1):
        write(ledger, gpus, drawn([0], day), day)
    path = min((tmp_path / "onsets").iterdir())
    path.write_bytes(path.read_bytes()[:60])
    with capture_logs() as logs:
        (part,) = ledger.onset_bins(gpus, DAY, DAY + 1)
    assert part.start_s[0] // DAY_S == DAY + 1
    assert [aside.name for aside in ledger.quarantined()] == [f"{path.name}.corrupt-1"]
    assert [log["log_level"] for log in logs] == ["warning"]
    assert ledger.missing_days(DAY, DAY + 1) == []


def test_retention_drops_the_bins_of_old_days(tmp_path: Path) -> None:
    ledger, gpus = Ledger(tmp_path, {}), fleet("a")
    for day in range(DAY, DAY + 3):
        write(ledger, gpus, drawn([0], day), day)
    ledger.drop_before(DAY + 2)
    assert len(list((tmp_path / "onsets").iterdir())) == 1
    assert len(ledger.onset_bins(gpus, DAY, DAY + 2)) == 1


def test_bins_of_gpus_that_the_day_does_not_have_are_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"bins\.row leaves 0\.\.0"):
        write(Ledger(tmp_path, {}), fleet("a"), drawn([1]))
    assert list(tmp_path.iterdir()) == []
