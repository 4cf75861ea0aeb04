"""`healthsvc backtest`: would it have caught my last failures, and how often would it have woken me?"""

import json
import math
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from healthsvc.cli.common import (
    Config,
    Format,
    FormatOption,
    PrometheusUrl,
    Recorded,
    State,
    chosen_settings,
    configure_logs,
    moment,
    plain_errors,
    show,
)
from healthsvc.config import SettingsError

if TYPE_CHECKING:
    from healthsvc.engine.backtest import Backtest
    from healthsvc.evaluation.origins import Fold
    from healthsvc.telemetry.source import Source


def backtest(
    incidents: Annotated[str, typer.Option(help="incidents.csv, or `auto`: what the telemetry itself shows")] = "auto",
    config: Config = None,
    prometheus_url: PrometheusUrl = None,
    recorded: Recorded = None,
    state_dir: State = None,
    start: Annotated[str | None, typer.Option(help="from here on (RFC 3339); default: the first sample")] = None,
    end: Annotated[str | None, typer.Option(help="up to here (RFC 3339); default: the newest sample")] = None,
    test_from: Annotated[
        str | None, typer.Option(help="one test block from here to --end, in place of rolling origins")
    ] = None,
    horizon_days: Annotated[
        float, typer.Option(min=1, max=30, help="gap between what is learnt from labels and what is tested")
    ] = 30.0,
    train_days: Annotated[float, typer.Option(min=14, help="history before the first calibration block")] = 60.0,
    known_until: Annotated[
        str | None, typer.Option(help="labels are complete up to here; default: as the recording says, else --end")
    ] = None,
    step_s: Annotated[float, typer.Option(min=60, max=300, help="seconds between cycles; divides 600")] = 300.0,
    jobs: Annotated[int, typer.Option(min=1, help="processes side by side: origins, then shards of the fleet")] = 2,
    backend: Annotated[str, typer.Option(help="joblib's backend: loky, or dask or ray where installed")] = "loky",
    fresh: Annotated[bool, typer.Option("--fresh", help="rehearse again what an earlier run has finished")] = False,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Rehearse the past with the live engine and judge it, with today's static rules beside it on the same data.

    What is finished is kept in the state directory: a run that was broken off goes on where it was.
    """
    configure_logs()
    with plain_errors():
        from healthsvc.engine.build import open_source
        from healthsvc.engine.progress import Bar
        from healthsvc.engine.study import StudySpec, run_study
        from healthsvc.evaluation.labels import read_labels

        labels = None if incidents == "auto" else read_labels(Path(incidents))
        settings = chosen_settings(config, prometheus_url, recorded, state_dir, cycle={"step_s": step_s})
        source = open_source(settings)
        span = source.span()
        if span is None:
            raise SettingsError(f"{source.name}: no GPU history to test on; check the URL and the selector")
        start_s, end_s = moment(start, "--start") or span[0], moment(end, "--end") or span[1]
        end_s = math.floor(end_s / step_s) * step_s
        folds = blocks_to_test(start_s, end_s, horizon_days, train_days, moment(test_from, "--test-from"))
        known_s = moment(known_until, "--known-until") or known_until_s(source, end_s)
        spec = StudySpec(start_s, end_s, known_s, folds, jobs=jobs, backend=backend, resume=not fresh)
        result = run_study(settings, spec, labels, Bar())
    if format_ is Format.JSON:
        typer.echo(json.dumps(document(result), indent=2))
    else:
        rows = table_rows(result) if format_ is Format.TABLE else [r for e in result.evaluations for r in e.to_rows()]
        show(rows, format_, title(result))
        if format_ is Format.TABLE:
            typer.echo(footnote(result))


def blocks_to_test(
    start_s: float, end_s: float, horizon_days: float, train_days: float, test_s: float | None
) -> "tuple[Fold, ...]":
    """Rolling origins where the history is long enough for them; else one block, with nothing learnt from labels."""
    from healthsvc.evaluation.origins import NOT_CROSS_VALIDATED, Fold, rolling_origins
    from healthsvc.fleet import DAY_S, rfc3339

    window = f"{rfc3339(start_s)} to {rfc3339(end_s)}"
    if test_s is None:
        try:
            return rolling_origins(start_s, end_s, horizon_days * DAY_S, train_days * DAY_S)
        except ValueError as failure:
            raise SettingsError(f"{window}: {failure}, or choose --test-from between them") from None
    if not start_s < test_s < end_s:
        raise SettingsError(f"--test-from = {rfc3339(test_s)}: not within the history, {window}; choose one between")
    return (Fold(test_s, None, (test_s, end_s), NOT_CROSS_VALIDATED),)


def known_until_s(source: "Source", end_s: float) -> float:
    """How far labels reach: a recording says how long its simulated truth goes on, a server ends with its telemetry."""
    said = getattr(source, "labels_end", None)
    return max(end_s, datetime.fromisoformat(said).timestamp()) if said else end_s


def table_rows(result: "Backtest") -> list[dict[str, Any]]:
    """One row a judge: ours by class, then all GPU classes together beside the baselines."""
    rows = []
    for number, evaluation in enumerate(result.evaluations):
        for row in evaluation.to_rows():
            wanted = row["class"] == "gpu" or (number == 0 and row["alerts"] + row["recall_n"] > 0)
            if not wanted or (number > 0 and row["grade"] != "failure"):
                continue
            rows.append(
                {
                    "who": evaluation.name if row["grade"] == "failure" else f"{evaluation.name}, degrading",
                    "class": "all GPU" if row["class"] == "gpu" else row["class"],
                    "alerts": row["alerts"],
                    "precision": share(row["precision_ratio"], row["precision_n"]),
                    "caught": share(row["recall_ratio"], row["recall_n"]),
                    "foreseeable": share(row["recall_with_precursor_ratio"], row["recall_with_precursor_n"]),
                    "late": share(row["late_ratio"], row["recall_n"]),
                    "lead": hours(row["lead_p50_s"]),
                    "false": f"{row['false_alerts_per_1000_gpu_months']:.1f}",
                    "at most": f"{row['false_alerts_upper_per_1000_gpu_months']:.1f}",
                }
            )
    return rows


def share(value: float, n: int) -> str:
    """A share and what it is a share of; nothing where there is nothing."""
    return f"{100 * value:.0f}% of {n}" if n else "-"


def hours(seconds: float) -> str:
    """A lead time."""
    return "-" if math.isnan(seconds) else f"{seconds / 3600:.0f} h" if seconds >= 36_000 else f"{seconds / 3600:.1f} h"


def title(result: "Backtest") -> str:
    """What was tested."""
    from healthsvc.fleet import rfc3339

    ours = result.evaluations[0]
    folds = ", ".join(sorted({fold.label for fold in result.folds}))
    window = " to ".join(rfc3339(at_s) for at_s in ours.window)
    return f"Back-test {window}: {len(result.folds)} test block(s), {folds}, {ours.exposure_gpu_months:.1f} GPU-months"


def footnote(result: "Backtest") -> str:
    """How to read the table."""
    lines = [
        "caught: events foreseen with at least 15 min to act; foreseeable: of those that had a precursor",
        "late: noticed too late to act, in neither precision nor false; lead: the median",
        "false, at most: false alerts per 1,000 GPU-months, and their upper 95 % bound",
    ]
    for name, chosen in result.thresholds.items():
        lines.append(
            f"{name}: P(T2, 7 d) >= {chosen.p_7d:.3g}, {chosen.source} ({chosen.exposure_gpu_months:.0f} GPU-months)"
        )
    return "\n".join(lines)


def document(result: "Backtest") -> dict[str, Any]:
    """Everything, for machines."""
    from healthsvc.fleet import rfc3339

    return {
        "title": title(result),
        "thresholds": {name: vars(chosen) for name, chosen in result.thresholds.items()},
        "folds": [
            {"label": f.label, "train_end": rfc3339(f.train_end_s), "test": [rfc3339(at_s) for at_s in f.test]}
            for f in result.folds
        ],
        "evaluations": [evaluation.to_document() for evaluation in result.evaluations],
    }
