"""/api/v1/signals: the survey of the newest cycle, without a query."""

from typing import Any

from healthsvc.fleet import Signal
from healthsvc.fleet.survey import ForecasterFacts, Reading, SignalFacts, Survey
from healthsvc.publish.board import Board, ServiceStatus
from tests.publish.asks import app_of, get, ready_board

PATH = "/api/v1/signals"
METRIC = Reading(
    Signal.POWER, "DCGM_FI_DEV_POWER_USAGE", "dcgm-exporter classic", "watts", "the name says watts", False, 3
)
SURVEY = Survey(
    1_790_000_000.0,
    1_790_000_180.0,
    4,
    (
        SignalFacts(Signal.POWER, "gpu", 3, 1_789_000_000.0, 0.25, (METRIC,), {"out_of_range": 2}),
        SignalFacts(Signal.INLET, "node", 0, None, None),
    ),
    (
        ForecasterFacts("thermal_trend", "thermal", 2, 1, 1, {(Signal.POWER,): 1}, {Signal.XID: 1}, 0),
        ForecasterFacts("device_loss", "device_loss", 4, 0, 0),
    ),
    True,
    ("half an answer",),
)


def asked() -> dict[str, Any]:
    board = ready_board()
    board.survey = SURVEY
    answer: dict[str, Any] = get(app_of(board), PATH).json()
    return answer


def test_signals_come_with_units_gaps_and_rejections() -> None:
    power, inlet = asked()["signals"]
    assert (power["signal"], power["layer"], power["reporting"], power["missing"]) == ("power_watts", "gpu", 3, 0.25)
    assert power["metrics"] == [{name: value for name, value in vars(METRIC).items() if name != "signal"}]
    assert power["rejected"] == {"out_of_range": 2}
    assert power["since"] == "2026-09-10T00:26:40.000Z"
    assert (inlet["since"], inlet["missing"]) == (None, None)  # unknown is null


def test_forecasters_say_what_they_lack_on_how_many_gpus() -> None:
    thermal, loss = asked()["forecasters"]
    assert (thermal["readiness"], thermal["ready"], thermal["degraded"], thermal["starved"]) == ("starved", 2, 1, 1)
    assert thermal["starved_by"] == [{"any_of": ["power_watts"], "gpus": 1}]
    assert thermal["degraded_by"] == [{"any_of": ["xid_code"], "gpus": 1}]
    assert loss["readiness"] == "ready"


def test_an_incomplete_answer_is_told() -> None:
    answer = asked()
    assert (answer["incomplete"], answer["warnings"], answer["gpus"]) == (True, ["half an answer"], 4)


def test_before_the_first_cycle_there_is_nothing_to_say() -> None:
    answer = get(app_of(Board(status=ServiceStatus(backfill_days=(1, 9)))), PATH)
    assert answer.status_code == 503
    assert "backfill 1/9 days" in answer.json()["detail"]
