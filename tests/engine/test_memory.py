"""What the service remembers minute by minute is what it would read back: nothing is lost, doubled or mixed up."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from healthsvc.engine.digest import digest_day
from healthsvc.engine.joins import day_of, empty_ledger, joined_days
from healthsvc.engine.memory import FleetMemory
from healthsvc.engine.recall import recall
from healthsvc.features.daily import definitions
from healthsvc.features.facts import remembered
from healthsvc.fleet import (
    DAY_S,
    HOUR_S,
    ONSET_COVARIATES,
    DailyLedger,
    EventKind,
    Floats,
    GpuId,
    OnsetBins,
    Placement,
    PlaceSeries,
    Signal,
)
from healthsvc.store import Ledger, StoreError
from healthsvc.telemetry.recorded import RecordedSource
from healthsvc.telemetry.source import RawGrid, Source, SourceError
from tests.engine.recordings import START_DAY, START_S, STEP_S, settings_for
from tests.engine.sources import ArraySource, assert_same_bins, assert_same_history, by_device, steady_source
from tests.histories import make_daily, make_gpus


def ignore(raw: RawGrid) -> None:
    """Nobody listens."""


def remember(source: Source, ledger: Ledger, now_s: float, placement: Placement | None = None) -> FleetMemory:
    return recall(source, ledger, now_s, settings_for(ledger.directory), placement or source.placement(), ignore)


def live(memory: FleetMemory, source: Source, ledger: Ledger, until_s: float, steps: int = 1) -> Iterator[float]:
    """The loop of the service, `steps` at a time."""
    while memory.now_s + STEP_S <= until_s:
        memory.advance(source, min(memory.now_s + steps * STEP_S, until_s), ignore)
        memory.finish_days(ledger)
        yield memory.now_s


def run(memory: FleetMemory, source: Source, ledger: Ledger, until_s: float, steps: int = 1) -> FleetMemory:
    for _ in live(memory, source, ledger, until_s, steps):
        pass
    return memory


def backfilled(source: Source, folder: Path, days: range) -> Ledger:
    ledger = Ledger(folder, definitions())
    for day in days:
        digest_day(source, ledger, day, (day + 1) * DAY_S, STEP_S, 1024, source.placement())
    return ledger


@pytest.fixture(scope="module")
def lived(patchy: RecordedSource, tmp_path_factory: pytest.TempPathFactory) -> tuple[FleetMemory, Ledger, Ledger]:
    """Two days and a half of the patchy recording lived step by step, beside the same days from backfill."""
    days = range(START_DAY + 5, START_DAY + 7)
    first = backfilled(patchy, tmp_path_factory.mktemp("live"), days)
    memory = remember(patchy, first, START_S + 7.6 * DAY_S)
    run(memory, patchy, first, START_S + 9.45 * DAY_S)
    again = backfilled(patchy, tmp_path_factory.mktemp("again"), range(START_DAY + 5, START_DAY + 9))
    return memory, first, again


def columns(daily: DailyLedger) -> dict[str, Floats]:
    """Every feature, and how much of each day there was."""
    return {**daily.features, "exposure_h": daily.exposure_h, "completeness": daily.completeness}


def test_a_day_lived_minute_by_minute_is_the_day_that_backfill_writes(
    lived: tuple[FleetMemory, Ledger, Ledger],
) -> None:
    _, first, again = lived
    assert first.days() == again.days()
    (one, events), (other, others) = (x.read(START_DAY + 5, START_DAY + 8) for x in (first, again))
    assert one.gpus == other.gpus
    for name, values in columns(one).items():
        np.testing.assert_array_equal(values, columns(other)[name], err_msg=name)
    for name in ("row", "start_s", "end_s", "kind", "value"):
        np.testing.assert_array_equal(getattr(events, name), getattr(others, name), err_msg=name)
    parts, twins = (x.onset_bins(one.gpus, START_DAY + 5, START_DAY + 8) for x in (first, again))
    assert len(parts) == len(twins) == 4
    for part, twin in zip(parts, twins, strict=True):
        assert_same_bins(part, twin)


def test_a_memory_that_lived_on_is_the_memory_of_one_that_begins_now(
    patchy: RecordedSource, lived: tuple[FleetMemory, Ledger, Ledger]
) -> None:
    memory, _, again = lived
    fresh = remember(patchy, again, memory.now_s)
    order = memory.roster.rows_of(fresh.gpus)
    memory._daily = None  # today's row is as old as the last hour
    assert_same_history(memory.history().take(order), fresh.history())
    assert memory.digested_s == fresh.digested_s


def test_a_restart_loses_nothing(patchy: RecordedSource, lived: tuple[FleetMemory, Ledger, Ledger]) -> None:
    """The ledger that the live service wrote, read by its successor."""
    memory, first, _ = lived
    successor = remember(patchy, first, memory.now_s)
    memory._daily = None
    assert_same_history(memory.history().take(memory.roster.rows_of(successor.gpus)), successor.history())


def test_onsets_are_seen_in_the_cycle_they_show_in(tiny: RecordedSource, ledger: Ledger) -> None:
    """A bin of five minutes is longer than a cycle; whoever only looks for what began since then sees none."""
    memory = remember(tiny, ledger, START_S + 9.3 * DAY_S)
    for now_s in live(memory, tiny, ledger, START_S + 9.4 * DAY_S):
        onsets = memory.events.of(EventKind.THERMAL_THROTTLE)
        throttled = memory.recent.get(Signal.SOFTWARE_THERMAL_THROTTLE)[4:, -1] > 10
        if throttled.any():
            assert np.isin(np.flatnonzero(throttled) + 4, onsets.row).all(), now_s
            break
    else:
        pytest.fail("nobody throttled")


def test_several_steps_at_once_are_the_same_steps(tiny: RecordedSource, tmp_path: Path) -> None:
    found = []
    for steps in (1, 5):
        ledger = Ledger(tmp_path / str(steps), definitions())
        memory = remember(tiny, ledger, START_S + 8.9 * DAY_S)
        run(memory, tiny, ledger, START_S + 9.35 * DAY_S, steps)
        memory._daily = None
        found.append(memory.history())
    assert_same_history(*found)


def test_todays_row_is_the_unfinished_last_column(tiny: RecordedSource, ledger: Ledger) -> None:
    memory = remember(tiny, ledger, START_S + 8.5 * DAY_S)
    daily = memory.history().daily
    assert (daily.days[-1], daily.unfinished) == (START_DAY + 8, True)
    np.testing.assert_allclose(daily.exposure_h[:, -1], 12.0)
    np.testing.assert_allclose(daily.completeness[:, -1], 1.0)  # of the half day that could have arrived


def test_todays_row_is_renewed_by_the_hour_and_by_every_event(tiny: RecordedSource, ledger: Ledger) -> None:
    """As far as there is a new ten-minute summary: without one it would come out the same."""
    memory = remember(tiny, ledger, START_S + 9.25 * DAY_S)
    kept, asked_s, until_s, events = memory.history().daily, memory.now_s, memory.digested_s, len(memory.events)
    hourly = by_event = 0
    for now_s in live(memory, tiny, ledger, START_S + 9.35 * DAY_S):
        news, events = len(memory.events) > events, len(memory.events)
        hour_is_over = now_s - asked_s >= HOUR_S
        renewed = memory.history().daily is not kept
        assert renewed == ((news or hour_is_over) and memory.digested_s > until_s), now_s
        asked_s = now_s if news or hour_is_over else asked_s
        if renewed:
            kept, until_s = memory.history().daily, memory.digested_s
            hourly, by_event = hourly + (not news), by_event + (not hour_is_over)
    assert hourly >= 1
    assert by_event >= 1


def test_a_finished_day_is_written_once_and_the_next_begins_empty(tiny: RecordedSource, ledger: Ledger) -> None:
    memory = remember(tiny, ledger, START_S + 7.9 * DAY_S)
    memory.advance(tiny, START_S + 8.0 * DAY_S, ignore)
    assert memory.finish_days(ledger) == [START_DAY + 7]  # at midnight its last sample is in
    assert memory.finish_days(ledger) == []
    assert (len(memory.today.ends_s), memory.finished.days[-1]) == (0, START_DAY + 7)
    assert not memory.history().daily.unfinished


def test_a_day_that_the_disk_refuses_stays_in_memory_and_is_tried_again(tiny: RecordedSource, tmp_path: Path) -> None:
    state = tmp_path / "state"
    ledger = Ledger(state, definitions())
    memory = remember(tiny, ledger, START_S + 8.0 * DAY_S - HOUR_S)
    state.mkdir(exist_ok=True)
    (state / "events").write_text("in the way")
    for hours in (1, 2):
        memory.advance(tiny, START_S + 8.0 * DAY_S + hours * HOUR_S, ignore)
    with pytest.raises(StoreError):
        memory.finish_days(ledger)
    (state / "events").unlink()
    assert memory.finish_days(ledger) == [START_DAY + 7]
    assert ledger.days() == [START_DAY + 7]
    assert len(memory.today.ends_s) == 12


def test_a_source_that_does_not_answer_changes_nothing(ledger: Ledger) -> None:
    source = steady_source(make_gpus(4), START_S, START_S + DAY_S, STEP_S)
    memory = remember(source, ledger, START_S + 6 * HOUR_S)
    before = memory.history()
    source.broken = True
    with pytest.raises(SourceError):
        memory.advance(source, memory.now_s + STEP_S, ignore)
    assert_same_history(memory.history(), before)
    source.broken = False
    memory.advance(source, memory.now_s + 2 * STEP_S, ignore)
    np.testing.assert_allclose(np.diff(memory.recent.times_s), STEP_S)


def short(memory: FleetMemory, train_days: int) -> FleetMemory:
    """The memory with another span of training; the smallest that settings allow is longer than the recording."""
    history = memory.settings.history.model_copy(update={"train_days": train_days})
    memory.settings = memory.settings.model_copy(update={"history": history})
    return memory


def test_a_service_that_never_stops_forgets_events_as_a_restart_would(patchy: RecordedSource, tmp_path: Path) -> None:
    ledger = backfilled(patchy, tmp_path, range(START_DAY + 1, START_DAY + 4))
    memory = short(remember(patchy, ledger, START_S + 4.9 * DAY_S), 3)
    assert memory.events.start_s.min() < START_S + 2 * DAY_S
    run(memory, patchy, ledger, START_S + 6.1 * DAY_S)
    settings = memory.settings
    fresh = recall(patchy, ledger, memory.now_s, settings, patchy.placement(), ignore)
    old = memory.events.where(memory.events.start_s < START_S + 3 * DAY_S)
    assert len(old) == len(remembered(old)) > 0, "failures of the past stay, and nothing else"
    memory._daily = None
    assert_same_history(memory.history().take(memory.roster.rows_of(fresh.gpus)), fresh.history())


def test_a_step_that_breaks_off_after_its_columns_loses_no_event(tiny: RecordedSource, tmp_path: Path) -> None:
    """Three steps of half an hour fail at what comes after their columns; a GPU is lost in the second of them."""
    found = []
    for broken in (False, True):
        ledger = Ledger(tmp_path / str(broken), definitions())
        memory = remember(tiny, ledger, START_S + 9.08 * DAY_S // 600 * 600)
        for _ in range(3):
            topology = memory.topology
            if broken:
                memory.topology = None  # type: ignore[assignment]
            with pytest.raises(AttributeError) if broken else nullcontext():
                memory.advance(tiny, memory.now_s + HOUR_S / 2, ignore)
            memory.topology = topology
        memory.advance(tiny, memory.now_s + 2 * STEP_S, ignore)
        found.append(memory.history())
    assert len(found[0].events.of(EventKind.LOST)) == 1
    assert_same_history(*found)


def test_a_day_read_again_is_what_a_restart_would_read(
    patchy: RecordedSource, tiny: RecordedSource, tmp_path: Path
) -> None:
    """Every seventh sample was late."""
    late = START_DAY + 7
    ledger = backfilled(patchy, tmp_path, range(START_DAY + 5, START_DAY + 9))
    memory = remember(patchy, ledger, START_S + 9.2 * DAY_S)
    # In another order than the ledger's, as a roster is that newcomers have joined at its end.
    backwards = np.arange(len(memory.gpus))[::-1].astype(np.intp)
    memory.roster = memory.roster.take(backwards)
    memory._renumber(backwards)
    digest_day(tiny, ledger, late, memory.now_s, STEP_S, 1024, tiny.placement())
    written, events = ledger.read(late, late)
    memory.replace_day(late, written, events, OnsetBins.joined(ledger.onset_bins(written.gpus, late, late)))
    column = memory.finished.days.tolist().index(late)
    np.testing.assert_allclose(memory.finished.completeness[:, column], 1.0)
    fresh = remember(patchy, ledger, memory.now_s)
    assert_same_history(memory.history().take(memory.roster.rows_of(fresh.gpus)), fresh.history())


def test_a_restart_has_the_bins_that_the_memory_drew(tiny: RecordedSource, tmp_path: Path) -> None:
    """Half of the fleet throttles on the last day, for want of flow; the roster is in another order than the ledger."""
    ledger = backfilled(tiny, tmp_path, range(START_DAY + 7, START_DAY + 9))
    memory = remember(tiny, ledger, START_S + 9.2 * DAY_S)
    backwards = np.arange(len(memory.gpus))[::-1].astype(np.intp)
    memory.roster = memory.roster.take(backwards)
    memory._renumber(backwards)
    run(memory, tiny, ledger, START_S + 10 * DAY_S)
    history = memory.history()
    assert [day_of(part) for part in history.onset_bins] == [START_DAY + day for day in (7, 8, 9)]
    assert all(part is kept for part, kept in zip(memory.history().onset_bins, history.onset_bins, strict=True))
    onsets = history.onset_bins[-1].where(history.onset_bins[-1].onset)
    throttled = history.events.of(EventKind.THERMAL_THROTTLE).row
    assert len(onsets) > 0
    assert np.isin(onsets.row, throttled).all()
    successor = remember(tiny, ledger, memory.now_s)
    rows = memory.roster.rows_of(successor.gpus)
    assert rows.tolist() != list(range(8))
    for part, twin in zip(history.onset_bins, successor.history().onset_bins, strict=True):
        assert_same_bins(part.take(rows), twin)


def test_bins_of_gpus_that_left_leave_and_the_others_follow_their_rows(tiny: RecordedSource, tmp_path: Path) -> None:
    ledger = backfilled(tiny, tmp_path, range(START_DAY + 8, START_DAY + 9))
    memory = remember(tiny, ledger, START_S + 9.01 * DAY_S)
    (before,) = memory.onset_bins
    rows = np.array([6, 2, -1, 3])
    memory.roster = replace(memory.roster, gpus=(*(memory.gpus[i] for i in (6, 2)), gpu("new"), memory.gpus[3]))
    memory._renumber(rows)
    (after,) = memory.onset_bins
    for now, then in ((0, 6), (1, 2), (3, 3)):
        own = before.row == then
        np.testing.assert_array_equal(after.x[after.row == now], before.x[own])
        assert own.any()
    assert set(after.row.tolist()) == {0, 1, 3}


def test_days_beyond_the_training_span_are_forgotten(tiny: RecordedSource, ledger: Ledger, tmp_path: Path) -> None:
    memory = remember(tiny, ledger, START_S + 1.9 * DAY_S)
    memory = short(memory, 7)
    memory.finished = replace(make_daily(memory.gpus, 9, {}), days=START_DAY - 8 + np.arange(9))
    (part,) = remember(tiny, backfilled(tiny, tmp_path, range(START_DAY, START_DAY + 1)), memory.now_s).onset_bins
    memory.onset_bins = tuple(replace(part, start_s=part.start_s + d * DAY_S) for d in range(-8, 1))
    memory.advance(tiny, START_S + 2.1 * DAY_S, ignore)
    memory.finish_days(ledger)
    assert memory.finished.days.tolist() == [START_DAY + d for d in range(-5, 2)]
    assert [day_of(part) for part in memory.onset_bins] == [START_DAY + d for d in range(-5, 2)]


# -- who comes and who goes -------------------------------------------------------------------------------------------


def gpu(device: str, slot: str = "", host: str = "n1") -> GpuId:
    return GpuId(device, host, "0", "NVIDIA H100 80GB HBM3", slot or f"slot-{device}")


class CooledSource(ArraySource):
    """Its nodes n1 and n2 have an inlet each and a loop each."""

    def placement(self) -> Placement | None:
        return Placement({"n1": {"cooling_loop": "l1"}, "n2": {"cooling_loop": "l2"}})


def cooled(source: ArraySource) -> CooledSource:
    """n1 with air of 25 degrees and all of its flow, n2 with 27 and 70 %; the inlets wander a little."""
    wander = np.sin(source.times_s / 7200.0).astype(np.float32)
    flow = np.array([[60.0], [42.0]], np.float32) + 0 * wander
    inlet = np.array([[25.0], [27.0]], np.float32) + wander
    surroundings = {
        Signal.INLET: PlaceSeries("node", ("n1", "n2"), inlet),
        Signal.COOLANT_FLOW: PlaceSeries("cooling_loop", ("l1", "l2"), flow),
        Signal.RATED_COOLANT_FLOW: PlaceSeries("cooling_loop", ("l1", "l2"), 60 + 0 * flow),
    }
    return CooledSource(**{**vars(source), "environment": surroundings})


def memory_through(
    source: ArraySource, ledger: Ledger, hours: float, departed_after_s: float = DAY_S, begin_h: float = 3.0
) -> FleetMemory:
    settings = settings_for(ledger.directory, departed_after_s=departed_after_s)
    memory = recall(source, ledger, START_S + begin_h * HOUR_S, settings, source.placement(), ignore)
    return run(memory, source, ledger, START_S + hours * HOUR_S)


def test_a_gpu_that_joins_leaves_the_rows_of_the_others_as_they_were(tmp_path: Path) -> None:
    gpus = (gpu("b"), gpu("a"), gpu("c"))
    alone, joined = (
        memory_through(
            steady_source(some, START_S, START_S + DAY_S, STEP_S, {"c": (START_S + 5 * HOUR_S, np.inf)}),
            Ledger(tmp_path / str(len(some)), definitions()),
            8.0,
        )
        for some in (gpus[:2], gpus)
    )
    assert [g.device_id for g in joined.gpus] == ["b", "a", "c"]
    assert_same_history(alone.history(), joined.history().take(np.array([0, 1])))
    newcomer = by_device(joined.history(), "c")
    assert np.isnan(newcomer.recent.get(Signal.POWER)[0, : -3 * 12]).all()
    assert newcomer.daily.exposure_h[0, -1] == pytest.approx(3.0, abs=0.1)


def test_a_newcomers_counters_begin_at_its_first_sample(ledger: Ledger) -> None:
    """Its lifetime totals are no news of today."""
    source = steady_source(
        (gpu("a"), gpu("b")), START_S, START_S + DAY_S, STEP_S, {"b": (START_S + 5 * HOUR_S, np.inf)}
    )
    memory = memory_through(source, ledger, 6.0)
    errors = by_device(memory.history(), "b").recent.get(Signal.SBE_AGGREGATE)[0]
    assert np.nansum(errors) == 1.0  # one an hour; not the half a million since 1970


@pytest.mark.parametrize(("device", "slot"), [("new", "bus-1"), ("c", "bus-2")])
def test_a_day_keeps_what_a_gpu_did_that_left_before_its_end(device: str, slot: str, tmp_path: Path) -> None:
    """By a swap, at once; or with its node, an hour after it had fallen silent."""
    until_s = START_S + 5.25 * HOUR_S
    gpus = (gpu("a"), gpu("old", "bus-1", "n2"), gpu(device, slot))
    there = {"old": (-np.inf, until_s), device: (until_s + 600, np.inf)}
    source = cooled(steady_source(gpus, START_S, START_S + 2 * DAY_S, STEP_S, there))
    lived, walked = (
        Ledger(tmp_path / "lived", definitions()),
        backfilled(source, tmp_path, range(START_DAY, START_DAY + 1)),
    )
    memory = memory_through(source, lived, 24.5, departed_after_s=HOUR_S)
    assert [g.device_id for g in memory.gpus] == ["a", device]
    assert memory.left is None
    (one, events), (other, others) = (ledger.read(START_DAY, START_DAY) for ledger in (lived, walked))
    order = [one.gpus.index(each) for each in other.gpus]
    assert {g.device_id for g in one.gpus} == {"a", "old", device}
    for name, values in columns(other).items():
        np.testing.assert_array_equal(columns(one)[name][order], values, err_msg=name)
    told = [
        {(log.gpus[r].device_id, s, k) for r, s, k in zip(e.row, e.start_s, e.kind, strict=True)}
        for log, e in ((one, events), (other, others))
    ]
    assert told[0] == told[1]
    (part,), (twin,) = (ledger.onset_bins(other.gpus, START_DAY, START_DAY) for ledger in (lived, walked))
    assert_same_bins(part, twin)
    assert np.isin(np.arange(3), part.row).all()
    inlet, flow = ONSET_COVARIATES.index("inlet_celsius"), ONSET_COVARIATES.index("flow_deficit_ratio")
    gone = other.gpus.index(gpus[1])
    assert twin.x[twin.row == gone, inlet] == pytest.approx(2, abs=1)
    assert twin.x[twin.row == gone, flow] == pytest.approx(0.3)


def test_the_bins_of_a_day_keep_those_of_a_gpu_that_was_swapped(tmp_path: Path) -> None:
    """It leaves at once, in the middle of ten minutes that are not over yet."""
    until_s = START_S + 5 * HOUR_S + 1200.0
    gpus = (gpu("a"), gpu("old", "bus-1", "n2"), gpu("new", "bus-1", "n2"))
    there = {"old": (-np.inf, until_s), "new": (until_s, np.inf)}
    source = cooled(steady_source(gpus, START_S, START_S + 2 * DAY_S, STEP_S, there))
    lived, walked = (
        Ledger(tmp_path / "lived", definitions()),
        backfilled(source, tmp_path, range(START_DAY, START_DAY + 1)),
    )
    memory_through(source, lived, 24.5)
    (one, _), (other, _) = (ledger.read(START_DAY, START_DAY) for ledger in (lived, walked))
    assert one.gpus == other.gpus
    np.testing.assert_array_equal(one.get("inlet_q95_celsius"), other.get("inlet_q95_celsius"))
    (part,), (twin,) = (ledger.onset_bins(one.gpus, START_DAY, START_DAY) for ledger in (lived, walked))
    assert_same_bins(part, twin)
    assert twin.start_s[twin.row == one.gpus.index(gpus[1])].max() == START_S + 5 * HOUR_S + 600.0


def test_what_a_gpu_did_after_midnight_is_kept_when_an_outage_hides_the_midnight(tmp_path: Path) -> None:
    """One step over midnight finishes the day and lets the swapped GPU go, with half an hour of the new day."""
    midnight_s = START_S + DAY_S
    gpus = (gpu("a"), gpu("old", "bus-1"), gpu("new", "bus-1"))
    until_s = midnight_s + 1800.0
    source = steady_source(
        gpus, START_S, START_S + 3 * DAY_S, STEP_S, {"old": (-np.inf, until_s), "new": (until_s, np.inf)}
    )
    ledger = Ledger(tmp_path, definitions())
    memory = recall(source, ledger, midnight_s - HOUR_S, settings_for(tmp_path), None, ignore)
    memory.advance(source, midnight_s + HOUR_S, ignore)
    assert memory.finish_days(ledger) == [START_DAY]
    run(memory, source, ledger, START_S + 2 * DAY_S + STEP_S)
    second, _ = ledger.read(START_DAY + 1, START_DAY + 1)
    exposure = dict(zip([g.device_id for g in second.gpus], second.exposure_h[:, 0].tolist(), strict=True))
    assert exposure == pytest.approx({"a": 24.0, "old": 0.5, "new": 23.5})


def test_a_swapped_gpu_leaves_and_the_newcomer_inherits_nothing(ledger: Ledger) -> None:
    at_s = START_S + 5 * HOUR_S
    gpus = (gpu("a"), gpu("old", "bus-1"), gpu("new", "bus-1"))
    source = steady_source(gpus, START_S, START_S + DAY_S, STEP_S, {"old": (-np.inf, at_s), "new": (at_s, np.inf)})
    memory = memory_through(source, ledger, 6.0)
    assert [g.device_id for g in memory.gpus] == ["a", "new"]
    history = memory.history()
    assert history.daily.exposure_h[:, -1].tolist() == pytest.approx([6.0, 1.0], abs=0.1)
    events = by_device(history, "new").events
    assert (events.kind.tolist(), events.start_s.tolist()) == ([EventKind.SWAP], [at_s + STEP_S])


def test_a_gpu_lost_beside_a_live_node_stays_in_sight(ledger: Ledger) -> None:
    source = steady_source((gpu("a"), gpu("b")), START_S, START_S + DAY_S, STEP_S, {"b": (-np.inf, START_S + HOUR_S)})
    memory = memory_through(source, ledger, 6.0, departed_after_s=HOUR_S)
    assert [g.device_id for g in memory.gpus] == ["a", "b"]
    lost = memory.events.of(EventKind.LOST)
    assert [(memory.gpus[int(row)].device_id, at_s) for row, at_s in zip(lost.row, lost.start_s, strict=True)] == [
        ("b", START_S + HOUR_S + 3 * STEP_S)
    ]


def test_a_node_that_is_gone_departs_and_the_others_keep_their_rows(tmp_path: Path) -> None:
    gpus = (gpu("a"), gpu("x", host="n2"), gpu("b"))
    gone = {"x": (-np.inf, START_S + 4 * HOUR_S)}
    source = steady_source(gpus, START_S, START_S + DAY_S, STEP_S, gone)
    before = memory_through(source, Ledger(tmp_path / "1", definitions()), 4.5, departed_after_s=HOUR_S)
    assert [g.device_id for g in before.gpus] == ["a", "x", "b"]
    after = memory_through(source, Ledger(tmp_path / "2", definitions()), 6.0, departed_after_s=HOUR_S)
    assert [g.device_id for g in after.gpus] == ["a", "b"]
    calm = steady_source((gpus[0], gpus[2]), START_S, START_S + DAY_S, STEP_S)
    assert_same_history(
        after.history(), memory_through(calm, Ledger(tmp_path / "3", definitions()), 6.0, HOUR_S).history()
    )


def test_an_empty_source_gives_an_empty_memory(ledger: Ledger) -> None:
    source = steady_source((), START_S, START_S + DAY_S, STEP_S)
    memory = remember(source, ledger, START_S + HOUR_S)
    assert memory.history().gpus == ()
    memory.advance(source, START_S + 2 * HOUR_S, ignore)
    assert memory.finish_days(ledger) == []


# -- ledgers in memory ------------------------------------------------------------------------------------------------


def test_days_are_joined_and_the_later_report_of_a_day_stands() -> None:
    gpus = make_gpus(2)
    power = {"power_q95_watts": np.array([[1.0, 2.0], [3.0, 4.0]], np.float32)}
    before = make_daily(gpus, 2, power)
    newer = {"power_q95_watts": np.array([[9.0], [8.0]], np.float32)}
    after = replace(make_daily(gpus, 1, newer), unfinished=True)
    joined = joined_days(before, after)
    assert (joined.days.tolist(), joined.unfinished) == (before.days.tolist(), True)
    np.testing.assert_array_equal(joined.get("power_q95_watts"), [[1, 9], [3, 8]])
    assert joined_days(empty_ledger(gpus), before).days.tolist() == before.days.tolist()
