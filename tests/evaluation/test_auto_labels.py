"""Labels from telemetry alone: doses gathered window by window, single GPUs, domains, and a whole simulated fleet."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.engine.digest import digest_span, read_span
from healthsvc.evaluation.auto_labels import HourlyDose, auto_labels
from healthsvc.evaluation.auto_labels.dose import Cells
from healthsvc.evaluation.labels import Label, read_labels
from healthsvc.fleet import (
    DAY_S,
    HOUR_S,
    OPEN,
    DailyLedger,
    EventKind,
    FleetHistory,
    FleetWindow,
    GpuId,
    Placement,
    Signal,
    build_topology,
)
from healthsvc.simulator.writer import write_recording
from healthsvc.telemetry.recorded import RecordedSource
from tests.histories import NOW_S, flat_window, make_daily, make_events, make_gpus, make_history, make_window
from tests.simulator.runs import START_S, STEADY, scenario

Event = tuple[int, float, EventKind, float]


def ago(hours: float) -> float:
    return NOW_S - hours * HOUR_S


def dose_of(shares: Mapping[tuple[int, int], float], gpus: int = 8, hardware: float = 0.0) -> HourlyDose:
    """{(row, hours ago that the hour began): share of that hour}; the throttling begins with the hour."""
    cells = sorted(shares)
    row, back = np.array([r for r, _ in cells], np.int32), np.array([b for _, b in cells])
    hour = (NOW_S // HOUR_S - back).astype(np.int64)
    seconds = np.array([shares[cell] for cell in cells]) * HOUR_S
    slow = np.full(len(cells), hardware * HOUR_S)
    return HourlyDose(make_gpus(gpus), (Cells(row, hour, seconds, slow, hour.astype(np.float64) * HOUR_S),), NOW_S)


def labels_of(
    *events: Event,
    dose: HourlyDose | None = None,
    window: FleetWindow | None = None,
    racks: Mapping[str, str] | None = None,
    until_s: float = NOW_S,
) -> tuple[Label, ...]:
    history = make_history(window or flat_window(8), events=make_events(*events), racks=racks)
    return auto_labels(history, dose or HourlyDose(), until_s)


def told(labels: Sequence[Label]) -> list[tuple[str, str, str]]:
    return [(label.scope, label.failure_class, label.grade) for label in labels]


def the(labels: Sequence[Label]) -> Label:
    (label,) = labels
    return label


# --- the dose


def test_the_dose_is_the_share_of_the_clock_hour_in_both_kinds_of_throttling() -> None:
    software, hardware = np.zeros((2, 120)), np.zeros((2, 120))
    software[0, 59:70] = 60.0  # one minute of the first hour, ten of the second
    hardware[0, 60:75] = 30.0
    window = make_window({Signal.SOFTWARE_THERMAL_THROTTLE: software, Signal.HARDWARE_THERMAL_THROTTLE: hardware})
    dose = HourlyDose().add(window).cells()
    assert dose.row.tolist() == [0, 0]
    assert dose.hour.tolist() == [int(NOW_S // HOUR_S) - 2, int(NOW_S // HOUR_S) - 1]
    assert dose.thermal_s.tolist() == [60.0, 10 * 60.0 + 5 * 30.0]  # no more than a minute counts in a minute
    assert dose.hardware_s.tolist() == [0.0, 450.0]
    assert dose.onset_s.tolist() == [NOW_S - HOUR_S - 60.0, NOW_S - HOUR_S]


@given(st.lists(st.integers(2, 119), max_size=5), st.integers(0, 30), st.integers(0, 2**32 - 1))
def test_windows_that_overlap_give_the_dose_of_the_whole(cuts: list[int], overlap: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    seconds = np.where(rng.random((3, 120)) < 0.1, 30.0, 0.0)
    seconds[rng.random((3, 120)) < 0.1] = np.nan
    seconds[:, 0] = 0.0  # a GPU that reports, reports in every cut
    window = make_window({Signal.CLOCK_EVENT_REASONS: np.where(seconds > 0, 0x20, seconds)})
    whole, pieces, start = HourlyDose().add(window), HourlyDose(), 0
    for cut in [*sorted(set(cuts)), 120]:
        pieces = pieces.add(window.columns(slice(max(start - overlap, 0), cut)))
        start = cut
    for piece, column in zip(pieces.cells(), whole.cells(), strict=True):
        np.testing.assert_array_equal(piece, column)


def test_a_long_hot_spell_is_kept_in_few_parts_of_one_cell_a_gpu_and_hour() -> None:
    hot = make_window({Signal.CLOCK_EVENT_REASONS: np.full((3, 120), 0x20)})
    dose = HourlyDose()
    for day in range(30):
        for column in range(1, 120):
            times = hot.times_s[column - 1 : column + 1] + day * DAY_S
            values = {signal: v[:, column - 1 : column + 1] for signal, v in hot.values.items()}
            dose = dose.add(FleetWindow(hot.gpus, times, values))
    sizes = [len(part.row) for part in dose.parts]
    assert all(later < earlier / 2 for earlier, later in pairwise(sizes))
    assert sum(sizes) < 2 * len(dose.cells().row) == 2 * 30 * 2 * 3


def test_a_dose_follows_its_gpu_when_rows_move_and_gpus_come() -> None:
    seconds = np.zeros((4, 60))
    seconds[2] = 60.0
    window = make_window({Signal.SOFTWARE_THERMAL_THROTTLE: seconds}, end_s=NOW_S - HOUR_S)
    later = make_window({Signal.SOFTWARE_THERMAL_THROTTLE: np.full((1, 60), 60.0)})
    stranger = (GpuId("GPU-new", "node-09", "0"),)
    dose = HourlyDose().add(window.take(window.gpus[2:], np.array([2, 3])))
    dose = dose.add(FleetWindow(stranger, later.times_s, later.values))
    heat = dose.matrix((*stranger, *window.gpus))
    assert heat.hours.tolist() == [int(NOW_S // HOUR_S) - 2, int(NOW_S // HOUR_S) - 1]
    assert np.argwhere(heat.hot).tolist() == [[0, 1], [3, 0]]


def test_an_hour_that_is_not_over_does_not_count() -> None:
    assert labels_of(dose=dose_of({(1, 1): 0.5}), until_s=NOW_S - 1.0) == ()
    assert told(labels_of(dose=dose_of({(1, 1): 0.5}))) == [("GPU-001", "thermal", "T2")]


# --- thermal


def test_less_than_the_dose_is_no_event() -> None:
    assert labels_of(dose=dose_of({(1, 5): 0.29})) == ()


def test_the_dose_of_one_gpu_is_thermal_and_ends_after_a_calm_day() -> None:
    label = the(labels_of(dose=dose_of({(1, 40): 0.3, (1, 30): 0.9})))
    assert label == Label("GPU-001", ago(40), ago(29), "thermal", "T2", "auto", None, "", "30 % of the hour throttled")


def test_a_thermal_event_of_today_goes_on() -> None:
    assert the(labels_of(dose=dose_of({(1, 10): 0.4}))).end_s == OPEN


def test_hardware_slowdown_makes_it_terminal() -> None:
    label = the(labels_of(dose=dose_of({(1, 40): 0.4}, hardware=0.06)))
    assert (label.grade, label.end_s) == ("T1", OPEN)


def test_doses_more_than_a_day_apart_are_two_events() -> None:
    assert len(labels_of(dose=dose_of({(1, 40): 0.4, (1, 15): 0.4}))) == 2
    assert len(labels_of(dose=dose_of({(1, 40): 0.4, (1, 16): 0.4}))) == 1


# --- memory


@pytest.mark.parametrize(
    ("kind", "value", "grade"),
    [
        (EventKind.XID, 48.0, "T2"),
        (EventKind.XID, 94.0, "T2"),
        (EventKind.XID, 64.0, "T1"),
        (EventKind.DOUBLE_BIT_ERROR, 1.0, "T2"),
        (EventKind.UNCORRECTABLE_REMAP, 1.0, "T2"),
        (EventKind.REMAP_FAILURE, 1.0, "T1"),
    ],
)
def test_memory_events_have_their_grade(kind: EventKind, value: float, grade: str) -> None:
    assert told(labels_of((2, ago(3), kind, value))) == [("GPU-002", "memory", grade)]


@pytest.mark.parametrize(
    ("kind", "value"),
    [(EventKind.XID, 63.0), (EventKind.XID, 13.0), (EventKind.CORRECTABLE_REMAP, 1.0), (EventKind.REMAP_PENDING, 1.0)],
)
def test_precursors_and_application_errors_are_no_events(kind: EventKind, value: float) -> None:
    assert labels_of((2, ago(3), kind, value)) == ()


def test_an_error_that_grows_into_a_failed_remap_is_a_t2_and_a_t1() -> None:
    labels = labels_of((2, ago(30), EventKind.XID, 48.0), (2, ago(10), EventKind.REMAP_FAILURE, 1.0))
    assert [(label.grade, label.start_s, label.end_s) for label in labels] == [
        ("T2", ago(30), OPEN),
        ("T1", ago(10), OPEN),
    ]


def test_a_t2_at_the_moment_of_its_t1_is_not_told_twice() -> None:
    labels = labels_of((2, ago(10), EventKind.DOUBLE_BIT_ERROR, 1.0), (2, ago(10), EventKind.REMAP_FAILURE, 1.0))
    assert told(labels) == [("GPU-002", "memory", "T1")]


def test_a_memory_event_ends_with_the_reset_or_lapses_after_a_week() -> None:
    error = (2, ago(300), EventKind.XID, 48.0)
    assert the(labels_of(error, (2, ago(290), EventKind.DRIVER_RELOAD, 1.0))).end_s == ago(290)
    assert the(labels_of(error)).end_s == ago(300) + 7 * DAY_S
    assert the(labels_of((2, ago(100), EventKind.XID, 48.0))).end_s == OPEN
    assert the(labels_of(error, (3, ago(290), EventKind.DRIVER_RELOAD, 1.0))).end_s == ago(300) + 7 * DAY_S


def test_errors_within_a_day_of_each_other_are_one_event() -> None:
    errors = [(2, ago(at), EventKind.DOUBLE_BIT_ERROR, 1.0) for at in (90, 70, 50, 20)]
    assert [label.start_s for label in labels_of(*errors)] == [ago(90), ago(20)]


# --- device loss


def test_a_gpu_gone_beside_its_live_node_is_lost_and_a_whole_node_is_not() -> None:
    assert told(labels_of((1, ago(3), EventKind.LOST, 1.0))) == [("GPU-001", "device_loss", "T2")]
    assert labels_of(*((row, ago(3), EventKind.GAP, 1.0) for row in range(8))) == ()


def test_an_xid_and_the_silence_after_it_are_one_loss() -> None:
    label = the(labels_of((1, ago(3), EventKind.XID, 79.0), (1, ago(2.9), EventKind.LOST, 1.0)))
    assert (label.grade, label.start_s, label.note) == ("T2", ago(3), "XID 79")


def test_the_same_again_within_two_weeks_of_the_reboot_is_terminal() -> None:
    def second(back_h: float, reload_h: float, code: float = 79.0) -> str:
        first = (1, ago(900), EventKind.XID, 79.0)
        reload = (1, ago(reload_h), EventKind.DRIVER_RELOAD, 1.0)
        return labels_of(first, reload, (1, ago(back_h), EventKind.XID, code))[-1].grade

    assert second(back_h=600, reload_h=890) == "T1"
    assert second(back_h=500, reload_h=890) == "T2"  # more than 14 days after
    assert second(back_h=600, reload_h=890, code=74.0) == "T2"  # something else
    assert second(back_h=600, reload_h=300) == "T2"  # no reboot in between


def test_a_reboot_long_after_the_cure_does_not_make_an_old_loss_recur() -> None:
    events = [(1, ago(at), kind, 79.0) for at, kind in ((2000, EventKind.XID), (1990, EventKind.DRIVER_RELOAD))]
    events += [(1, ago(310), EventKind.DRIVER_RELOAD, 1.0), (1, ago(300), EventKind.XID, 79.0)]
    assert [label.grade for label in labels_of(*events)] == ["T2", "T2"]


def test_a_gpu_that_vanishes_a_second_time_must_have_come_back() -> None:
    labels = labels_of((1, ago(200), EventKind.LOST, 1.0), (1, ago(100), EventKind.LOST, 1.0))
    assert [label.grade for label in labels] == ["T2", "T1"]


def test_a_flapping_exporter_is_one_loss_and_not_terminal() -> None:
    labels = labels_of(*((1, ago(100 - i), EventKind.LOST, 1.0) for i in range(5)))
    assert [label.grade for label in labels] == ["T2"]


def test_a_gpu_that_is_gone_still_does_not_end() -> None:
    window = flat_window(8)
    values = {signal: array.copy() for signal, array in window.values.items()}
    for array in values.values():
        array[1, -10:] = np.nan
    gone = FleetWindow(window.gpus, window.times_s, values)
    loss = (1, ago(300), EventKind.LOST, 1.0)
    assert the(labels_of(loss, window=gone)).end_s == OPEN
    assert the(labels_of(loss)).end_s == ago(300) + 7 * DAY_S


def test_a_lost_gpu_whose_socket_another_one_took_is_replaced() -> None:
    old = make_gpus(8)
    gpus = (*old, GpuId("GPU-new", old[1].hostname, old[1].index, old[1].product))
    daily = make_daily(gpus, 10, {})
    exposure = np.array(daily.exposure_h)
    exposure[1, 6:], exposure[8, :7] = 0.0, 0.0
    daily = DailyLedger(gpus, daily.days, {}, exposure, daily.completeness)
    window = make_window({Signal.GPU_TEMPERATURE: np.full((9, 120), 60.0)})
    window = FleetWindow(gpus, window.times_s, window.values)
    history = make_history(window, daily, make_events((1, ago(100), EventKind.LOST, 1.0)))
    label = the(auto_labels(history, HourlyDose(), NOW_S))
    assert (label.grade, label.end_s, label.note) == ("T1", OPEN, "silent while its node answers, then replaced")


def test_what_lies_after_the_end_is_not_looked_at() -> None:
    events = [(1, ago(30), EventKind.XID, 79.0), (2, ago(5), EventKind.XID, 48.0)]
    assert told(labels_of(*events, until_s=ago(20))) == [("GPU-001", "device_loss", "T2")]


# --- domains


def test_three_of_a_node_in_one_hour_are_the_nodes_throttling_and_nobodys_own() -> None:
    dose = dose_of({(row, back): 0.5 for row in (0, 1, 2) for back in (6, 5)})
    label = the(labels_of(dose=dose))
    assert told([label]) == [("node:node-00", "throttling", "T2")]
    assert (label.start_s, label.end_s, label.note) == (ago(6), ago(4), "3 of 8 GPUs throttled by heat")


def test_two_of_a_node_or_three_in_different_hours_throttle_on_their_own() -> None:
    two = labels_of(dose=dose_of({(0, 6): 0.5, (1, 6): 0.5}))
    apart = labels_of(dose=dose_of({(0, 6): 0.5, (1, 5): 0.5, (2, 4): 0.5}))
    assert {label.failure_class for label in (*two, *apart)} == {"thermal"}


def rack_labels(rows: Sequence[int], per_node: int = 4) -> tuple[Label, ...]:
    gpus = make_gpus(16, per_node)
    racks = {gpu.hostname: "r1" if int(gpu.hostname[-2:]) < 2 else "r2" for gpu in gpus}
    cells = dose_of({(row, 6): 0.5 for row in rows}, gpus=16)
    return labels_of(dose=cells, window=flat_window(16, per_node=per_node), racks=racks)


def test_a_label_sits_on_the_smallest_domain_that_holds_most_of_the_hit() -> None:
    assert the(rack_labels([0, 1, 2, 3])).scope == "node:node-00"
    assert the(rack_labels([0, 1, 2, 3, 4])).scope == "node:node-00"  # 80 %
    assert the(rack_labels([0, 1, 2, 4, 5])).scope == "rack:r1"
    assert the(rack_labels([0, 4, 5])).scope == "rack:r1"


def test_two_racks_are_two_incidents() -> None:
    assert [label.scope for label in rack_labels([0, 1, 2, 8, 9, 10])] == ["node:node-00", "node:node-02"]


def test_an_incident_that_spreads_is_one_on_the_larger_domain() -> None:
    cells = {(row, 6): 0.5 for row in (0, 1, 2)} | {(row, 5): 0.5 for row in range(8)}
    racks = {f"node-0{i}": "r1" for i in range(2)}
    labels = labels_of(dose=dose_of(cells), window=flat_window(8, per_node=4), racks=racks)
    assert (the(labels).scope, the(labels).start_s) == ("rack:r1", ago(6))


def test_throttling_within_a_day_is_one_incident_and_later_another() -> None:
    def starts(*hours_ago: int) -> list[float]:
        cells = {(row, back): 0.5 for row in (0, 1, 2) for back in hours_ago}
        return [label.start_s for label in labels_of(dose=dose_of(cells))]

    assert starts(40, 20) == [ago(40)]
    assert starts(40, 10) == [ago(40), ago(10)]


def test_throttling_in_the_newest_hour_goes_on() -> None:
    assert the(labels_of(dose=dose_of({(row, 1): 0.5 for row in (0, 1, 2)}))).end_s == OPEN


def brakes(*rows: int) -> tuple[Label, ...]:
    window = flat_window(8, per_node=2)
    events = make_events(*((row, ago(3) + 60 * row, EventKind.POWER_BRAKE, 0.5) for row in rows))
    placement = Placement({gpu.hostname: {"power_feed": "feed-a"} for gpu in window.gpus})
    empty = make_daily(window.gpus, 0, {})
    history = FleetHistory(window, empty, events, build_topology(window.gpus, placement))
    return auto_labels(history, HourlyDose(), NOW_S)


def test_a_power_brake_on_three_nodes_is_a_throttling_of_their_feed() -> None:
    assert told(brakes(0, 2, 4)) == [("power_feed:feed-a", "throttling", "T2")]
    assert brakes(0, 1, 2, 3) == ()  # four GPUs of two nodes


# --- the whole


@pytest.fixture(scope="module")
def recording(tmp_path_factory: pytest.TempPathFactory) -> Path:
    faults: list[dict[str, Any]] = [
        {"kind": "tim_drift", "target": 3, "start_day": 0.5, "growth_percent_per_day": 20.0},
        {"kind": "hbm_wear", "target": 5, "start_day": 0.2, "days_to_failure": 3.0, "remaps": 4},
        {"kind": "sudden_dbe", "target": 6, "start_day": 1.0},
        {"kind": "off_bus", "target": 17, "start_day": 1.0, "end_day": 1.5},
        {"kind": "off_bus", "target": 17, "start_day": 3.0, "end_day": 3.5},
        {"kind": "off_bus", "target": 18, "start_day": 3.0},
        {"kind": "loop_flow_loss", "target": "loop-1", "start_day": 2.0, "end_day": 2.25},
    ]
    folder = tmp_path_factory.mktemp("recording")
    fleet = {"gpus": 32, "nodes_per_rack": 1, "racks_per_loop": 2}
    return write_recording(scenario(*faults, days=4, fleet=fleet, workload=STEADY), folder, 1, START_S)


def recorded_labels(folder: Path) -> tuple[Label, ...]:
    source = RecordedSource(folder)
    start_s, end_s = source.span()
    digest = digest_span(source, start_s, end_s, 60.0, DAY_S, source.placement())
    dose, recent = HourlyDose(), None
    for _, recent in read_span(source, start_s, end_s, 60.0, 6 * HOUR_S):
        dose = dose.add(recent)
    assert recent is not None
    number = {gpu.device_id: row for row, gpu in enumerate(recent.gpus)}
    window = recent.take(digest.gpus, np.array([number.get(gpu.device_id, -1) for gpu in digest.gpus]))
    topology = build_topology(digest.gpus, source.placement())
    history = FleetHistory(window, make_daily(digest.gpus, 0, {}), digest.events, topology)
    return auto_labels(history, dose, end_s)


def test_labels_from_a_recording_agree_with_what_was_simulated(recording: Path) -> None:
    found, truth = recorded_labels(recording), read_labels(recording / "incidents.csv")
    assert sorted(told(found)) == sorted(told(truth))
    starts = {key: label.start_s for key, label in zip(told(truth), truth, strict=True)}
    assert len(starts) == len(truth)
    for key, label in zip(told(found), found, strict=True):
        assert abs(label.start_s - starts[key]) <= 120.0, key


def test_no_telemetry_gives_no_labels() -> None:
    assert labels_of() == ()
