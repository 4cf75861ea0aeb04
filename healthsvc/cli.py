"""The command line. Heavy imports stay inside the commands, so that --help answers at once.

Exit codes: 0 fine, 1 findings, 2 cannot run. An error names the setting, the value and the cure.
"""

import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from healthsvc import __version__
from healthsvc.config import Settings, SettingsError, load_settings

if TYPE_CHECKING:
    from healthsvc.engine.build import Replay
    from healthsvc.fleet import Snapshot

app = typer.Typer(
    name="healthsvc",
    help="Predictive GPU health: which GPU will fail, how, how soon, why, and what to do.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

CANNOT_RUN = 2
NARROW = frozenset({"gpu", "band", "risk 7d", "coverage"})  # short columns: never folded, the sentences are
DEMO_DIRECTORY = Path("var/demo")
DEMO_SEED = 7
DEMO_REPLAY_DAYS = 28.0
DEMO_SPEED = 60.0
STOPS_WITHIN_S = 3.0  # a read that hangs is not waited for: what it would write is written whole or not at all

Config = Annotated[Path | None, typer.Option("--config", "-c", help="healthsvc.toml; default: ./healthsvc.toml")]
PrometheusUrl = Annotated[str | None, typer.Option(help="read from this Prometheus (or compatible) server")]
Recorded = Annotated[Path | None, typer.Option(help="read a recording written by `simulate`", file_okay=False)]
State = Annotated[Path | None, typer.Option("--state-dir", help="where ledger, journal and trained arrays are kept")]


class Format(StrEnum):
    """How results are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Expected trouble as one line on stderr and exit code 2; anything else is a bug and keeps its traceback."""
    from healthsvc.simulator.spec import ScenarioError
    from healthsvc.store import StoreError
    from healthsvc.telemetry.source import SourceError

    try:
        yield
    except (SettingsError, StoreError, SourceError, ScenarioError, OSError) as failure:
        typer.secho(str(failure), err=True, fg=typer.colors.RED)
        raise typer.Exit(CANNOT_RUN) from None


def _moment(text: str | None, name: str) -> float | None:
    """RFC 3339 as seconds; without an offset it is UTC."""
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        raise SettingsError(f"{name} = {text!r}: not a time; write it like 2026-01-31T06:00:00Z") from None
    return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()


def _settings(
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


def _configure_logs(verbose: bool = False) -> None:
    import logging

    import structlog

    level = logging.DEBUG if verbose else logging.INFO
    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        processors=[
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.dev.ConsoleRenderer() if sys.stderr.isatty() else structlog.processors.LogfmtRenderer(),
        ],
    )


@app.command()
def serve(
    config: Config = None,
    prometheus_url: PrometheusUrl = None,
    recorded: Recorded = None,
    state_dir: State = None,
    alertmanager_url: Annotated[str | None, typer.Option(help="push alerts to this Alertmanager")] = None,
    replay_from: Annotated[str | None, typer.Option(help="replay from this time (RFC 3339) on")] = None,
    replay_speed: Annotated[float, typer.Option(min=0.1, max=100_000, help="times faster than the clock")] = 60.0,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; default 9920")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="say more")] = False,
) -> None:
    """Run the service. Without any source it serves the demo fleet: 64 simulated GPUs, replayed at 60 times."""
    _configure_logs(verbose)
    with _plain_errors():
        from healthsvc.engine.build import Replay

        settings = _settings(
            config,
            prometheus_url,
            recorded,
            state_dir,
            alertmanager={"url": alertmanager_url},
            server={"host": host, "port": port},
        )
        from_s = _moment(replay_from, "--replay-from")
        replay = None if from_s is None else Replay(from_s, replay_speed)
        if settings.prometheus.url is None and settings.recorded.directory is None:
            settings, replay = _demo(settings, replay)
        elif settings.recorded.directory and replay is None:
            raise SettingsError("--recorded needs --replay-from: a recording has ended; say from when to replay it")
        _serve(settings, replay)


def _demo(settings: Settings, replay: "Replay | None") -> "tuple[Settings, Replay]":
    """The demo fleet: simulated once, then replayed from day 28, where things begin to happen."""
    from healthsvc.engine.build import Replay
    from healthsvc.engine.shipped import demo_scenario
    from healthsvc.simulator import load_scenario, write_recording

    scenario = load_scenario(demo_scenario())
    folder = DEMO_DIRECTORY / "recording"
    if not (folder / "recording.json").is_file():
        typer.echo("no Prometheus given: simulating the demo fleet once (64 GPUs, 30 days)", err=True)
        with _share_bar("simulating") as show:
            write_recording(scenario, folder, DEMO_SEED, progress=show)
    start_s = scenario.start.timestamp() if scenario.start else 0.0
    demo = settings.model_copy(
        update={
            "recorded": settings.recorded.model_copy(update={"directory": folder}),
            "store": settings.store.model_copy(update={"directory": DEMO_DIRECTORY / "state"}),
        }
    )
    return demo, replay or Replay(start_s + DEMO_REPLAY_DAYS * 86_400.0, DEMO_SPEED)


def _serve(settings: Settings, replay: "Replay | None") -> None:
    """The web server in this thread, the engine in another; either one's end ends both."""
    import uvicorn

    from healthsvc.engine.build import open_service
    from healthsvc.engine.progress import Bar, Silent

    with (
        _listen(settings.server.host, settings.server.port) as listener,
        open_service(settings, replay, Bar() if sys.stderr.isatty() else Silent()) as (service, web),
    ):
        server = uvicorn.Server(uvicorn.Config(web, log_level="warning"))
        died = threading.Event()

        def run() -> None:
            try:
                service.run()
            except BaseException:
                died.set()
                raise
            finally:
                server.should_exit = True

        # The web server hands a signal on after its own shutdown; by default that would kill us in mid-write.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.stop.set())
        thread = threading.Thread(target=run, name="engine", daemon=True)
        thread.start()
        host, port = listener.getsockname()[:2]
        typer.echo(
            f"healthsvc {__version__} on http://{host}:{port}: /api/v1/gpus?sort=-risk  /metrics  /docs", err=True
        )
        server.run(sockets=[listener])
        service.stop.set()
        thread.join(STOPS_WITHIN_S)
    if died.is_set():
        raise typer.Exit(CANNOT_RUN)
    if thread.is_alive():  # the interpreter would wait for the read's own threads, retries and all
        os._exit(0)


def _listen(host: str, port: int) -> socket.socket:
    """The socket of the web server. Raises SettingsError if the address is taken or not ours."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as failure:
        raise SettingsError(
            f"server.host = {host}, server.port = {port}: {failure.strerror}; choose others with --host and --port"
        ) from None


@contextmanager
def _share_bar(title: str) -> "Iterator[Any]":
    """A progress bar over a share that is done (0-1), on stderr."""
    from rich.console import Console
    from rich.progress import Progress

    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(title, total=1.0)
        yield lambda share: bar.update(task, completed=share)


@app.command()
def train(
    config: Config = None,
    prometheus_url: PrometheusUrl = None,
    recorded: Recorded = None,
    state_dir: State = None,
    at: Annotated[str | None, typer.Option(help="train as of this time (RFC 3339); default: the newest sample")] = None,
    format: Annotated[Format, typer.Option(help="how to print")] = Format.TABLE,  # noqa: A002
) -> None:
    """Read the history into the ledger, train every forecaster once, and keep what was learned."""
    _configure_logs()
    with _plain_errors():
        from healthsvc.engine.build import open_service
        from healthsvc.engine.progress import Bar
        from healthsvc.engine.service import history_end_s

        settings = _settings(config, prometheus_url, recorded, state_dir)
        with open_service(settings, progress=Bar()) as (service, _):
            now_s = _moment(at, "--at") or history_end_s(service.source, datetime.now(UTC).timestamp())
            state = service.train_once(now_s)
    rows = [
        {"forecaster": name, "gpus": len(arrays["device_id"]), "arrays": len(arrays), "as_of": _rfc3339(now_s)}
        for name, arrays in state.items()
    ]
    _show(rows, format, "Trained")


@app.command()
def score(
    config: Config = None,
    prometheus_url: PrometheusUrl = None,
    recorded: Recorded = None,
    state_dir: State = None,
    at: Annotated[str | None, typer.Option(help="score as of this time (RFC 3339); default: the newest sample")] = None,
    limit: Annotated[int, typer.Option(min=1, help="GPUs to show, most urgent first")] = 20,
    format: Annotated[Format, typer.Option(help="how to print")] = Format.TABLE,  # noqa: A002
) -> None:
    """Score the fleet once and print the most urgent GPUs. Exit code 1 if any is at watch or above."""
    _configure_logs()
    with _plain_errors():
        from healthsvc.engine.build import open_service
        from healthsvc.engine.progress import Bar
        from healthsvc.engine.service import history_end_s

        settings = _settings(config, prometheus_url, recorded, state_dir)
        with open_service(settings, progress=Bar()) as (service, _):
            now_s = _moment(at, "--at") or history_end_s(service.source, datetime.now(UTC).timestamp())
            snapshot = service.score_once(now_s)
    rows = _score_rows(snapshot, limit)
    if format is Format.TABLE:
        rows = [_compact(row) for row in rows]
    _show(rows, format, f"Fleet at {_rfc3339(snapshot.report.as_of_s)}")
    raise typer.Exit(int((snapshot.report.band >= 1).any()))


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


@app.command()
def simulate(
    out: Annotated[Path, typer.Option(help="folder to write; must be new", file_okay=False)],
    scenario: Annotated[
        Path | None, typer.Option(help="scenario TOML; default: the demo fleet's", dir_okay=False)
    ] = None,
    seed: Annotated[int, typer.Option(help="same seed, same fleet")] = 1,
    gpus: Annotated[int | None, typer.Option(min=1, help="GPUs; default: the scenario's")] = None,
    days: Annotated[int | None, typer.Option(min=1, help="days; default: the scenario's")] = None,
    start: Annotated[str | None, typer.Option(help="first moment (RFC 3339); default: the scenario's")] = None,
    openmetrics: Annotated[Path | None, typer.Option(help="also write OpenMetrics text for promtool here")] = None,
) -> None:
    """Simulate a fleet with faults: Parquet telemetry, incidents.csv and topology.csv."""
    with _plain_errors():
        from healthsvc.engine.shipped import demo_scenario
        from healthsvc.simulator import load_scenario, write_recording

        chosen = load_scenario(scenario or demo_scenario()).with_fleet(gpus=gpus, days=days)
        with _share_bar("simulating") as show:
            folder = write_recording(chosen, out, seed, _moment(start, "--start"), openmetrics, show)
    typer.echo(
        f"{folder}: {chosen.name}, seed {seed}; replay it with `healthsvc serve --recorded {folder} --replay-from T`"
    )


@app.command("check-config")
def check_config(
    config: Config = None,
    format: Annotated[Format, typer.Option(help="how to print")] = Format.TABLE,  # noqa: A002
) -> None:
    """Check the settings and print every one with its value and meaning; secrets stay hidden."""
    with _plain_errors():
        settings = load_settings(config)
    rows = []
    for section_name, section in settings:
        for name, field in type(section).model_fields.items():
            rows.append(
                {
                    "setting": f"{section_name}.{name}",
                    "value": _hidden(name, getattr(section, name)),
                    "variable": f"HEALTHSVC_{section_name}_{name}".upper(),
                    "meaning": field.description or "",
                }
            )
    _show(rows, format, "Settings")


def _hidden(name: str, value: Any) -> str:
    """A setting's value, of headers only the names: a header may carry a token."""
    return ", ".join(f"{header}: (hidden)" for header in value) if name == "headers" else str(value)


@app.command()
def version() -> None:
    """Print the version."""
    typer.echo(__version__)


def _rfc3339(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).isoformat().replace("+00:00", "Z")


def _show(rows: list[dict[str, Any]], style: Format, title: str) -> None:
    """Rows as a table for people, or as JSON or CSV for machines, on stdout."""
    if style is Format.JSON:
        typer.echo(json.dumps(rows, indent=2))
        return
    if style is Format.CSV:
        import csv

        writer = csv.DictWriter(sys.stdout, list(rows[0]) if rows else [])
        writer.writeheader()
        writer.writerows(rows)
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for name in rows[0] if rows else ():
        table.add_column(name, overflow="fold", no_wrap=name in NARROW)
    for row in rows:
        table.add_row(*("-" if value is None else str(value) for value in row.values()))
    Console(markup=False).print(table)


def main() -> None:
    """Entry point."""
    app()
