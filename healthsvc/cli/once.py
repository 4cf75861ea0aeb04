"""`healthsvc train` and `healthsvc score`: one-off runs."""

from collections.abc import Iterator, Sized
from contextlib import contextmanager
from datetime import UTC, datetime
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
    from healthsvc.engine.service import Service
    from healthsvc.fleet import Snapshot


def train(
    config: Config = None,
    prometheus_url: PrometheusUrl = None,
    recorded: Recorded = None,
    state_dir: State = None,
    at: Annotated[str | None, typer.Option(help="train as of this time (RFC 3339); default: the newest sample")] = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Read the history into the ledger, train every forecaster once, and keep what was learned."""
    with _opened(config, prometheus_url, recorded, state_dir, at) as (service, now_s):
        state = service.train_once(now_s)
        _require_gpus(next(iter(state.values()))["device_id"], service)
    from healthsvc.fleet import rfc3339

    rows = [
        {"forecaster": name, "gpus": len(arrays["device_id"]), "arrays": len(arrays), "as_of": rfc3339(now_s)}
        for name, arrays in state.items()
    ]
    show(rows, format_, "Trained")


def score(
    config: Config = None,
    prometheus_url: PrometheusUrl = None,
    recorded: Recorded = None,
    state_dir: State = None,
    at: Annotated[str | None, typer.Option(help="score as of this time (RFC 3339); default: the newest sample")] = None,
    limit: Annotated[int, typer.Option(min=1, help="GPUs to show, most urgent first")] = 20,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Score the fleet once and print the most urgent GPUs. Exit code 1 if any is at watch or above."""
    with _opened(config, prometheus_url, recorded, state_dir, at) as (service, now_s):
        snapshot = service.score_once(now_s)
        _require_gpus(snapshot.report.gpus, service)
    from healthsvc.fleet import rfc3339

    rows = _score_rows(snapshot, limit)
    if format_ is Format.TABLE:
        rows = [_compact(row) for row in rows]
    show(rows, format_, f"Fleet at {rfc3339(snapshot.report.as_of_s)}")
    raise typer.Exit(int((snapshot.report.band >= 1).any()))


@contextmanager
def _opened(
    config: Path | None, prometheus_url: str | None, recorded: Path | None, state_dir: Path | None, at: str | None
) -> "Iterator[tuple[Service, float]]":
    """The service that the options describe, not running, and the moment that is asked for."""
    configure_logs()
    with plain_errors():
        from healthsvc.engine.build import open_service
        from healthsvc.engine.progress import Bar
        from healthsvc.engine.service import history_end_s

        settings = chosen_settings(config, prometheus_url, recorded, state_dir)
        with open_service(settings, progress=Bar()) as (service, _):
            yield service, moment(at, "--at") or history_end_s(service.source, datetime.now(UTC).timestamp())


def _require_gpus(gpus: Sized, service: "Service") -> None:
    """Raises SettingsError if there are none: a fleet that nobody sees is not a healthy one."""
    from healthsvc.engine.historian import NO_GPU_CURE

    if not len(gpus):
        raise SettingsError(f"{service.source.name}: no GPU in its history; {NO_GPU_CURE}")


def _score_rows(snapshot: "Snapshot", limit: int) -> list[dict[str, Any]]:
    """The most urgent GPUs as plain rows; unknown numbers are None."""
    from healthsvc.fleet import HORIZON_NAMES, Band

    report = snapshot.report
    rows = []
    for row in report.ranking()[:limit].tolist():
        gpu = report.gpus[row]
        risks = [None if value != value else round(float(value), 6) for value in report.risk[row]]
        rows.append(
            {
                "gpu": gpu.device_id,
                "hostname": gpu.hostname,
                "index": gpu.index,
                "band": Band(int(report.band[row])).label,
                **{f"risk_{name}": risk for name, risk in zip(HORIZON_NAMES, risks, strict=True)},
                "coverage": round(float(report.coverage[row]), 3),
                "reason": "; ".join(report.reasons.get(row, ())),
                "action": report.actions.get(row, ""),
            }
        )
    return rows


def _compact(row: dict[str, Any]) -> dict[str, Any]:
    """The row of a score for a terminal of 100 columns; JSON and CSV keep everything."""
    from healthsvc.guidance import percent

    risk = row["risk_7d"]
    return {
        "gpu": f"{row['hostname']}/{row['index']}" if row["hostname"] and row["index"] else row["gpu"],
        "band": row["band"],
        "risk 7d": None if risk is None else percent(risk),
        "coverage": f"{100 * row['coverage']:.0f} %",
        "reason": row["reason"],
        "action": row["action"],
    }
