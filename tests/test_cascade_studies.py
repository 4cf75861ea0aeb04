"""The study of throttling_cascade: its loops fail as they should, nobody sees ahead, its counts are what they say."""

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from healthsvc.features.windows import inlet_by_gpu
from healthsvc.fleet import DAY_S, MINUTE_S, Signal
from scripts.studies import cascade_calibration, cascade_healthy
from scripts.studies.cascade_cases import LEAD_IN_HOURS, Case, Kind, Loss, figures, first_fact_s, walk
from scripts.studies.cascade_fleet import FLOW, START_S, Run, Site, fleet_table, histories, make_run, shipped
from scripts.studies.cascade_tables import tables
from scripts.studies.cascade_weeks import CADENCE, NORMAL_DAYS, Life, cooling_faults, decoys
from tests import naive_cascade

ROOT = Path(__file__).parent.parent
SUDDEN = Loss(0, 20.0, 1.0, 0.25)


@pytest.fixture(scope="module")
def run() -> Run:
    """Two loops of one row, the first of which loses its flow at once."""
    return make_run(fleet_table(2), [SUDDEN.fault()], LEAD_IN_HOURS + 1.5, 5, Site())


def test_a_loop_that_loses_its_flow_throttles_and_its_twin_does_not(run: Run) -> None:
    fell_s = run.start_s + SUDDEN.start_day * DAY_S
    begun_s = run.begun_s(fell_s)
    here = run.layout.loop_of == SUDDEN.loop
    assert np.isfinite(begun_s[here]).sum() >= 16
    assert (begun_s[here] > fell_s).all()
    assert np.isinf(begun_s[~here]).all()
    assert np.isinf(run.begun_s(run.window.now_s)).all()


def test_the_ledger_knows_the_boards_of_the_case(run: Run) -> None:
    before = run.window.columns(slice(0, round(LEAD_IN_HOURS * 60)))
    inlet = inlet_by_gpu(run.environment, run.topology, run.window.gpus, len(run.window.times_s))
    inlet = inlet[:, : len(before.times_s)]
    power = before.get(Signal.POWER)
    busy = power.min(axis=1) > 300.0
    seen = np.log((before.get(Signal.GPU_TEMPERATURE) + 0.5 - inlet) / power)[busy, 60:].mean(axis=1)
    normal = np.nanmedian(run.daily.get("gpu_log_resistance"), axis=1)[busy]
    assert busy.sum() >= 24
    assert abs(np.median(seen - normal)) < 0.03
    assert np.corrcoef(seen, normal)[0, 1] > 0.8


def test_nobody_sees_ahead_of_his_minute(run: Run) -> None:
    columns = round(LEAD_IN_HOURS * 60)
    for number, history in enumerate(histories(run, every=5)):
        end = columns + 5 * number
        assert history.now_s == run.window.times_s[end - 1]
        assert len(history.recent.times_s) == columns
        assert (history.events.start_s <= history.now_s).all()
        assert history.daily.days[-1] < history.now_s // DAY_S
        flow = history.environment[Signal.COOLANT_FLOW]
        np.testing.assert_array_equal(flow.values, run.environment[Signal.COOLANT_FLOW].values[:, end - columns : end])


def test_what_is_hidden_is_in_no_history_and_the_fleet_stays_as_it_is(run: Run) -> None:
    site = Site(hidden=FLOW, unknown=frozenset({"power_feed"}))
    other = make_run(fleet_table(2), [SUDDEN.fault()], LEAD_IN_HOURS + 1.5, 5, site)
    assert not other.environment.keys() & FLOW
    assert run.environment.keys() >= FLOW
    assert "power_feed" not in other.topology.groups
    for signal, values in run.window.values.items():
        np.testing.assert_array_equal(values, other.window.values[signal])


def test_a_fact_is_half_of_a_place_within_ten_minutes(run: Run) -> None:
    rng = np.random.default_rng(3)
    rows = np.flatnonzero(run.layout.loop_of == 0)
    places = [
        members
        for layer in ("node", "rack", "cooling_loop")
        for members in run.topology.members(layer)
        if set(members) <= set(rows)
    ]
    seen = set()
    for share in (0.1, 0.45, 0.7, 1.0):
        for span_s in (300.0, 1200.0, 5000.0):
            begun_s = np.where(rng.random(64) < share, np.floor(rng.uniform(0, span_s, 64) / 60.0) * 60.0, np.inf)
            wanted = naive_cascade.first_fact([begun_s[members].tolist() for members in places], 600.0)
            assert first_fact_s(run, begun_s, rows) == wanted
            seen.add(wanted == np.inf)
    assert seen == {True, False}


def test_the_domains_alone_alert_as_the_whole_service_does() -> None:
    kind = Kind((1.0, 1.0), (0.75, 0.75))
    alone, strangers = walk(kind, 1, 7, Site())
    whole, _ = walk(kind, 1, 7, Site(whole=True), shipped())
    assert not strangers
    assert alone[0].alerted >= 0
    assert (alone[0].alerted, alone[0].alertname, alone[0].layer) == (
        whole[0].alerted,
        whole[0].alertname,
        whole[0].layer,
    )
    assert len(alone[0].opened) == len(whole[0].opened)


def test_an_alert_that_stood_before_the_fault_is_no_lead() -> None:
    loss = Loss(0, 0.0, 30.0, 0.2)
    good = Case(loss, 30, onset=40.0, third=30.0, fact=35.0, alerted=10.0)
    lucky = Case(loss, 30, onset=40.0, third=30.0, fact=35.0, alerted=0.0, before=True)
    late = Case(loss, 30, onset=40.0, third=30.0, fact=35.0, alerted=38.0)
    calm = Case(loss, 0, onset=np.nan, third=np.nan, fact=np.nan, alerted=20.0)
    told = figures([good, lucky, late, calm], 0)
    assert (told["throttling"], told["before_median_onset"], told["before_third_onset"]) == (3, 2, 1)
    assert (told["stood_before"], told["calm_alerted"], told["never_throttled_alerted"]) == (1, 1, 1)
    assert told["lead_minutes"]["0.5"] == 30.0
    assert told["within_2_cycles"] == 2


def test_a_life_is_looked_at_every_ten_minutes_and_learns_from_finished_days() -> None:
    loss = {"kind": "loop_flow_loss", "count": 1, "start_day": NORMAL_DAYS + 0.4, "remaining_ratio": 0.2}
    life = Life(1, NORMAL_DAYS + 1, [*decoys(1, 3), *cooling_faults(1, 3), loss], 4)
    seconds, times_s = np.zeros((32, 0)), np.zeros(0)
    for number, history in enumerate(life.histories()):
        assert history.now_s % (CADENCE * MINUTE_S) == 0
        assert history.now_s == START_S + NORMAL_DAYS * DAY_S + CADENCE * MINUTE_S * number
        assert (history.events.start_s <= history.now_s).all()
        today_s = history.now_s // DAY_S * DAY_S
        assert all((part.start_s < today_s).all() for part in history.onset_bins)
        recent = history.recent
        new = recent.times_s > (times_s[-1] if len(times_s) else -np.inf)
        heat = recent.get(Signal.SOFTWARE_THERMAL_THROTTLE) + recent.get(Signal.HARDWARE_THERMAL_THROTTLE)
        seconds = np.concatenate([seconds, np.minimum(heat[:, new], 60.0)], axis=1)
        times_s = np.concatenate([times_s, recent.times_s[new]])
    last = life.bin_at(times_s[-1])
    first = life.bin_at(times_s[0] - MINUTE_S) + 1
    row = int(np.argmax(life.dose[:, first : last + 1].sum(axis=1)))
    wanted = naive_cascade.dose_by_bin(times_s.tolist(), seconds[row].tolist(), START_S, life.dose.shape[1])
    assert sum(wanted) > 0
    np.testing.assert_allclose(life.dose[row, first : last + 1], wanted[first : last + 1], rtol=1e-5)


def test_sure_and_right_has_skill_and_the_base_rate_has_none() -> None:
    y = [np.array([True, False, False, False])] * 10
    layer, still = [np.array(["node"] * 4)] * 10, [np.array([True, True, False, True])] * 10

    def part(p: list[float]) -> cascade_calibration.Figures:
        told = {"p": [np.array(p, np.float32)] * 10, "y": y}
        return {"layer": layer, "open": still, "onsets_learned": 0, "30 min": told, "2 h": told}

    perfect, flat = (cascade_calibration.skill([part(p)]) for p in ([1.0, 0, 0, 0], [0.25] * 4))
    assert perfect["2 h"]["all"]["brier_skill"] == pytest.approx(1.0)
    assert flat["2 h"]["all"]["brier_skill"] == pytest.approx(0.0)
    assert (perfect["30 min"]["all"]["cases"], perfect["30 min"]["still calm"]["cases"]) == (40, 30)


def test_no_incident_in_a_thousand_months_bounds_the_rate_at_three() -> None:
    part = {
        "loop_months": 1000.0 / 3.0,
        "gpu_throttled_bins": 5,
        "incidents": {},
        "throttled": 0,
        "excess": {"node": {"1": 7}},
        "smallest_excess_p": {"node": 0.3},
    }
    told = cascade_healthy.false_incidents([part])
    assert told["rack_and_loop_months"] == pytest.approx(1000.0)
    assert told["per_1000_rack_or_loop_months"] == pytest.approx([0.0, 2.996], abs=1e-3)
    both = cascade_healthy.false_incidents([part, {**part, "incidents": {"node": 2, "cooling_loop": 1}}])
    assert both["per_1000_rack_or_loop_months"][0] == pytest.approx(0.5)
    assert both["per_10000_node_months"][0] == pytest.approx(10_000 * 2 / both["node_months"])
    assert both["excess"] == {"node": {"1": 14}}


@pytest.mark.drill
@pytest.mark.timeout(600)
def test_the_quick_study_fills_every_table() -> None:
    script = str(ROOT / "scripts" / "studies" / "cascade.py")
    command = [sys.executable, script, "--quick", "--which", "fixed", "--jobs", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert len(re.findall("^### ", done.stdout, re.MULTILINE)) == 7
    assert done.stdout.count("| fixed (101) |") >= 10
    assert tables({}) == ""
