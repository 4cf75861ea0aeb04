"""What every command shares: options, settings, errors in one line, and the printing of rows."""

import csv
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from healthsvc.config import Settings, SettingsError, load_settings

CANNOT_RUN = 2
PIPED_COLUMNS = 140  # of a table that goes into a file
NARROW = frozenset(
    {"gpu", "band", "risk 7d", "coverage", "who", "class", "alerts", "lead", "false", "at most"}
)  # never folded: sentences are

Config = Annotated[Path | None, typer.Option("--config", "-c", help="healthsvc.toml; default: ./healthsvc.toml")]
PrometheusUrl = Annotated[str | None, typer.Option(help="read from this Prometheus (or compatible) server")]
Recorded = Annotated[Path | None, typer.Option(help="read a recording, of `simulate` or `import`", file_okay=False)]
State = Annotated[Path | None, typer.Option("--state-dir", help="where ledger, journal and trained arrays are kept")]


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


FormatOption = Annotated[Format, typer.Option("--format", help="how to print")]


@contextmanager
def plain_errors() -> Iterator[None]:
    """Expected trouble as one line on stderr and exit code 2; anything else is a bug and keeps its traceback."""
    from healthsvc.evaluation.labels import LabelError
    from healthsvc.simulator.spec import ScenarioError
    from healthsvc.store import StoreError
    from healthsvc.telemetry.source import SourceError

    try:
        yield
    except (SettingsError, StoreError, SourceError, ScenarioError, LabelError, OSError) as failure:
        told = str(failure)
        if isinstance(failure, OSError) and failure.filename:
            told = f"{failure.filename}: {failure.strerror}; give a path that exists and that we may use"
        typer.secho(told, err=True, fg=typer.colors.RED)
        raise typer.Exit(CANNOT_RUN) from None


def moment(text: str | None, name: str) -> float | None:
    """RFC 3339 as seconds; without an offset it is UTC."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{name} = {text!r}: not a time; write it like 2026-01-31T06:00:00Z") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def chosen_settings(
    config: Path | None,
    prometheus_url: str | None = None,
    recorded: Path | None = None,
    state_dir: Path | None = None,
    **sections: dict[str, Any],
) -> Settings:
    """Settings with the options that were given laid over them, option by option."""
    over: dict[str, dict[str, Any]] = {k: {n: v for n, v in s.items() if v is not None} for k, s in sections.items()}
    if prometheus_url:
        over.setdefault("prometheus", {})["url"] = prometheus_url
    if recorded:
        over.setdefault("recorded", {})["directory"] = recorded
    if bool(prometheus_url) != bool(recorded):  # the source that was asked for outranks another one in file or variable
        section, name = ("recorded", "directory") if prometheus_url else ("prometheus", "url")
        over.setdefault(section, {})[name] = None
    if state_dir:
        over.setdefault("store", {})["directory"] = state_dir
    return load_settings(config, **{name: values for name, values in over.items() if values})


def configure_logs(verbose: bool = False) -> None:
    import logging

    import stamina
    import structlog

    stamina.instrumentation.set_on_retry_hooks([])  # the last failure is told, with its cure; not every try
    level = logging.DEBUG if verbose else logging.INFO
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer()
            if sys.stderr.isatty()
            else structlog.processors.LogfmtRenderer(key_order=["timestamp", "level", "event"]),
        ],
    )


def show(rows: list[dict[str, Any]], style: Format, title: str) -> None:
    """Rows as a table for people, or as JSON or CSV for machines, on stdout."""
    if style is Format.JSON:
        typer.echo(json.dumps(rows, indent=2))
        return
    if style is Format.CSV:
        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=SIMPLE_HEAD)
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold", no_wrap=name in NARROW)
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    plain = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    Console(markup=False, width=PIPED_COLUMNS if plain else None).print(table)
