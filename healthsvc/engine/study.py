"""`healthsvc backtest`: the history walked once, then origins and shards of the fleet rehearsed side by side."""

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from healthsvc.alerts import AlertPolicy
from healthsvc.config import Settings, SettingsError
from healthsvc.engine.backtest import Backtest, judge, run_fold
from healthsvc.engine.build import alert_policy, open_source, placement_of, source_identity
from healthsvc.engine.historian import Historian
from healthsvc.engine.placing import placed
from healthsvc.engine.progress import Progress
from healthsvc.engine.rehearsal import Rehearsal, RehearsalSpec, rehearse
from healthsvc.engine.rehearsal_files import RehearsalFiles, key_of
from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.engine.thresholds import keep_thresholds
from healthsvc.evaluation.baselines import standard_baselines
from healthsvc.evaluation.labels import Label
from healthsvc.evaluation.origins import NOT_CROSS_VALIDATED, Fold
from healthsvc.evaluation.thresholds import Threshold
from healthsvc.features.daily import definitions
from healthsvc.features.facts import DOMAIN_LAYERS
from healthsvc.fleet import DailyLedger, EventLog, GpuId, OnsetBins, Placement, build_topology
from healthsvc.store import Ledger
from healthsvc.telemetry.read_ahead import ReadAhead

ALL_DAYS = 4000  # of history that a back-test may look at


@dataclass(frozen=True)
class StudySpec:
    """What to rehearse: `folds` of the history (start_s, end_s]. jobs: processes side by side."""

    start_s: float
    end_s: float
    known_until_s: float
    folds: tuple[Fold, ...]
    jobs: int = 2
    backend: str = "loky"
    resume: bool = True


@dataclass(frozen=True)
class _DaysOfSome:
    """The ledger of one shard of the fleet."""

    whole: Ledger
    gpus: tuple[GpuId, ...]

    def read(self, first_day: int, last_day: int) -> tuple[DailyLedger, EventLog]:
        daily, events = self.whole.read(first_day, last_day)
        mine = {gpu.device_id for gpu in self.gpus}
        rows = np.array([i for i, gpu in enumerate(daily.gpus) if gpu.device_id in mine], np.intp)
        return daily.take([daily.gpus[int(i)] for i in rows], rows), events.take(rows)

    def events_of(self, gpus: tuple[GpuId, ...], first_day: int, last_day: int) -> EventLog:
        return self.whole.events_of(gpus, first_day, last_day)

    def onset_bins(self, gpus: tuple[GpuId, ...], first_day: int, last_day: int) -> tuple[OnsetBins, ...]:
        return self.whole.onset_bins(gpus, first_day, last_day)

    def partial_days(self, first_day: int, last_day: int) -> frozenset[int]:
        return self.whole.partial_days(first_day, last_day)


def components(gpus: Sequence[GpuId], placement: Placement | None) -> list[tuple[GpuId, ...]]:
    """Parts of the fleet that share no node, rack, loop or feed, largest first: what may be rehearsed apart."""
    topology = build_topology(gpus, placement)
    part = np.arange(len(gpus))
    for _ in range(len(gpus)):
        before = part.copy()
        for layer in DOMAIN_LAYERS:
            groups = topology.group(layer, len(gpus))
            known = groups >= 0
            lowest = np.full(int(groups.max(initial=-1)) + 1, len(gpus))
            np.minimum.at(lowest, groups[known], part[known])
            part[known] = np.minimum(part[known], lowest[groups[known]])
        if (part == before).all():
            break
    parts = [tuple(gpus[int(i)] for i in np.flatnonzero(part == p)) for p in np.unique(part)]
    return sorted(parts, key=lambda members: -len(members))


def shards_of(gpus: Sequence[GpuId], placement: Placement | None, count: int) -> list[tuple[GpuId, ...]]:
    """At most `count` shards of whole components, about equally large; the same whatever the order of the GPUs.

    What forecasters pool over the fleet (noise, base rates) they pool over their shard: another number of shards gives
    slightly other alerts.
    """
    shards: list[list[GpuId]] = [[] for _ in range(count)]
    for members in components(sorted(gpus, key=lambda gpu: gpu.device_id), placement):
        min(shards, key=len).extend(members)
    return [tuple(sorted(shard, key=lambda gpu: gpu.device_id)) for shard in shards if shard]


def run_study(settings: Settings, spec: StudySpec, labels: tuple[Label, ...] | None, progress: Progress) -> Backtest:
    """The whole back-test. labels None: taken from the telemetry itself. Raises SourceError, StoreError, ValueError."""
    import joblib

    identity = source_identity(settings)
    directory = Path(settings.store.directory) / "backtest" / identity
    source = open_source(settings)
    placement = placement_of(settings, source)
    Historian(settings, source, placement, Ledger(directory, definitions()), progress).walk(spec.end_s, ALL_DAYS)
    folds = spec.folds
    gpus = source.discover(spec.start_s, spec.end_s)
    placement = placed(placement, source)  # labels of the GPUs may tell
    # A calibration block chooses one threshold for the whole fleet: it is not cut into shards.
    apart = 1 if any(fold.calibrate for fold in folds) else max(1, spec.jobs // len(folds))
    shards = shards_of(gpus, placement, apart)
    work = [(fold, shard) for fold in folds for shard in shards]
    done: list[tuple[Rehearsal, dict[str, Threshold]]] = []
    with progress.task("rehearsing", len(work), "folds x shards") as advance, workers(spec.backend):
        one_by_one = "list" if spec.backend == "ray" else "generator"  # ray's backend has no generator: the bar waits
        runs = joblib.Parallel(n_jobs=min(spec.jobs, len(work)), return_as=one_by_one)(
            joblib.delayed(rehearse_shard)(settings, directory, fold, shard, labels, spec.resume, placement)
            for fold, shard in work
        )
        for result in runs:
            done.append(result)
            advance()
    notes = sorted({fold.label for fold in folds if fold.label == NOT_CROSS_VALIDATED})
    evaluations = judge([r for r, _ in done], labels, spec.known_until_s, placement, notes)
    thresholds = next((chosen for _, chosen in reversed(done) if chosen), {})
    keep_thresholds(Path(settings.store.directory), thresholds, spec.end_s, identity)
    return Backtest(evaluations, thresholds, folds)


@contextmanager
def workers(backend: str) -> Iterator[None]:
    """joblib's backend: processes on this machine (loky), or the workers of a dask or ray cluster.

    dask: the cluster of DASK_SCHEDULER_ADDRESS, else a local one; ray: of RAY_ADDRESS, else a local one. Raises
    SettingsError naming the extra to install.
    """
    import joblib

    if backend not in ("loky", "dask", "ray"):
        raise SettingsError(f"--backend {backend}: choose loky, dask or ray")
    with ExitStack() as stack:
        try:
            if backend == "dask":
                from distributed import Client

                stack.enter_context(Client(os.environ.get("DASK_SCHEDULER_ADDRESS")))
            elif backend == "ray":
                import ray
                from ray.util.joblib import register_ray

                register_ray()
                stack.callback(ray.shutdown)  # else the process waits for its workers for ever
        except ImportError:
            package = {"dask": "distributed", "ray": "ray"}[backend]
            raise SettingsError(f"--backend {backend}: not installed; pip install {package}") from None
        stack.enter_context(joblib.parallel_config(backend))
        yield


def rehearse_shard(
    settings: Settings,
    directory: Path,
    fold: Fold,
    gpus: tuple[GpuId, ...],
    labels: tuple[Label, ...] | None,
    resume: bool,
    placement: Placement | None = None,
) -> tuple[Rehearsal, dict[str, Threshold]]:
    """One fold on one shard, in a process of its own; finished blocks are kept and found again.

    placement: where the GPUs stand, as the caller has found out; by default what the settings and the source tell.
    """
    documents = load_priors()
    priors = class_priors(documents)
    whole = open_source(settings)
    source, placement = ReadAhead(whole, gpus), placement or placement_of(settings, whole)
    ledger, files = _DaysOfSome(Ledger(directory, definitions()), gpus), RehearsalFiles(directory / "rehearsals")
    scorer = make_scorer(documents, priors)
    spec = RehearsalSpec()

    def once(policy: AlertPolicy, window: tuple[float, float], with_baselines: bool) -> Rehearsal:
        key = key_of(
            window=window,
            gpus=[gpu.device_id for gpu in gpus],
            policy=repr(policy),
            cycle=settings.cycle.model_dump(),
            priors=documents,
            definitions=dict(definitions()),
            spec=repr(spec),
            baselines=with_baselines,
            labels=repr(labels),
            history=settings.history.model_dump(mode="json"),
            placement=repr(placement),
            source=source_identity(settings),
        )
        kept = files.load(key) if resume else None
        if kept is not None:
            return kept
        baselines = standard_baselines(spec.baseline_s) if with_baselines else ()
        found = rehearse(source, ledger, settings, placement, scorer, policy, window, baselines, spec, labels)
        files.save(key, found)
        return found

    return run_fold(fold, once, alert_policy(priors, settings.cycle.step_s), labels, placement)
