"""A back-test walks the past with the live engine, and nothing from the future reaches it."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from healthsvc.alerts import AlertPolicy
from healthsvc.engine.backtest import judge, run_fold
from healthsvc.engine.build import alert_policy
from healthsvc.engine.digest import digest_day
from healthsvc.engine.rehearsal import Rehearsal, rehearse
from healthsvc.engine.rehearsal_files import RehearsalFiles, key_of
from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.engine.study import components, shards_of
from healthsvc.evaluation.baselines import Recurrence, StaticRules
from healthsvc.evaluation.labels import Label, read_labels
from healthsvc.evaluation.origins import Fold
from healthsvc.evaluation.thresholds import CHOSEN, Threshold
from healthsvc.features.daily import definitions
from healthsvc.fleet import CLASSES, DAY_S, GpuId, Placement
from healthsvc.store import Ledger
from healthsvc.telemetry.read_ahead import ReadAhead
from healthsvc.telemetry.recorded import RecordedSource
from healthsvc.telemetry.source import RawGrid, Source
from tests.engine.recordings import START_DAY, START_S, settings_for

WINDOW = (START_S + 8.75 * DAY_S, START_S + 9.5 * DAY_S)


def walked(source: Source, state: Path, days: int = 9) -> Ledger:
    """A ledger of the recording's first days."""
    ledger = Ledger(state, definitions())
    for day in range(START_DAY, START_DAY + days):
        digest_day(source, ledger, day, WINDOW[1], 300.0, 256, source.placement())
    return ledger


def past(source: Source, state: Path, window: tuple[float, float] = WINDOW) -> Rehearsal:
    documents = load_priors()
    priors = class_priors(documents)
    scorer = make_scorer(documents, priors)
    rules = (Recurrence(), StaticRules(3600.0))
    ledger, settings = walked(source, state), settings_for(state)
    return rehearse(source, ledger, settings, source.placement(), scorer, alert_policy(priors, 300.0), window, rules)


@pytest.fixture(scope="module")
def whole(tiny: RecordedSource, tmp_path_factory: pytest.TempPathFactory) -> Rehearsal:
    return past(RecordedSource(tiny.directory), tmp_path_factory.mktemp("whole"))


def same(one: Rehearsal, other: Rehearsal) -> bool:
    """Whether two rehearsals said the same, up to the shorter one's end."""
    steps = min(len(one.samples_s), len(other.samples_s))
    numbers = np.array_equal(one.probability[:steps], other.probability[:steps], equal_nan=True)
    return numbers and repr(one.alerts) == repr(other.alerts) and one.observed_s == other.observed_s


def test_a_rehearsal_raises_what_the_service_would_have_raised(whole: Rehearsal, tiny: RecordedSource) -> None:
    raised = {(a.scope.split(":")[0], a.failure_class) for a in whole.alerts}
    ids = [row.split(",")[0] for row in (tiny.directory / "gpus.csv").read_text().splitlines()[1:]]
    assert (ids[2], "device_loss") in raised
    assert ("node", "throttling") in raised  # the only one of its loop, and so the narrower name of it
    assert (ids[1], "memory") in raised
    assert whole.observed_s == pytest.approx((8 * 0.75 - 0.4) * DAY_S, rel=0.01)  # one is lost at 9.1


def test_a_future_sample_changes_no_earlier_alert(whole: Rehearsal, tiny: RecordedSource, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(tiny.directory, cut)
    (cut / "telemetry" / "2026-01-14.parquet").unlink()  # the last day, as if it had not happened yet
    (cut / "environment" / "2026-01-14.parquet").unlink()
    until = (START_S + 8.5 * DAY_S, START_S + 9 * DAY_S - 300.0)
    short, full = (
        past(RecordedSource(cut), tmp_path / "a", until),
        past(RecordedSource(tiny.directory), tmp_path / "b", until),
    )
    assert len(short.samples_s) == 1
    assert same(short, full)


@dataclass(frozen=True)
class Prophet:
    """A source with a planted leak: every column shows what comes an hour later."""

    honest: RecordedSource
    name: str = "prophet"

    def discover(self, start_s: float, end_s: float) -> tuple[GpuId, ...]:
        return self.honest.discover(start_s, end_s)

    def placement(self) -> Placement | None:
        return self.honest.placement()

    def span(self) -> tuple[float, float]:
        return self.honest.span()

    def read(
        self, times_s: NDArray[np.float64], gpus: Sequence[GpuId] | None = None, step_s: float | None = None
    ) -> RawGrid:
        return replace(self.honest.read(times_s + 3600.0, gpus, step_s), times_s=times_s)


def test_a_planted_leak_is_caught(tiny: RecordedSource, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(tiny.directory, cut)
    (cut / "telemetry" / "2026-01-14.parquet").unlink()
    (cut / "environment" / "2026-01-14.parquet").unlink()
    until = (START_S + 8.5 * DAY_S, START_S + 9 * DAY_S - 300.0)
    short = past(Prophet(RecordedSource(cut)), tmp_path / "a", until)
    full = past(Prophet(RecordedSource(tiny.directory)), tmp_path / "b", until)
    assert not same(short, full)


def block_of(fleet: int, bright: int, window: tuple[float, float]) -> Rehearsal:
    """Calm GPUs but for `bright`, each of which looks like failing for one day, day after day."""
    days = np.arange(window[0] + DAY_S, window[1] + 1, DAY_S)
    p = np.full((len(days), fleet, len(CLASSES), 3), 0.001, np.float32)
    for row in range(bright):
        p[row, row] = 0.5
    gpus = tuple(GpuId(f"g{row}", hostname=f"n{row // 8}") for row in range(fleet))
    return Rehearsal(window, gpus, (), days, p, {}, (), observed_s=0.0)


def failed(row: int, start_s: float) -> Label:
    return Label(f"g{row}", start_s, start_s + DAY_S, "thermal", "T2", precursor=True)


def test_incidents_of_the_test_block_and_after_it_choose_no_threshold() -> None:
    """4,000 GPUs for four weeks may raise 3 false alerts; ten GPUs look like failing."""
    calibrate, test = (START_S, START_S + 28 * DAY_S), (START_S + 35 * DAY_S, START_S + 63 * DAY_S)
    block, policy = block_of(4000, 10, calibrate), alert_policy(class_priors(load_priors()), 300.0)
    asked: list[tuple[float, float]] = []

    def thermal(labels: list[Label]) -> Threshold:
        def rehearse(policy: AlertPolicy, window: tuple[float, float], with_baselines: bool) -> Rehearsal:
            asked.append((policy.failure["thermal"], window[0]))
            return block

        return run_fold(Fold(START_S, calibrate, test), rehearse, policy, labels, None)[1]["thermal"]

    nothing = thermal([])
    assert (nothing.source, nothing.p_7d > 0.5) == (CHOSEN, True)  # ten alerts would be seven too many
    paid = thermal([failed(row, calibrate[1] + 3 * DAY_S) for row in range(10)])
    assert (paid.source, paid.p_7d < 0.5) == (CHOSEN, True)
    assert thermal([failed(row, test[0] + row * DAY_S) for row in range(10)]) == nothing
    assert thermal([failed(row, test[1] + row * DAY_S) for row in range(10)]) == nothing
    assert asked[:2] == [(policy.failure["thermal"], calibrate[0]), (nothing.p_7d, test[0])]


def test_ours_and_every_baseline_are_judged_by_the_same_labels(whole: Rehearsal, tiny: RecordedSource) -> None:
    known_s = START_S + 40 * DAY_S
    evaluations = judge(
        [whole], read_labels(tiny.directory / "incidents.csv"), known_s, RecordedSource(tiny.directory).placement()
    )
    names = [e.name for e in evaluations]
    assert names[0] == "healthsvc"
    assert len(names) == 4
    assert len({e.result("failure", "gpu").recall.n for e in evaluations}) == 1
    chance = evaluations[-1].result("failure", "gpu")
    assert chance.alerts == evaluations[0].result("failure", "gpu").alerts
    assert set(evaluations[0].probability) >= {"thermal 7d", "memory 24h", "device_loss 30d"}


def test_telemetry_alone_labels_what_the_simulator_did(whole: Rehearsal, tiny: RecordedSource) -> None:
    ids = [row.split(",")[0] for row in (tiny.directory / "gpus.csv").read_text().splitlines()[1:]]
    found = {(label.scope, label.failure_class) for label in whole.labels}
    assert (ids[2], "device_loss") in found
    assert ("cooling_loop:loop-2", "throttling") in found or any(c == "throttling" for _, c in found)


def test_a_finished_rehearsal_is_found_again(whole: Rehearsal, tmp_path: Path) -> None:
    files, key = RehearsalFiles(tmp_path), key_of(window=WINDOW)
    assert files.load(key) is None
    files.save(key, whole)
    again = files.load(key)
    assert again is not None
    assert same(again, whole)
    assert repr((again.labels, again.baselines, again.window)) == repr((whole.labels, whole.baselines, whole.window))
    assert key_of(window=WINDOW, step=1) != key


def test_a_source_read_a_day_at_a_time_gives_the_same_columns(tiny: RecordedSource) -> None:
    direct, ahead = RecordedSource(tiny.directory), ReadAhead(RecordedSource(tiny.directory))
    rng = np.random.default_rng(5)
    for _ in range(12):
        first, count = int(rng.integers(280, 9 * 288)), int(rng.choice([1, 2, 30, 300]))
        times = START_S + (first + np.arange(float(count))) * 300.0
        one, other = direct.read(times, step_s=300.0), ahead.read(times, step_s=300.0)
        rows = {gpu.device_id: row for row, gpu in enumerate(other.gpus)}
        assert {gpu.device_id for gpu in one.gpus} == rows.keys()
        order = [rows[gpu.device_id] for gpu in one.gpus]
        for signal, values in one.values.items():
            np.testing.assert_array_equal(values, other.values[signal][order])
        for signal, series in one.environment.items():
            np.testing.assert_array_equal(series.values, other.environment[signal].values)


def test_a_shard_shows_its_own_gpus_only(tiny: RecordedSource) -> None:
    source = RecordedSource(tiny.directory)
    gpus = source.discover(*source.span())
    times = START_S + np.arange(300.0, 310) * 300.0
    shard = ReadAhead(source, gpus[:3])
    assert [g.device_id for g in shard.read(times).gpus] == [g.device_id for g in gpus[:3]]
    assert len(shard.discover(*source.span())) == 3
    assert [g.device_id for g in shard.read(times, gpus[1:2]).gpus] == [gpus[1].device_id]


def test_shards_never_cut_a_loop_or_a_feed() -> None:
    gpus = [GpuId(f"g{i}", hostname=f"n{i // 2}") for i in range(12)]
    rows = {f"n{i}": {"rack": f"r{i}", "cooling_loop": f"l{i // 2}", "power_feed": f"f{i // 3}"} for i in range(6)}
    parts = components(gpus, Placement(rows))
    assert [len(part) for part in parts] == [12]  # loops 0-1, 2-3, 4-5 are tied together by feeds 0-2, 3-5
    apart = {host: {k: v for k, v in row.items() if k != "power_feed"} for host, row in rows.items()}
    assert [len(part) for part in components(gpus, Placement(apart))] == [4, 4, 4]
    assert sorted(len(shard) for shard in shards_of(gpus, Placement(apart), 2)) == [4, 8]
    assert len(shards_of(gpus, Placement(apart), 5)) == 3


def test_labels_that_say_nothing_of_a_precursor_are_completed_from_the_telemetry(
    tiny: RecordedSource, tmp_path: Path
) -> None:
    silent = tuple(replace(label, precursor=None) for label in read_labels(tiny.directory / "incidents.csv"))
    documents = load_priors()
    priors = class_priors(documents)
    scorer = make_scorer(documents, priors)
    window = (START_S + 9 * DAY_S, START_S + 9.5 * DAY_S)
    found = rehearse(
        tiny,
        walked(tiny, tmp_path),
        settings_for(tmp_path),
        tiny.placement(),
        scorer,
        alert_policy(priors, 300.0),
        window,
        labels=silent,
    )
    assert len(found.labels) == len(silent)
    told = {(label.failure_class, label.precursor) for label in found.labels if label.failure_class != "none"}
    assert ("memory", True) in told  # remaps come before the worn memory's later events
    assert ("device_loss", False) in told  # it fell off the bus without a sign
    assert ("throttling", None) in told  # no rule for domains


def test_the_same_fleet_is_always_split_alike() -> None:
    gpus = [GpuId(f"g{i:02d}", hostname=f"n{i // 2}") for i in range(16)]
    rows = {f"n{i}": {"cooling_loop": f"l{i // 2}"} for i in range(8)}
    one = shards_of(gpus, Placement(rows), 2)
    other = shards_of(gpus[::-1], Placement(rows), 2)
    assert one == other
