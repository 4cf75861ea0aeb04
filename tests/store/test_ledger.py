"""The ledger gives back what it was given, merges shards, and survives damage, kills and changed definitions."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from structlog.testing import capture_logs

from healthsvc.fleet import DAY_S, OPEN, DailyLedger, EventKind, EventLog, Floats, GpuId
from healthsvc.store import Ledger

DAY = 20_000
NOW_S = (DAY + 1) * DAY_S
TODAY = {"slope_celsius_per_day": "a1", "sbe_errors": "b1"}


def fleet(*names: str, hostname: str = "node0") -> tuple[GpuId, ...]:
    return tuple(GpuId(f"GPU-{n}", hostname, n, "H200", f"0000:{n}", "east") for n in names)


def one_day(
    gpus: Sequence[GpuId], day: int = DAY, completeness: float = 1.0, **features: Sequence[float]
) -> DailyLedger:
    """A one-column ledger; counts in float64, the rest in float32, as the digest gives them."""
    columns: dict[str, Floats] = {
        name: np.array([values], np.float64).T if name.endswith("errors") else np.array([values], np.float32).T
        for name, values in features.items()
    }
    shape = (len(gpus), 1)
    exposure = np.full(shape, 24 * completeness, np.float32)
    return DailyLedger(tuple(gpus), np.array([day]), columns, exposure, np.full(shape, completeness, np.float32))


def xid(row: int, code: float, start_s: float = DAY * DAY_S + 60.0) -> EventLog:
    return log_of([(row, start_s, start_s + 1, EventKind.XID, code)])


def log_of(rows: Sequence[tuple[int, float, float, int, float]]) -> EventLog:
    kinds = (np.int32, np.float64, np.float64, np.int16, np.float64)
    return EventLog(*(np.array([r[i] for r in rows], kind) for i, kind in enumerate(kinds)))


def same_events(one: EventLog, other: EventLog) -> bool:
    return all(np.array_equal(getattr(one, n), getattr(other, n)) for n in ("row", "start_s", "end_s", "kind", "value"))


def raw(directory: Path) -> dict[str, str]:
    """Every row on disk, as text, so that NaN equals NaN."""
    files = sorted(directory.rglob("*.parquet"))
    return {str(path.relative_to(directory)): repr(pq.read_table(path).to_pylist()) for path in files}


any_float = partial(st.floats, allow_nan=True, allow_infinity=True)


@st.composite
def ledgers(draw: st.DrawFn) -> dict[int, DailyLedger]:
    """Up to three days of up to five GPUs that come and go; a feature may be absent on a day."""
    found = {}
    for day in draw(st.sets(st.integers(DAY, DAY + 2), min_size=1)):
        names = draw(st.lists(st.sampled_from("abcde"), unique=True))
        gpus, shape = fleet(*names), (len(names), 1)
        features: Mapping[str, Any] = {
            "slope_celsius_per_day": draw(hnp.arrays(np.float32, shape, elements=any_float(width=32))),
            "sbe_errors": draw(hnp.arrays(np.float64, shape, elements=any_float())),
        }
        kept = {n: v for n, v in features.items() if draw(st.booleans())}
        share = draw(hnp.arrays(np.float32, shape, elements=st.floats(0, 1, width=32)))
        found[day] = DailyLedger(gpus, np.array([day]), kept, share * 24, share)
    return found


@given(days=ledgers())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_was_written_is_read_bit_for_bit(days: dict[int, DailyLedger], tmp_path_factory: Any) -> None:
    ledger = Ledger(tmp_path_factory.mktemp("ledger"), TODAY)
    for day, daily in days.items():
        ledger.write_day(day, daily, EventLog(), NOW_S)
    read, events = ledger.read(DAY, DAY + 2)
    assert len(events) == 0
    assert set(read.gpus) == {gpu for daily in days.values() for gpu in daily.gpus}
    for column, day in enumerate(read.days):
        written = days.get(int(day))
        row = {gpu: i for i, gpu in enumerate(written.gpus)} if written else {}
        for name in TODAY:
            want = [written.get(name)[row[g], 0] if written and g in row else np.nan for g in read.gpus]
            np.testing.assert_array_equal(read.get(name)[:, column], np.array(want, read.get(name).dtype))
        share = [written.completeness[row[g], 0] if written and g in row else 0.0 for g in read.gpus]
        np.testing.assert_array_equal(read.completeness[:, column], np.array(share, np.float32))


def test_counts_keep_float64_and_the_rest_float32(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    ledger.write_day(
        DAY, one_day(fleet("a"), sbe_errors=[1_529_280_001.0], slope_celsius_per_day=[0.1]), EventLog(), NOW_S
    )
    read, _ = ledger.read(DAY - 1, DAY)
    assert read.get("sbe_errors")[0, 1] == 1_529_280_001.0
    assert read.get("slope_celsius_per_day").dtype == np.float32


def test_an_empty_ledger_reads_as_no_gpus_and_every_day(tmp_path: Path) -> None:
    read, events = Ledger(tmp_path, TODAY).read(DAY, DAY + 3)
    assert (read.gpus, read.days.tolist(), len(events)) == ((), [DAY, DAY + 1, DAY + 2, DAY + 3], 0)
    assert read.get("sbe_errors").shape == (0, 4)


def test_shards_written_one_after_the_other_equal_one_write(tmp_path: Path) -> None:
    whole, shards = Ledger(tmp_path / "whole", TODAY), Ledger(tmp_path / "shards", TODAY)
    gpus, values = fleet("c", "a", "d", "b"), [1.0, np.nan, 3.0, 4.0]
    whole.write_day(DAY, one_day(gpus, sbe_errors=values), log_of([(0, 9, 10, 1, 79), (3, 5, OPEN, 11, 0)]), NOW_S)
    shards.write_day(DAY, one_day(gpus[2:], sbe_errors=values[2:]), log_of([(1, 5, OPEN, 11, 0)]), 1.0, complete=False)
    assert shards.incomplete_days(now_s=NOW_S + 90 * DAY_S) == [DAY]
    shards.write_day(DAY, one_day(gpus[:2], sbe_errors=values[:2]), xid(0, 79, 9.0), NOW_S)
    assert raw(tmp_path / "shards") == raw(tmp_path / "whole")
    assert shards.incomplete_days(now_s=NOW_S) == []


def test_a_gpu_written_again_replaces_its_row_and_its_events_only(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    gpus = fleet("a", "b")
    ledger.write_day(DAY, one_day(gpus, sbe_errors=[1, 2]), xid(0, 48).merged(xid(1, 79)), NOW_S)
    ledger.write_day(DAY, one_day(gpus[:1], sbe_errors=[9]), xid(0, 94), NOW_S)
    read, events = ledger.read(DAY, DAY)
    assert read.get("sbe_errors")[:, 0].tolist() == [9, 2]
    assert {(int(r), int(v)) for r, v in zip(events.row, events.value, strict=True)} == {(0, 94), (1, 79)}


def test_the_newest_labels_win(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    ledger.write_day(DAY + 1, one_day(fleet("a", hostname="moved"), DAY + 1), EventLog(), NOW_S)
    ledger.write_day(DAY, one_day(fleet("a", "b")), EventLog(), NOW_S)
    read, _ = ledger.read(DAY, DAY + 1)
    assert [gpu.hostname for gpu in read.gpus] == ["moved", "node0"]


def test_an_episode_reported_on_two_days_is_one_with_the_newest_end(tmp_path: Path) -> None:
    ledger, start_s = Ledger(tmp_path, TODAY), DAY * DAY_S + 5
    ledger.write_day(DAY, one_day(fleet("b")), log_of([(0, start_s, OPEN, EventKind.LOST, 0)]), NOW_S)
    ledger.write_day(
        DAY + 1,
        one_day(fleet("a", "b"), DAY + 1),
        log_of([(1, start_s, start_s + 9, EventKind.LOST, 0), (0, start_s, OPEN, EventKind.LOST, 0)]),
        NOW_S,
    )
    _, events = ledger.read(DAY, DAY + 1)
    assert same_events(
        events, log_of([(0, start_s, OPEN, EventKind.LOST, 0), (1, start_s, start_s + 9, EventKind.LOST, 0)])
    )


def test_a_changed_definition_blanks_that_column_only(tmp_path: Path) -> None:
    old = Ledger(tmp_path, TODAY)
    for day in (DAY, DAY + 1):
        old.write_day(day, one_day(fleet("a"), day, sbe_errors=[5], slope_celsius_per_day=[0.5]), EventLog(), NOW_S)
    new = Ledger(tmp_path, {**TODAY, "slope_celsius_per_day": "a2"})
    new.write_day(DAY + 1, one_day(fleet("a"), DAY + 1, sbe_errors=[6], slope_celsius_per_day=[0.7]), EventLog(), NOW_S)
    read, _ = new.read(DAY, DAY + 1)
    assert read.get("sbe_errors").tolist() == [[5, 6]]
    assert np.isnan(read.get("slope_celsius_per_day")).tolist() == [[True, False]]
    assert new.stale_days() == [DAY]
    assert [s.stale_columns for s in new.status()] == [("slope_celsius_per_day",), ()]
    assert old.stale_days() == [DAY + 1]


def test_a_shard_under_a_new_definition_never_relabels_the_old_numbers(tmp_path: Path) -> None:
    both = fleet("a", "b")
    Ledger(tmp_path, TODAY).write_day(
        DAY, one_day(both, sbe_errors=[1, 2], slope_celsius_per_day=[0.1, 0.2]), EventLog(), NOW_S
    )
    new = Ledger(tmp_path, {**TODAY, "slope_celsius_per_day": "a2"})
    new.write_day(DAY, one_day(both[:1], sbe_errors=[1], slope_celsius_per_day=[0.9]), EventLog(), NOW_S)
    read, _ = new.read(DAY, DAY)
    np.testing.assert_array_equal(read.get("slope_celsius_per_day")[:, 0], np.array([0.9, np.nan], np.float32))
    assert read.get("sbe_errors")[:, 0].tolist() == [1, 2]


def test_a_feature_that_nobody_reported_is_not_stale(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    ledger.write_day(DAY, one_day(fleet("a"), sbe_errors=[1]), EventLog(), NOW_S)
    assert ledger.stale_days() == []
    assert np.isnan(ledger.read(DAY, DAY)[0].get("slope_celsius_per_day")).all()


def test_missing_and_incomplete_days_are_named_for_a_retry(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    for day, share in ((DAY, 0.5), (DAY + 3, 0.5), (DAY + 4, 1.0)):
        ledger.write_day(day, one_day(fleet("a"), day, completeness=share), EventLog(), NOW_S)
    assert ledger.missing_days(DAY, DAY + 5) == [DAY + 1, DAY + 2, DAY + 5]
    assert ledger.incomplete_days(now_s=(DAY + 5) * DAY_S) == [DAY + 3]
    assert ledger.incomplete_days(now_s=(DAY + 5) * DAY_S, below=0.4) == []
    assert ledger.incomplete_days(now_s=(DAY + 5) * DAY_S, within_s=10 * DAY_S) == [DAY, DAY + 3]


def test_status_tells_what_is_on_disk(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    ledger.write_day(DAY, one_day(fleet("a", "b"), completeness=0.75), EventLog(), NOW_S)
    (status,) = ledger.status()
    assert (status.day, status.gpus, status.completeness_ratio, status.written_at_s) == (DAY, 2, 0.75, NOW_S)


def test_a_file_left_half_written_by_a_kill_is_ignored_and_overwritten(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    ledger.write_day(DAY, one_day(fleet("a"), sbe_errors=[1]), EventLog(), NOW_S)
    left = tmp_path / "ledger" / f".{next((tmp_path / 'ledger').iterdir()).name}.tmp"
    left.write_bytes(b"PAR1 half")
    assert ledger.days() == [DAY]
    assert ledger.read(DAY, DAY)[0].get("sbe_errors").tolist() == [[1]]
    ledger.write_day(DAY, one_day(fleet("a"), sbe_errors=[2]), EventLog(), NOW_S)
    assert not left.exists()


def test_a_kill_between_events_and_day_leaves_the_day_missing(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    ledger.write_day(DAY, one_day(fleet("a")), xid(0, 79), NOW_S)
    next((tmp_path / "ledger").iterdir()).unlink()
    assert ledger.missing_days(DAY, DAY) == [DAY]
    assert len(ledger.read(DAY, DAY)[1]) == 0


SMALL_FILES_ONLY = """
import resource, sys
from pathlib import Path
import numpy as np
from healthsvc.fleet import DailyLedger, EventLog, GpuId
from healthsvc.store import Ledger, StoreError
ledger = Ledger(Path(sys.argv[1]), {"noise_celsius": "a1"})
resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
for gpus in (10, 100_000):
    noise, ones = np.random.default_rng(0).random((gpus, 1)), np.ones((gpus, 1))
    ids = tuple(GpuId(f"GPU-{i}") for i in range(gpus))
    try:
        ledger.write_day(0, DailyLedger(ids, np.array([0]), {"noise_celsius": noise}, ones, ones), EventLog(), 0.0)
    except StoreError as failure:
        print(failure)
print(len(ledger.read(0, 0)[0].gpus), ledger.quarantined(), [p.name for p in (ledger.directory / "ledger").iterdir()])
"""


def test_a_day_that_the_disk_refuses_leaves_the_day_as_it_was(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SMALL_FILES_ONLY, str(tmp_path)]
    message, kept = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert message.startswith(f"{tmp_path}/ledger/1970-01-01.parquet: File too large. Raise")
    assert kept == "10 [] ['1970-01-01.parquet']"


def truncated(data: bytes) -> bytes:
    return data[: len(data) // 2]


def flipped(data: bytes) -> bytes:
    """One bit of the first data page: a plausible number, and only the checksum knows."""
    return data[:60] + bytes([data[60] ^ 0x10]) + data[61:]


@pytest.mark.parametrize("damage", [truncated, flipped, lambda data: b"", lambda data: b"not Parquet at all"])
@pytest.mark.parametrize("folder", ["ledger", "events"])
def test_a_damaged_file_is_set_aside_and_the_other_days_are_read(tmp_path: Path, folder: str, damage: Any) -> None:
    ledger = Ledger(tmp_path, TODAY)
    for day in (DAY, DAY + 1):
        ledger.write_day(day, one_day(fleet("a"), day, sbe_errors=[day]), xid(0, 79, day * DAY_S), NOW_S)
    path = sorted((tmp_path / folder).iterdir())[0]
    path.write_bytes(damage(path.read_bytes()))
    with capture_logs() as logs:
        read, events = ledger.read(DAY, DAY + 1)
    assert read.get("sbe_errors")[0, 1] == DAY + 1
    assert (DAY + 1) * DAY_S in events.start_s
    assert ledger.missing_days(DAY, DAY + 1) == [DAY]
    (aside,) = ledger.quarantined()
    assert aside.name == f"{path.name}.corrupt-1"
    (warning,) = logs
    assert (warning["log_level"], warning["file"]) == ("warning", str(path))
    assert "fetched again" in warning["cure"]


def test_a_second_damaged_file_of_a_day_does_not_overwrite_the_first(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    for _ in range(2):
        ledger.write_day(DAY, one_day(fleet("a")), EventLog(), NOW_S)
        next((tmp_path / "ledger").glob("*.parquet")).write_bytes(b"bad")
        ledger.status()
    assert [path.suffix for path in ledger.quarantined()] == [".corrupt-1", ".corrupt-2"]


@pytest.mark.parametrize("fault", ["version", "column", "metadata"])
def test_a_whole_file_of_another_layout_is_set_aside(tmp_path: Path, fault: str) -> None:
    ledger = Ledger(tmp_path, TODAY)
    ledger.write_day(DAY, one_day(fleet("a")), EventLog(), NOW_S)
    path = next((tmp_path / "ledger").iterdir())
    table = pq.read_table(path)
    metadata = dict(table.schema.metadata)
    if fault == "version":
        metadata[b"healthsvc.schema_version"] = b"99"
    elif fault == "metadata":
        del metadata[b"healthsvc.definitions"]
    else:
        table = table.drop_columns("completeness")
    pq.write_table(table.replace_schema_metadata(metadata), path)
    with capture_logs():
        assert ledger.status() == []
    assert len(ledger.quarantined()) == 1


def test_retention_drops_old_days_and_their_leavings(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, TODAY)
    for day in range(DAY, DAY + 4):
        ledger.write_day(day, one_day(fleet("a"), day), EventLog(), NOW_S)
    oldest = min((tmp_path / "ledger").iterdir())
    (tmp_path / "ledger" / f"{oldest.name}.corrupt-1").write_bytes(b"")
    (tmp_path / "ledger" / f".{oldest.name}.tmp").write_bytes(b"")
    (tmp_path / "ledger" / "README").write_text("not a day")
    ledger.drop_before(DAY + 2)
    assert ledger.days() == [DAY + 2, DAY + 3]
    assert len(list((tmp_path / "ledger").iterdir())) == 3


@pytest.mark.parametrize(
    ("daily", "events", "complaint"),
    [
        (one_day(fleet("a"), DAY + 1), EventLog(), "give that one day"),
        (one_day(fleet("a"), fan_rpm=[1.0]), EventLog(), "no definition of .*fan_rpm"),
        (one_day(fleet("a", "a")), EventLog(), "occurs twice"),
        (one_day(fleet("a")), xid(1, 79), "events.row leaves 0..0"),
    ],
)
def test_a_mistake_of_the_caller_is_named(tmp_path: Path, daily: DailyLedger, events: EventLog, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Ledger(tmp_path, TODAY).write_day(DAY, daily, events, NOW_S)
    assert list(tmp_path.iterdir()) == []
