"""The alert state survives a restart as plain data, and deciding is pure."""

import json
import time

import pytest

from healthsvc.alerts import Alert, AlertPolicy, AlertState, decide
from tests.alerts.cycles import Cycles
from tests.reports import HOUR_S, calm_report, changed, five_gpu_report, unknown, with_probability


def busy() -> Cycles:
    cycles = Cycles()
    cycles.run(five_gpu_report(), 4 * HOUR_S)
    return cycles


def test_the_state_survives_json() -> None:
    state = busy().state
    assert AlertState.from_rows(json.loads(json.dumps(state.to_rows(), allow_nan=False))) == state


def test_a_restart_keeps_the_firing_set() -> None:
    cycles = busy()
    before = cycles.once(five_gpu_report())
    cycles.state = AlertState.from_rows(json.loads(json.dumps(cycles.state.to_rows())))
    after = cycles.once(five_gpu_report())
    assert len(before.firing) > 3
    assert [(a.key, a.raised_s) for a in after.firing] == [(a.key, a.raised_s) for a in before.firing]
    assert after.resolved == ()


def test_no_rows_are_an_empty_state() -> None:
    assert AlertState.from_rows([]) == AlertState()


def test_rows_that_are_no_state_are_an_error_with_a_cure() -> None:
    with pytest.raises(ValueError, match="delete it"):
        AlertState.from_rows([{"nonsense": 1}])


def test_deciding_twice_gives_the_same_and_changes_no_input() -> None:
    cycles = busy()
    rows = cycles.state.to_rows()
    first, second = (decide(cycles.state, five_gpu_report(), cycles.now_s, cycles.policy) for _ in range(2))
    assert first == second
    assert cycles.state.to_rows() == rows


def test_the_key_depends_on_labels_alone() -> None:
    one = Alert({"alertname": "A", "severity": "info", "grade": ""}, {"summary": "x"}, 1.0)
    other = Alert({"severity": "info", "alertname": "A"}, {"summary": "y"}, 2.0)
    assert one.key == other.key != Alert({"alertname": "B", "severity": "info"}, {}, 1.0).key


def test_a_large_fleet_is_decided_within_a_second() -> None:
    report = unknown(calm_report(10_000), range(0, 10_000, 7))
    report = changed(report, "change_p", (slice(0, 10_000, 5), 0), 1e-9)
    report = with_probability(report, 3, "memory", week=0.3)
    state = decide(AlertState(), report, 0.0, AlertPolicy()).state
    began = time.process_time()
    decide(state, report, 60.0, AlertPolicy())
    assert time.process_time() - began < 1.0
