"""A stretch of history is digested alike in whatever pieces it is read, and a day is written once."""

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from healthsvc.engine.digest import Digest, chunk_seconds, days_to_walk, digest_day, digest_span, inverse, union_of
from healthsvc.fleet import DAY_S, EventKind, GpuId, Placement
from healthsvc.store import Ledger
from healthsvc.telemetry.recorded import RecordedSource
from healthsvc.telemetry.source import SourceError
from tests.engine.recordings import DAYS, START_DAY, START_S, STEP_S
from tests.engine.sources import ArraySource, steady_source

HOUR_S, WINDOW_S = 3600.0, 600.0
FROM_S, UNTIL_S = START_S + 9.0 * DAY_S, START_S + 9.5 * DAY_S  # a loss at 2:24, a dry loop from 7:12 to 9:36
ALL = 10**6


def digest(source: RecordedSource | ArraySource, chunk_s: float, until_s: float = UNTIL_S) -> Digest:
    return digest_span(source, FROM_S, until_s, STEP_S, chunk_s, source.placement())


def happened(found: Digest) -> list[tuple[str, float, int]]:
    log = found.events
    ids = [found.gpus[int(row)].device_id for row in log.row]
    return list(zip(ids, log.start_s.tolist(), log.kind.tolist(), strict=True))


def assert_same(one: Digest, other: Digest) -> None:
    assert one.gpus == other.gpus
    np.testing.assert_array_equal(one.last_seen_s, other.last_seen_s)
    np.testing.assert_array_equal(one.summaries.ends_s, other.summaries.ends_s)
    for name, values in one.summaries.columns.items():
        np.testing.assert_array_equal(values, other.summaries.columns[name], err_msg=name)
    for name in ("row", "start_s", "end_s", "kind", "value"):
        np.testing.assert_array_equal(getattr(one.events, name), getattr(other.events, name), err_msg=name)


@given(chunks=st.integers(2, 72), patch=st.booleans())
@example(chunks=1, patch=True)
@settings(max_examples=12, deadline=None)
def test_in_whatever_pieces_a_stretch_is_read_its_digest_is_the_same(
    tiny: RecordedSource, patchy: RecordedSource, chunks: int, patch: bool
) -> None:
    source = patchy if patch else tiny
    assert_same(digest(source, ALL), digest(source, chunks * WINDOW_S))


def test_the_digest_holds_what_happened(tiny: RecordedSource) -> None:
    found = digest(tiny, ALL)
    assert found.summaries.ends_s.tolist() == [FROM_S + i * WINDOW_S for i in range(1, 73)]
    lost = found.events.of(EventKind.LOST)
    assert [found.gpus[int(row)] for row in lost.row] == [tiny.gpus[2]]
    throttled = {found.gpus[int(row)].device_id for row in found.events.of(EventKind.THERMAL_THROTTLE).row}
    assert throttled >= {gpu.device_id for gpu in tiny.gpus[4:]}  # all of the dry loop
    assert found.last_seen_s[2] == pytest.approx(START_S + 9.1 * DAY_S, abs=STEP_S)


@pytest.mark.parametrize("seam_h", [7.0, 7.25, 7.5, 7.75, 8.0])
def test_an_onset_at_a_seam_is_in_one_part_or_the_other(tiny: RecordedSource, seam_h: float) -> None:
    """The bin in which a GPU begins to throttle may be the first one behind the seam."""
    seam_s = FROM_S + np.floor(seam_h * HOUR_S / WINDOW_S) * WINDOW_S
    first = digest(tiny, ALL, seam_s)
    second = digest_span(tiny, seam_s, UNTIL_S, STEP_S, ALL, tiny.placement())
    parts = [*happened(first), *happened(second)]
    assert len(parts) == len(set(parts))
    assert set(parts) == set(happened(digest(tiny, ALL)))


def test_a_counter_that_grew_over_a_seam_is_counted_once(tiny: RecordedSource) -> None:
    whole, pieces = digest(tiny, ALL), digest(tiny, WINDOW_S)
    for name in ("sbe_errors", "pcie_replays_errors"):
        assert np.nansum(whole.summaries.columns[name]) == np.nansum(pieces.summaries.columns[name]) > 0


def test_nothing_read_is_nothing_digested() -> None:
    gpus = (GpuId("a", "n1"),)
    source = steady_source(gpus, START_S, START_S + HOUR_S, STEP_S)
    found = digest_span(source, START_S + DAY_S, START_S + DAY_S + HOUR_S, STEP_S, HOUR_S, Placement())
    assert (found.gpus, len(found.events), found.last_seen_s.tolist()) == ((), 0, [])


def test_a_gpu_that_comes_in_a_later_piece_has_no_past() -> None:
    gpus = (GpuId("a", "n1"), GpuId("b", "n1"))
    source = steady_source(gpus, START_S - DAY_S, START_S + DAY_S, STEP_S, {"b": (START_S + 5 * HOUR_S, np.inf)})
    found = digest_span(source, START_S, START_S + 8 * HOUR_S, STEP_S, HOUR_S, None)
    assert found.gpus == gpus
    power = found.summaries.columns["power_watts"]
    assert np.isnan(power[1, :30]).all()
    np.testing.assert_allclose(power[1, 31:], 520.0)
    np.testing.assert_allclose(power[0], 510.0)


# -- the pieces -------------------------------------------------------------------------------------------------------


def test_a_piece_is_whole_windows_as_many_as_fit_and_never_more_than_a_day() -> None:
    assert chunk_seconds(1, 60.0, 1024) == DAY_S
    assert chunk_seconds(10**7, 60.0, 64) == WINDOW_S
    sizes = [chunk_seconds(gpus, 60.0, 256) for gpus in (2_000, 5_000, 20_000)]
    assert sizes == sorted(sizes, reverse=True)
    assert all(size % WINDOW_S == 0 for size in sizes)


def named(*devices: str, host: str = "n1") -> Sequence[GpuId]:
    return tuple(GpuId(d, host) for d in devices)


def test_a_union_keeps_the_order_and_takes_the_newest_labels() -> None:
    merged, rows = union_of(named("a", "b"), named("c", "b", host="n2"))
    assert [(g.device_id, g.hostname) for g in merged] == [("a", "n1"), ("b", "n2"), ("c", "n2")]
    assert rows.tolist() == [2, 1]
    assert inverse(rows, 3).tolist() == [-1, 1, 0]


# -- days -------------------------------------------------------------------------------------------------------------


def test_a_walk_goes_backwards_from_yesterday_to_where_history_begins(ledger: Ledger) -> None:
    now_s = START_S + DAYS * DAY_S
    whole = days_to_walk(ledger, now_s, 60, START_S + HOUR_S)
    assert whole == [START_DAY + d for d in reversed(range(DAYS))]
    assert days_to_walk(ledger, now_s, 7, START_S) == whole[:7]
    assert len(days_to_walk(ledger, now_s, 7, None)) == 7


def test_a_walk_that_was_interrupted_resumes_where_it_stopped(tiny: RecordedSource, ledger: Ledger) -> None:
    now_s = START_S + 9 * DAY_S
    for day in days_to_walk(ledger, now_s, 5, START_S)[:2]:
        digest_day(tiny, ledger, day, now_s, STEP_S, 1024, tiny.placement())
    assert days_to_walk(ledger, now_s, 5, START_S) == [START_DAY + d for d in (6, 5, 4)]


def test_a_recent_day_with_missing_samples_is_read_again_and_an_old_one_is_not(
    patchy: RecordedSource, ledger: Ledger
) -> None:
    day = START_DAY + 8
    digest_day(patchy, ledger, day, START_S + 9 * DAY_S, STEP_S, 1024, patchy.placement())
    assert day in days_to_walk(ledger, START_S + 10 * DAY_S, 3, START_S)
    assert day not in days_to_walk(ledger, START_S + 11.5 * DAY_S, 5, START_S)


def test_a_day_is_written_whole_with_its_events(tiny: RecordedSource, ledger: Ledger) -> None:
    day = START_DAY + 9
    heard: list[int] = []
    row = digest_day(
        tiny, ledger, day, START_S + 10 * DAY_S, STEP_S, 1024, tiny.placement(), lambda raw: heard.append(raw.samples)
    )
    assert row is not None
    assert sum(heard) > 0
    kept, events = ledger.read(day, day)
    assert (len(kept.gpus), kept.unfinished) == (8, False)
    order = [row.gpus.index(gpu) for gpu in kept.gpus]
    for name, values in row.features.items():
        np.testing.assert_array_equal(kept.get(name), values[order], err_msg=name)
    assert len(events.of(EventKind.LOST)) == 1
    lost = kept.gpus.index(tiny.gpus[2])
    assert kept.exposure_h[lost, 0] == pytest.approx(2.4, abs=0.2)
    assert kept.completeness[lost, 0] == pytest.approx(0.1, abs=0.01)


def test_a_day_nobody_reported_is_not_written(tiny: RecordedSource, ledger: Ledger) -> None:
    assert digest_day(tiny, ledger, START_DAY - 3, START_S, STEP_S, 1024, None) is None
    assert ledger.days() == []


def test_a_day_that_cannot_be_read_is_not_written(ledger: Ledger) -> None:
    source = steady_source(named("a"), START_S, START_S + DAY_S, STEP_S)
    source.broken = True
    with pytest.raises(SourceError, match="Mend it"):
        digest_day(source, ledger, START_DAY, START_S + DAY_S, STEP_S, 1024, None)
    assert ledger.days() == []
