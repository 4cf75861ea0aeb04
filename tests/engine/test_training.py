"""What was learned is used as long as it suits the forecasters, and a training that fails costs no report."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import pytest
import structlog

from healthsvc.engine.memory import FleetMemory
from healthsvc.engine.recall import recall
from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.engine.training import AGAIN_AFTER_S, Training
from healthsvc.features.daily import definitions
from healthsvc.fleet import DAY_S, Arrays, FleetHistory
from healthsvc.forecasters.device_loss import DeviceLoss
from healthsvc.publish.self_metrics import SelfMetrics
from healthsvc.store import Ledger, Shelf
from healthsvc.telemetry.source import RawGrid
from tests.engine.recordings import START_S, STEP_S, settings_for
from tests.engine.sources import steady_source
from tests.histories import make_gpus

DOCUMENTS = load_priors()


@dataclass(frozen=True)
class Unteachable(DeviceLoss):
    """A forecaster that cannot learn from any history."""

    name: ClassVar[str] = "device_loss"

    def fit(self, history: FleetHistory) -> Arrays:
        raise ZeroDivisionError("a mistake of ours")


def ignore(raw: RawGrid) -> None:
    """Nobody listens."""


@pytest.fixture
def memory(tmp_path: Path) -> FleetMemory:
    source = steady_source(make_gpus(4), START_S, START_S + DAY_S, STEP_S)
    ledger = Ledger(tmp_path / "ledger", definitions())
    return recall(source, ledger, START_S + DAY_S / 2, settings_for(tmp_path), None, ignore)


def training_in(folder: Path) -> Training:
    scorer = make_scorer(DOCUMENTS, class_priors(DOCUMENTS))
    return Training(scorer, Shelf(folder), DAY_S, SelfMetrics())


def unteachable(training: Training) -> None:
    """One of its forecasters is replaced by one that cannot learn."""
    every = training.scorer.forecasters
    broken = tuple(Unteachable(**vars(f)) if isinstance(f, DeviceLoss) else f for f in every)
    training.scorer = replace(training.scorer, forecasters=broken)


def failures(training: Training, stage: str) -> float | None:
    return training.self_metrics.registry.get_sample_value("healthsvc_failures_total", {"stage": stage})


def test_what_was_learned_is_found_again_after_a_restart(memory: FleetMemory, tmp_path: Path) -> None:
    first, second = training_in(tmp_path), training_in(tmp_path)
    assert not second.load(memory.now_s)
    assert first.attempt(memory)
    assert second.load(memory.now_s)
    assert (second.as_of_s, second.state.keys()) == (memory.now_s, first.state.keys())
    assert not second.due(memory.now_s + DAY_S - 60)
    assert second.due(memory.now_s + DAY_S)


def test_what_is_older_than_a_training_is_used_and_renewed(memory: FleetMemory, tmp_path: Path) -> None:
    training_in(tmp_path).train(memory)
    later = training_in(tmp_path)
    assert not later.load(memory.now_s + 2 * DAY_S)  # not fresh
    assert later.state  # better than nothing, should the new training fail
    assert later.due(memory.now_s + 2 * DAY_S)


def test_arrays_of_other_hyper_parameters_are_left_on_the_shelf(memory: FleetMemory, tmp_path: Path) -> None:
    training_in(tmp_path).train(memory)
    other = training_in(tmp_path)
    forecasters = tuple(
        replace(f, base_t2_per_gpu_year=f.base_t2_per_gpu_year * 2) if isinstance(f, DeviceLoss) else f
        for f in other.scorer.forecasters
    )
    other.scorer = replace(other.scorer, forecasters=forecasters)
    assert not other.load(memory.now_s)
    assert not other.state


def test_a_training_that_fails_keeps_what_was_learned_before(memory: FleetMemory, tmp_path: Path) -> None:
    training = training_in(tmp_path)
    training.train(memory)
    before = training.state, training.as_of_s
    unteachable(training)
    with structlog.testing.capture_logs() as logs:
        assert not training.attempt(memory)
    assert (training.state, training.as_of_s) == before
    assert failures(training, "train") == 1
    assert [line["event"] for line in logs if line.get("exc_info")] == ["training failed"]


def test_a_first_training_that_fails_is_tried_again_an_hour_later(memory: FleetMemory, tmp_path: Path) -> None:
    training = training_in(tmp_path)
    unteachable(training)
    assert training.due(memory.now_s)
    assert not training.attempt(memory)
    assert not training.due(memory.now_s + AGAIN_AFTER_S - 60)
    assert training.due(memory.now_s + AGAIN_AFTER_S)


def test_nothing_is_learned_of_an_empty_fleet_and_whoever_appears_is_learned_at_once(tmp_path: Path) -> None:
    """A first start with a wrong selector, say: its empty arrays must not be in service for the day after."""
    source = steady_source((), START_S, START_S + DAY_S, STEP_S)
    empty = recall(source, Ledger(tmp_path, definitions()), START_S + DAY_S / 2, settings_for(tmp_path), None, ignore)
    training = training_in(tmp_path)
    assert training.attempt(empty)
    assert training.due(empty.now_s + 60)
    assert not training_in(tmp_path).load(empty.now_s + 60)


def test_a_shelf_that_refuses_costs_only_the_next_start(memory: FleetMemory, tmp_path: Path) -> None:
    (tmp_path / "shelf").write_text("in the way")
    training = training_in(tmp_path / "shelf")
    assert training.attempt(memory)
    assert training.state
    assert failures(training, "shelf") == len(training.state)
