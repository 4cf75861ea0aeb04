"""Which episodes a window of telemetry holds, and which it only seems to hold."""

import numpy as np
import pytest

from healthsvc.features.events import LEAD_IN_S, detect_events
from healthsvc.fleet import EventKind, EventLog, FleetWindow, Floats, Signal
from tests.histories import NOW_S, flat_window, make_window

NAN = np.nan


def seen(window: FleetWindow, since_s: float = -np.inf) -> EventLog:
    nodes = sorted({gpu.hostname for gpu in window.gpus})
    node = np.array([nodes.index(gpu.hostname) for gpu in window.gpus], np.int32)
    return detect_events(window, node, since_s)


def with_signal(signal: Signal, rows: list[list[float]] | Floats) -> FleetWindow:
    """Alive GPUs whose `signal` reads `rows`."""
    values = np.asarray(rows, np.float32)
    return make_window({Signal.GPU_TEMPERATURE: np.full(values.shape, 60.0), signal: values})


def test_a_changed_xid_code_is_an_event_at_its_sample() -> None:
    log = seen(with_signal(Signal.XID, [[0, 0, 79, 79, 31], [0, 0, 0, 0, 0]]))
    assert log.row.tolist() == [0, 0]
    assert log.value.tolist() == [79, 31]
    assert log.start_s.tolist() == [NOW_S - 120, NOW_S]


def test_the_first_code_after_silence_about_xids_is_an_event() -> None:
    assert seen(with_signal(Signal.XID, [[NAN, NAN, 48, 48]])).value.tolist() == [48]


def test_a_code_that_is_there_from_the_start_is_no_event() -> None:
    window = with_signal(Signal.XID, [[79, 79, 79, 79]])
    assert len(seen(window)) == 0
    # Also when the GPU itself appears later: its gauge may have stuck for months.
    late = make_window({Signal.GPU_TEMPERATURE: [[NAN, NAN, 60, 60]], Signal.XID: [[NAN, NAN, 79, 79]]})
    assert len(seen(late)) == 0


def test_a_code_that_returns_after_a_gap_unchanged_is_no_event() -> None:
    assert len(seen(with_signal(Signal.XID, [[0, 79, NAN, NAN, 79]]))) == 1
    assert seen(with_signal(Signal.XID, [[0, 79, 0, 79, 79]])).value.tolist() == [79, 79]


@pytest.mark.parametrize(
    ("signal", "kind"),
    [
        (Signal.DBE_AGGREGATE, EventKind.DOUBLE_BIT_ERROR),
        (Signal.UNCORRECTABLE_REMAPS, EventKind.UNCORRECTABLE_REMAP),
        (Signal.CORRECTABLE_REMAPS, EventKind.CORRECTABLE_REMAP),
        (Signal.RETIRED_PAGES_DBE, EventKind.RETIRED_PAGES),
        (Signal.DRIVER_RELOADS, EventKind.DRIVER_RELOAD),
    ],
)
def test_an_increment_is_an_event_of_that_size(signal: Signal, kind: EventKind) -> None:
    log = seen(with_signal(signal, [[0, 2, NAN, 0, 1]]))
    assert log.kind.tolist() == [kind, kind]
    assert log.value.tolist() == [2, 1]


@pytest.mark.parametrize(
    ("signal", "kind"),
    [(Signal.REMAP_FAILURE, EventKind.REMAP_FAILURE), (Signal.REMAP_PENDING, EventKind.REMAP_PENDING)],
)
def test_a_flag_that_goes_up_is_one_event(signal: Signal, kind: EventKind) -> None:
    log = seen(with_signal(signal, [[0, 1, 1, NAN, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 0]]))
    assert log.kind.tolist() == [kind, kind]
    assert log.row.tolist() == [1, 0]  # a flag that is up at first sight is known from there on


def throttle(at: dict[int, float], columns: int = 120) -> FleetWindow:
    values = np.zeros((1, columns))
    for column, seconds in at.items():
        values[0, column] = seconds
    return with_signal(Signal.SOFTWARE_THERMAL_THROTTLE, values)


def test_throttling_after_thirty_clear_minutes_is_an_onset_with_its_dose() -> None:
    log = seen(throttle({60: 30.0, 61: 30.0}))
    assert log.kind.tolist() == [EventKind.THERMAL_THROTTLE]
    assert log.value.tolist() == [pytest.approx(60 / 300)]
    bin_end = np.ceil((NOW_S - 59 * 60) / 300) * 300
    assert (log.start_s[0], log.end_s[0]) == (bin_end - 300, bin_end)


def test_flapping_is_one_event() -> None:
    assert len(seen(throttle(dict.fromkeys(range(40, 110, 10), 20.0)))) == 1


def test_two_bouts_apart_by_more_than_thirty_minutes_are_two_events() -> None:
    assert len(seen(throttle({30: 20.0, 90: 20.0}))) == 2


def test_a_trickle_below_one_percent_of_the_bin_is_no_onset() -> None:
    assert len(seen(throttle({60: 2.9}))) == 0


def test_hardware_slowdown_and_power_brake_have_kinds_of_their_own() -> None:
    values = np.zeros((1, 60))
    values[0, 50] = 30.0
    hardware = seen(with_signal(Signal.HARDWARE_THERMAL_THROTTLE, values))
    assert set(hardware.kind.tolist()) == {EventKind.THERMAL_THROTTLE, EventKind.HARDWARE_THROTTLE}
    brake = seen(with_signal(Signal.POWER_BRAKE_THROTTLE, values))
    assert brake.kind.tolist() == [EventKind.POWER_BRAKE]  # a brake is not heat


def test_what_began_before_since_is_lead_in_only() -> None:
    window = throttle({30: 20.0, 90: 20.0})
    later = seen(window, since_s=NOW_S - LEAD_IN_S)
    assert len(later) == 1
    assert later.start_s[0] > NOW_S - LEAD_IN_S


def silence(window: FleetWindow, rows: list[int], columns: slice) -> FleetWindow:
    values = {}
    for signal, array in window.values.items():
        values[signal] = array.copy()
        values[signal][rows, columns] = NAN
    return FleetWindow(window.gpus, window.times_s, values)


def test_a_gpu_that_is_gone_beside_a_live_sibling_is_lost() -> None:
    log = seen(silence(flat_window(3, 20), [1], slice(10, None)))
    assert (log.row.tolist(), log.kind.tolist()) == ([1], [EventKind.LOST])


def test_a_node_that_is_gone_as_a_whole_is_a_gap() -> None:
    log = seen(silence(flat_window(4, 20, per_node=2), [2, 3], slice(10, 15)))
    assert (log.row.tolist(), log.kind.tolist()) == ([2, 3], [EventKind.GAP, EventKind.GAP])


def test_one_or_two_missed_scrapes_are_neither() -> None:
    assert len(seen(silence(flat_window(3, 20), [1], slice(10, 12)))) == 0


def test_a_gpu_that_was_never_there_is_not_lost() -> None:
    assert len(seen(silence(flat_window(3, 20), [1], slice(None)))) == 0


def test_a_gpu_of_unknown_node_is_neither_lost_nor_in_a_gap() -> None:
    window = silence(flat_window(2, 20), [1], slice(10, None))
    assert len(detect_events(window, np.full(2, -1, np.int32), -np.inf)) == 0


def test_events_come_in_order_of_their_start() -> None:
    log = seen(with_signal(Signal.XID, [[0, 0, 0, 13], [0, 31, 31, 43], [0, 0, 79, 79]]))
    assert log.start_s.tolist() == sorted(log.start_s.tolist())
    assert log.value.tolist() == [31, 79, 13, 43]
