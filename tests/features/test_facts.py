"""What has happened and still holds: open events, terminal facts, lost GPUs, and what a domain's heat excuses."""

import numpy as np
import pytest

from healthsvc.features.facts import OPEN_FOR_S, class_events, domain_throttling, facts, hourly_dose, lost
from healthsvc.fleet import CLASSES, EventKind, EventLog, FleetHistory, FleetWindow, Floats, Signal
from tests.histories import NOW_S, flat_window, make_events, make_history

THERMAL, MEMORY, DEVICE = (CLASSES.index(name) for name in ("thermal", "memory", "device_loss"))
HOUR_S = 3600.0


def with_rows(window: FleetWindow, signal: Signal, rows: dict[int, float]) -> FleetWindow:
    """`signal` as it is, but constant in `rows`; 0 elsewhere if it was absent."""
    array: Floats = np.nan_to_num(window.get(signal)).copy()
    for row, value in rows.items():
        array[row] = value
    return FleetWindow(window.gpus, window.times_s, {**window.values, signal: array})


def silent(window: FleetWindow, rows: list[int], columns: slice = slice(-10, None)) -> FleetWindow:
    values = {s: v.copy() for s, v in window.values.items()}
    for array in values.values():
        array[rows, columns] = np.nan
    return FleetWindow(window.gpus, window.times_s, values)


def history_of(*events: tuple[int, float, EventKind, float], window: FleetWindow | None = None) -> FleetHistory:
    return make_history(window or flat_window(4), events=make_events(*events))


def ago(hours: float) -> float:
    return NOW_S - hours * HOUR_S


@pytest.mark.parametrize(
    ("event", "column"),
    [
        ((EventKind.XID, 48.0), MEMORY),
        ((EventKind.XID, 94.0), MEMORY),
        ((EventKind.DOUBLE_BIT_ERROR, 1.0), MEMORY),
        ((EventKind.UNCORRECTABLE_REMAP, 1.0), MEMORY),
        ((EventKind.XID, 79.0), DEVICE),
        ((EventKind.XID, 119.0), DEVICE),
    ],
)
def test_a_service_event_is_open_until_the_driver_reloads(event: tuple[EventKind, float], column: int) -> None:
    struck = facts(history_of((1, ago(5), *event)))
    assert np.argwhere(struck.open_events).tolist() == [[1, column]]
    assert not struck.terminal.any()
    reset = facts(history_of((1, ago(5), *event), (1, ago(4), EventKind.DRIVER_RELOAD, 1.0)))
    assert not reset.open_events.any()
    again = facts(history_of((1, ago(5), *event), (1, ago(6), EventKind.DRIVER_RELOAD, 1.0)))
    assert again.open_events[1, column]


def test_a_return_after_an_absence_closes_and_a_week_without_news_lapses() -> None:
    back = facts(history_of((1, ago(5), EventKind.XID, 79.0), (1, ago(4), EventKind.GAP, 1.0)))
    assert not back.open_events.any()
    old = (OPEN_FOR_S + 60) / HOUR_S
    assert not facts(history_of((1, ago(old), EventKind.XID, 79.0))).open_events.any()


def test_application_faults_are_no_evidence_against_the_hardware() -> None:
    found = facts(history_of((0, ago(1), EventKind.XID, 31.0), (0, ago(1), EventKind.XID, 13.0)))
    assert not found.open_events.any()


def test_an_event_of_the_future_is_not_known() -> None:
    assert not facts(history_of((1, ago(-1), EventKind.XID, 79.0))).open_events.any()


@pytest.mark.parametrize("event", [(EventKind.XID, 64.0), (EventKind.REMAP_FAILURE, 1.0)])
def test_a_failed_remap_is_terminal_and_no_reload_closes_it(event: tuple[EventKind, float]) -> None:
    found = facts(history_of((2, ago(400), *event), (2, ago(5), EventKind.DRIVER_RELOAD, 1.0)))
    assert np.argwhere(found.terminal).tolist() == [[2, MEMORY]]
    assert found.open_events[2, MEMORY]


@pytest.mark.parametrize("signal", [Signal.REMAP_FAILURE, Signal.SRAM_THRESHOLD, Signal.UNREPAIRABLE])
def test_a_flag_that_memory_is_beyond_repair_is_terminal_without_any_event(signal: Signal) -> None:
    window = with_rows(flat_window(4), signal, {3: 1.0})
    assert np.argwhere(facts(history_of(window=window)).terminal).tolist() == [[3, MEMORY]]


OFF_BUS, RELOAD = (EventKind.XID, 79.0), (EventKind.DRIVER_RELOAD, 1.0)


@pytest.mark.parametrize(
    ("days_ago", "terminal"),
    [
        ([(10, OFF_BUS), (9, RELOAD), (1, OFF_BUS)], True),
        ([(10, OFF_BUS), (9, (EventKind.LOST, 1.0)), (1, OFF_BUS)], True),
        ([(10, OFF_BUS), (1, OFF_BUS)], False),  # never reset in between
        ([(30, OFF_BUS), (29, RELOAD), (1, OFF_BUS)], False),  # four weeks of peace
        ([(9, RELOAD), (1, OFF_BUS)], False),  # the first time
        ([(90, OFF_BUS), (10, OFF_BUS), (9, RELOAD), (1, OFF_BUS)], True),
        ([(10, OFF_BUS), (9, RELOAD), (3, OFF_BUS), (2, RELOAD)], True),  # one more reboot does not heal it
        ([(80, OFF_BUS), (75, (EventKind.LOST, 1.0)), (70, OFF_BUS)], False),  # it has worked for two months since
    ],
)
def test_off_the_bus_again_within_two_weeks_of_a_reboot_is_terminal(
    days_ago: list[tuple[float, tuple[EventKind, float]]], terminal: bool
) -> None:
    other = (0, ago(48), *RELOAD)  # on another GPU
    found = facts(history_of(other, *((1, ago(24 * days), *event) for days, event in days_ago)))
    assert found.terminal[:, DEVICE].tolist() == [False, terminal, False, False]


def test_a_gpu_silent_beside_its_node_is_lost_since_it_was_last_seen() -> None:
    window = silent(flat_window(4), [2])
    gone_s = NOW_S - 9 * 60
    found = facts(history_of((2, gone_s, EventKind.LOST, 1.0), window=window))
    assert found.lost_s[2] == gone_s - 3 * 60  # the event stands at the third missed sample, which proves it
    assert np.isnan(np.delete(found.lost_s, 2)).all()
    assert np.argwhere(found.open_events).tolist() == [[2, DEVICE]]


def test_a_whole_silent_node_is_not_lost() -> None:
    window = silent(flat_window(4, per_node=2), [2, 3])
    assert not lost(make_history(window)).any()
    assert np.isnan(facts(make_history(window)).lost_s).all()


def test_a_gpu_that_was_lost_and_answers_again_is_not_open() -> None:
    assert not facts(history_of((2, ago(30), EventKind.LOST, 1.0))).open_events.any()


def test_a_thermal_dose_of_its_own_is_a_service_event_and_hardware_slowdown_makes_it_terminal() -> None:
    window = with_rows(flat_window(4), Signal.SOFTWARE_THERMAL_THROTTLE, {0: 20.0, 1: 20.0, 2: 17.0})
    window = with_rows(window, Signal.HARDWARE_THERMAL_THROTTLE, {1: 4.0})
    found = facts(make_history(window))
    assert np.argwhere(found.open_events).tolist() == [[0, THERMAL], [1, THERMAL]]
    assert np.argwhere(found.terminal).tolist() == [[1, THERMAL]]


def test_a_gpu_whose_domain_throttles_is_not_blamed_for_its_heat() -> None:
    window = with_rows(flat_window(4), Signal.SOFTWARE_THERMAL_THROTTLE, {0: 30.0, 1: 30.0, 2: 30.0})
    window = with_rows(window, Signal.HARDWARE_THERMAL_THROTTLE, {0: 10.0})
    assert not facts(make_history(window)).open_events.any()


def test_the_domain_may_be_a_rack_of_several_nodes() -> None:
    window = with_rows(flat_window(8, per_node=2), Signal.SOFTWARE_THERMAL_THROTTLE, {0: 30.0, 2: 30.0, 4: 30.0})
    alone = make_history(window)
    assert facts(alone).open_events[[0, 2, 4], THERMAL].all()
    racked = make_history(window, racks={f"node-{n:02d}": "r1" for n in range(4)})
    assert not facts(racked).open_events.any()
    assert domain_throttling(hourly_dose(racked) > 0.25, racked.topology).tolist() == [
        True,
        False,
        True,
        False,
        True,
        *[False] * 3,
    ]


def test_a_dose_is_a_share_of_the_last_hour_and_nan_if_not_observed() -> None:
    window = silent(with_rows(flat_window(2), Signal.SOFTWARE_THERMAL_THROTTLE, {0: 6.0}), [1], slice(None))
    np.testing.assert_allclose(hourly_dose(make_history(window)), [0.1, np.nan])


def test_classes_and_grades_choose_their_events() -> None:
    log = make_events(
        (0, 1.0, EventKind.XID, 48.0),
        (0, 2.0, EventKind.XID, 64.0),
        (0, 3.0, EventKind.XID, 63.0),
        (0, 4.0, EventKind.XID, 79.0),
        (0, 5.0, EventKind.DOUBLE_BIT_ERROR, 1.0),
        (0, 6.0, EventKind.REMAP_FAILURE, 1.0),
        (0, 7.0, EventKind.LOST, 1.0),
        (0, 8.0, EventKind.THERMAL_THROTTLE, 0.5),
    )

    def starts(failure_class: str, *grades: str) -> list[float]:
        chosen: EventLog = class_events(log, failure_class, grades)
        return [float(s) for s in chosen.start_s]

    assert starts("memory", "T2") == [1, 5]
    assert starts("memory", "T1") == [2, 6]
    assert starts("memory", "P") == [3]
    assert starts("device_loss", "T1", "T2") == [4, 7]
    assert starts("thermal", "T1", "T2") == []
