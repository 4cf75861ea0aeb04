"""The nouns keep their promises: shapes are checked, arrays are read-only, rows follow their GPUs."""

from dataclasses import replace

import numpy as np
import pytest

from healthsvc.fleet import (
    DAY_S,
    HORIZONS_S,
    LIVENESS,
    OPEN,
    DailyLedger,
    EventKind,
    EventLog,
    FleetWindow,
    Forecast,
    GpuId,
    Placement,
    Signal,
    align_rows,
    build_topology,
    first_rows,
)
from healthsvc.fleet.boards import board_limits
from tests.histories import NOW_S, flat_window, make_daily, make_events, make_gpus, make_history, make_window

NAN = np.nan


def test_rows_follow_their_gpus_and_the_unknown_get_the_fill() -> None:
    values = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(align_rows(values, np.array([1, -1, 0])), [[3, 4], [NAN, NAN], [1, 2]])
    np.testing.assert_array_equal(align_rows(values, np.array([-1]), 7.0), [[7, 7]])
    np.testing.assert_array_equal(align_rows(np.zeros((0, 3)), np.array([-1, -1])), np.full((2, 3), NAN))
    assert values.tolist() == [[1, 2], [3, 4]]


def test_a_window_of_the_wrong_shape_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"power_watts\] has shape \(2, 3\); needs \(2, 4\) = \[gpu, time\]"):
        FleetWindow(make_gpus(2), np.arange(4.0), {Signal.POWER: np.zeros((2, 3))})


def test_a_ledger_of_the_wrong_shape_is_refused_by_name() -> None:
    ok = np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"DailyLedger sbe_errors has shape \(3, 2\)"):
        DailyLedger(make_gpus(2), np.arange(3), {"sbe_errors": ok.T}, ok, ok)
    with pytest.raises(ValueError, match="DailyLedger exposure_h"):
        DailyLedger(make_gpus(2), np.arange(3), {}, ok[:, :2], ok)


@pytest.mark.parametrize(
    ("name", "shape"),
    [("cumulative_hazard", (2, 1, 3)), ("change_p", (3,)), ("time_to_limit_s", (2, 2)), ("evidence", (1,))],
)
def test_a_forecast_of_the_wrong_shape_is_refused_by_name(name: str, shape: tuple[int, ...]) -> None:
    parts = {
        "cumulative_hazard": np.zeros((2, 2, 3)),
        "change_p": np.zeros(2),
        "time_to_limit_s": np.zeros((2, 3)),
        "evidence": {"x_watts": np.zeros(2)},
    }
    assert Forecast(HORIZONS_S, **parts).change_p.shape == (2,)  # type: ignore[arg-type]
    wrong = np.zeros(shape)
    parts[name] = {"x_watts": wrong} if name == "evidence" else wrong
    with pytest.raises(ValueError, match=rf"Forecast.{name}.* has shape"):
        Forecast(HORIZONS_S, **parts)  # type: ignore[arg-type]


def test_what_one_reader_sees_no_other_can_change() -> None:
    window = flat_window(2)
    daily = make_daily(window.gpus, 3, {"power_q95_watts": np.zeros((2, 3))})
    events = make_events((0, 1.0, EventKind.XID, 79.0))
    arrays = [window.times_s, window.get(Signal.POWER), daily.get("power_q95_watts"), events.start_s]
    for array in [*arrays, daily.days, daily.exposure_h, daily.completeness]:
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    with pytest.raises(TypeError):
        window.values[Signal.POWER] = np.zeros((2, 120))  # type: ignore[index]


def test_a_window_knows_its_clock_its_last_samples_and_who_answered() -> None:
    window = make_window({Signal.POWER: [[1, 2, NAN], [NAN, NAN, NAN]], Signal.XID: [[0, 0, 0], [0, 0, 5]]})
    assert (window.now_s, window.step_s) == (NOW_S, 60.0)
    np.testing.assert_array_equal(window.last(Signal.POWER), [2, NAN])
    np.testing.assert_array_equal(window.last(Signal.ENERGY), [NAN, NAN])
    assert window.alive(LIVENESS).tolist() == [[True, True, False], [False] * 3]
    assert window.columns(slice(1, None)).times_s.tolist() == [NOW_S - 60, NOW_S]
    taken = window.take(make_gpus(3), np.array([1, 0, -1]))
    np.testing.assert_array_equal(taken.last(Signal.XID), [5, 0, NAN])


def test_merging_keeps_each_event_once_in_order_and_the_later_end() -> None:
    early = make_events((0, 20.0, EventKind.XID, 79.0), (1, 10.0, EventKind.LOST, 1.0))
    closed = replace(early.of(EventKind.LOST), end_s=np.array([50.0]))
    merged = early.merged(closed).merged(early.of(EventKind.XID))
    assert merged.start_s.tolist() == [10, 20]
    assert merged.end_s.tolist() == [50, OPEN]
    assert len(EventLog().merged(EventLog())) == 0


def test_two_codes_at_one_moment_are_two_events_but_two_doses_are_one() -> None:
    codes = make_events((0, 5.0, EventKind.XID, 79.0)).merged(make_events((0, 5.0, EventKind.XID, 48.0)))
    assert codes.value.tolist() == [48, 79]
    for first, later in ((0.2, 0.3), (0.3, 0.2)):
        dose = make_events((0, 5.0, EventKind.THERMAL_THROTTLE, first)).merged(
            replace(make_events((0, 5.0, EventKind.THERMAL_THROTTLE, later)), end_s=np.array([9.0]))
        )
        assert (dose.value.tolist(), dose.end_s.tolist()) == ([later], [9.0])  # the newer report knows more


def test_events_follow_their_gpus_and_leave_with_them() -> None:
    log = make_events((0, 1.0, EventKind.XID, 13.0), (1, 2.0, EventKind.XID, 48.0), (2, 3.0, EventKind.XID, 79.0))
    taken = log.take(np.array([2, -1, 1]))
    assert (taken.row.tolist(), taken.value.tolist()) == ([2, 0], [48, 79])
    assert len(log.take(np.zeros(0, np.intp))) == 0
    assert len(EventLog().take(np.array([0, 1]))) == 0


def test_what_had_not_begun_was_not_known_and_nor_was_its_end() -> None:
    log = make_events((0, 10.0, EventKind.LOST, 1.0), (0, 30.0, EventKind.XID, 79.0))
    log = replace(log, end_s=np.array([40.0, 30.0]))
    assert log.known_at(20.0).end_s.tolist() == [OPEN]
    assert log.known_at(10.0).start_s.tolist() == [10]
    assert log.known_at(100.0).end_s.tolist() == [40, 30]


def test_places_are_numbered_by_name_whatever_the_order_of_the_gpus() -> None:
    gpus = make_gpus(6, per_node=2)
    placement = Placement({"node-00": {"rack": "r2"}, "node-02": {"rack": "r1"}})
    topology = build_topology(gpus, placement)
    assert topology.names == {"node": ("node-00", "node-01", "node-02"), "rack": ("r1", "r2")}
    assert topology.group("rack", 6).tolist() == [1, 1, -1, -1, 0, 0]
    assert topology.group("row", 6).tolist() == [-1] * 6
    back = build_topology(gpus[::-1], placement)
    assert back.names == topology.names
    assert back.group("rack", 6).tolist() == topology.take(np.arange(6)[::-1]).group("rack", 6).tolist()


def test_a_gpu_without_a_hostname_is_on_no_known_node() -> None:
    assert build_topology((GpuId("a"), GpuId("b", "n1"))).group("node", 2).tolist() == [-1, 0]


def test_identity_is_the_device_and_the_place_is_its_slot() -> None:
    gpu = GpuId("GPU-1", "n1", "3", slot="0000:41:00.0", cluster="c")
    assert gpu.place == ("c", "n1", "0000:41:00.0")
    assert GpuId("GPU-2", "n1", "3").place == ("", "n1", "3")
    assert first_rows((gpu, GpuId("GPU-2"))) == {"GPU-1": 0, "GPU-2": 1}


def test_a_history_is_permuted_as_one() -> None:
    window = flat_window(3)
    days = make_daily(window.gpus, 1, {"power_q95_watts": np.array([[1.0], [2.0], [3.0]])})
    history = make_history(window, days, make_events((2, NOW_S - DAY_S, EventKind.XID, 79.0)))
    taken = history.take(np.array([2, 0]))
    assert [gpu.device_id for gpu in taken.gpus] == ["GPU-002", "GPU-000"]
    assert taken.daily.gpus == taken.gpus
    assert taken.daily.get("power_q95_watts")[:, 0].tolist() == [3, 1]
    assert taken.events.row.tolist() == [0]
    assert taken.topology.group("node", 2).tolist() == [0, 0]
    assert taken.now_s == NOW_S


def test_boards_have_their_limits_and_unknown_boards_none() -> None:
    products = ("NVIDIA H100 80GB HBM3", "NVIDIA L4", "Tesla V100-SXM2", "Voodoo 2", "NVIDIA GH200 480GB")
    limits = board_limits(tuple(GpuId(str(i), product=name) for i, name in enumerate(products)))
    np.testing.assert_array_equal(limits[:, :2], [[87, 89], [86, 88], [83, 87], [NAN, NAN], [86, 88]])
    assert board_limits(()).shape == (0, 3)
