"""`healthsvc doctor`: what is connected, what is missing, and what to enable."""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from healthsvc.cli.common import (
    Config,
    Format,
    FormatOption,
    PrometheusUrl,
    Recorded,
    chosen_settings,
    configure_logs,
    moment,
    plain_errors,
    show,
)

if TYPE_CHECKING:
    from healthsvc.engine.doctor import Checkup
    from healthsvc.fleet.survey import ForecasterFacts, SignalFacts

COLUMNS = 100


def doctor(
    config: Config = None,
    prometheus_url: PrometheusUrl = None,
    recorded: Recorded = None,
    at: Annotated[str | None, typer.Option(help="look at this time (RFC 3339); default: the newest sample")] = None,
    hours: Annotated[float, typer.Option(min=0.1, max=48, help="look back so far")] = 2.0,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Say what answers, which signals it has, what the forecasters lack. Exit code 1 if anything is to be mended."""
    configure_logs()
    with plain_errors():
        from healthsvc.engine.build import open_source
        from healthsvc.engine.doctor import check_up, whole
        from healthsvc.engine.service import history_end_s
        from healthsvc.engine.shipped import load_priors
        from healthsvc.engine.survey import Reader
        from healthsvc.fleet import HOUR_S
        from healthsvc.forecasters import shipped_domain_forecasters, shipped_forecasters

        settings = chosen_settings(config, prometheus_url, recorded)
        source, priors = open_source(settings), load_priors()
        readers: tuple[Reader, ...] = (*shipped_forecasters(priors), *shipped_domain_forecasters(priors))
        step_s = getattr(source, "step_s", settings.cycle.step_s)
        wall_s = datetime.now(UTC).timestamp()
        end_s = moment(at, "--at") or history_end_s(source, wall_s)
        now_s = wall_s if at is None and settings.prometheus.url else None
        found = check_up(source, readers, whole(end_s, step_s), hours * HOUR_S, step_s, now_s)
    if format_ is Format.JSON:
        typer.echo(json.dumps(document(found), indent=2))
    elif format_ is Format.CSV:
        show(exact_rows(found.survey.signals, found.survey.gpus), format_, "")
    else:
        typer.echo(report(found), nl=False)
    raise typer.Exit(int(bool(found.findings)))


def report(found: "Checkup", columns: int | None = None) -> str:
    """The check-up for people: worst first, `columns` wide (as wide as the terminal, COLUMNS at most)."""
    import io

    from rich.console import Console

    width = columns or (min(Console().width, COLUMNS) if sys.stdout.isatty() else COLUMNS)
    out = Console(file=io.StringIO(), width=width, markup=False, highlight=False, emoji=False, color_system=None)
    for line in heading(found):
        out.print(line)
    _print_findings(out, found)
    survey = found.survey
    _print_table(out, "Forecasters", [forecaster_row(f) for f in survey.forecasters])
    if found.enable:
        out.print("To enable")
        for generation, lines in found.enable.items():
            out.print(f"  {generation}: {_where(generation)}")
            for line in lines:
                out.print(f"    {line}", soft_wrap=True)
        out.print()
    _print_table(out, "GPUs", [{k: v or "-" for k, v in vars(kind).items()} for kind in found.kinds])
    _print_table(out, "Signals", [signal_row(facts, survey.gpus) for facts in survey.signals])
    told = metric_lines(survey.signals)
    if told:
        out.print("Metrics, and in which unit they were read")
    for line in told:
        out.print(_hanging(f"  {line}", out.width, "    "))
    written = out.file
    assert isinstance(written, io.StringIO)  # noqa: S101 - given above
    return "\n".join(line.rstrip() for line in written.getvalue().rstrip().splitlines()) + "\n"


def _print_findings(out: Any, found: "Checkup") -> None:
    told = [f"{'!!' if f.urgent else '! '} {f.text}" for f in found.findings] + [f"   {note}" for note in found.notes]
    out.print("Findings" if found.findings else "Findings: none")
    for line in told:
        out.print(_hanging(line, out.width))
    out.print()


def _hanging(line: str, width: int, indent: str = "   ") -> str:
    """Folded, with the sentence kept clear of its mark."""
    import textwrap

    return textwrap.fill(line, width, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _print_table(out: Any, title: str, rows: list[dict[str, Any]]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    if not rows:
        return
    table = Table(title=title, title_justify="left", title_style="", box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    for name, value in rows[0].items():
        number = isinstance(value, int) or name in ("GPUs", "missing")
        table.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(str, row.values()))
    out.print(table)


def heading(found: "Checkup") -> list[str]:
    """Who answered, and what was looked at."""
    from healthsvc.fleet import DAY_S

    server, survey = found.server, found.survey
    who = f"{server.title} {server.version}".strip() + f" ({server.why})" if server else found.source
    lines = [f"Source   {who}"]
    if found.history:
        start_s, end_s = found.history
        lines.append(f"History  {_minute(start_s)} to {_minute(end_s)}, {(end_s - start_s) / DAY_S:.1f} days")
    if server:
        lines.append(f"Clock    {server.ahead_s:+.0f} s against ours")
    looked_at = f"{_minute(survey.start_s)} to {_minute(survey.as_of_s)}"
    return [*lines, f"Looked at {looked_at}: {gpus(survey.gpus)}", ""]


def forecaster_row(facts: "ForecasterFacts") -> dict[str, Any]:
    """One forecaster, for a table."""
    return {
        "forecaster": facts.name,
        "state": facts.readiness,
        "ready": facts.ready,
        "degraded": facts.degraded,
        "starved": facts.starved,
        "lacks": "; ".join(_lacks(facts)) or "-",
    }


def _lacks(facts: "ForecasterFacts") -> list[str]:
    from healthsvc.engine.doctor import counted

    starved = [
        counted([f"any of {len(group)} signals" if len(group) > 3 else " or ".join(group)], count, facts.starved)
        for group, count in facts.starved_by.items()
    ]
    return starved + [counted([signal.value], count, facts.degraded) for signal, count in facts.degraded_by.items()]


def signal_row(facts: "SignalFacts", fleet: int) -> dict[str, Any]:
    """One signal, for a table."""
    missing = facts.missing_ratio
    return {
        "signal": facts.signal.value,
        "GPUs": f"{facts.count}/{fleet}" if facts.layer == "gpu" else f"{facts.count} {facts.layer}s",
        "since": "-" if facts.since_s is None else _minute(facts.since_s)[:10],
        "missing": "-" if missing is None else f"{missing:.1%}",
        "rejected": ", ".join(f"{count:,} {reason}" for reason, count in facts.rejected.items()) or "-",
    }


def metric_lines(signals: "Iterable[SignalFacts]") -> list[str]:
    """One line for each metric and unit that was met."""
    return [
        f"{metric.metric}: {metric.unit}, {gpus(metric.gpus)}; {metric.why}"
        for facts in signals
        for metric in facts.metrics
    ]


def exact_rows(signals: "Iterable[SignalFacts]", fleet: int) -> list[dict[str, Any]]:
    """One row for each signal, in numbers for machines."""
    from healthsvc.fleet import rfc3339

    return [
        {
            "signal": facts.signal.value,
            "layer": facts.layer,
            "reporting": facts.count,
            "gpus": fleet,
            "since": "" if facts.since_s is None else rfc3339(facts.since_s),
            "missing_ratio": "" if facts.missing_ratio is None else round(facts.missing_ratio, 6),
            "metrics": " ".join(metric.metric for metric in facts.metrics),
            "units": " ".join(metric.unit for metric in facts.metrics),
            "rejected": " ".join(f"{reason}={count}" for reason, count in facts.rejected.items()),
        }
        for facts in signals
    ]


def _where(generation: str) -> str:
    """Where the lines of a generation belong."""
    from healthsvc.engine.counters import FILES

    name = FILES.get(generation)
    return f"lines of its counters CSV (all: deploy/dcgm-exporter/{name})" if name else "let it export"


def gpus(count: int) -> str:
    """A number of GPUs, in words."""
    return f"{count} GPU" if count == 1 else f"{count} GPUs"


def _minute(at_s: float) -> str:
    return f"{datetime.fromtimestamp(at_s, UTC):%Y-%m-%dT%H:%MZ}"


def document(found: "Checkup") -> dict[str, Any]:
    """Everything, for machines."""
    from healthsvc.fleet import rfc3339

    survey = found.survey
    return {
        "source": found.source,
        "server": vars(found.server) if found.server else None,
        "history": [rfc3339(at_s) for at_s in found.history] if found.history else None,
        "looked_at": [rfc3339(survey.start_s), rfc3339(survey.as_of_s)],
        "gpus": survey.gpus,
        "silent": survey.silent,
        "incomplete": survey.incomplete,
        "findings": [vars(finding) for finding in found.findings],
        "notes": list(found.notes),
        "enable": {generation: list(lines) for generation, lines in found.enable.items()},
        "kinds": [vars(kind) for kind in found.kinds],
        "forecasters": [
            {
                "name": facts.name,
                "class": facts.failure_class,
                "state": facts.readiness,
                "ready": facts.ready,
                "degraded": facts.degraded,
                "starved": facts.starved,
                "starved_by": [{"any_of": list(group), "gpus": count} for group, count in facts.starved_by.items()],
                "degraded_by": {signal.value: count for signal, count in facts.degraded_by.items()},
                "beyond_board": facts.beyond_board,
            }
            for facts in survey.forecasters
        ],
        "signals": [
            {
                "signal": facts.signal.value,
                "layer": facts.layer,
                "reporting": facts.count,
                "since": None if facts.since_s is None else rfc3339(facts.since_s),
                "missing_ratio": None if facts.missing_ratio is None else round(facts.missing_ratio, 6),
                "metrics": [{k: v for k, v in vars(m).items() if k != "signal"} for m in facts.metrics],
                "rejected": dict(facts.rejected),
            }
            for facts in survey.signals
        ],
    }
