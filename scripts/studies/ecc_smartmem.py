"""Two real memory modules (SmartMem, DDR4 of servers), hour by hour: one that failed, one that did not."""

import csv
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from healthsvc.fleet import DAY_S, HOUR_S, GpuId
from healthsvc.forecasters.ecc.rates import unusual_errors
from scripts.studies.ecc_fleet import HOURS, Run, fit, history_at, with_hour

NAME = "smartmem-dram-sample"  # the folder among the shared data


def smartmem_table(data: Path) -> str:
    """Two memory modules of a public sample (SmartMem), hour by hour: one that failed and one that did not. Markdown.

    The ten modules of the sample as one fleet, watched from 2024-01-01 on. A message where the files are not there.
    """
    if not (data / "ticket.csv").is_file():
        return f"The SmartMem sample is not at {data}: no worked example.\n"
    with (data / "ticket.csv").open(encoding="utf-8-sig") as file:
        ticket_s = {row["sn_name"]: float(row["alarm_time"]) for row in csv.DictReader(file)}
    run = _modules(data)
    lines = []
    for name in ("sn_6454", "sn_6"):
        row = [gpu.device_id for gpu in run.gpus].index(name)
        lines += [_tale(run, row, ticket_s.get(name)), ""]
    warning = "One module against one proves nothing; the sample was chosen by its publishers."
    return "\n".join([*lines, warning, ""])


def _modules(data: Path) -> Run:
    """Correctable errors an hour of the sample's modules, from 2024-01-01 to the last of them."""
    begin_s = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    times: dict[str, list[float]] = {}
    for path in sorted(data.glob("sn_*.csv")):
        with path.open(encoding="utf-8-sig") as file:
            rows = [row for row in csv.DictReader(file) if row["error_type_full_name"].startswith("CE")]
        times[path.stem] = [float(row["LogTime"]) - begin_s for row in rows]
    hours = (int(max(max(each) for each in times.values()) // DAY_S) + 1) * HOURS
    errors = np.array([np.histogram(each, np.arange(hours + 1) * HOUR_S)[0] for each in times.values()], np.float64)
    gpus = tuple(GpuId(name, name, "0", "DDR4") for name in times)
    return Run(gpus, errors, np.zeros(len(gpus), bool), np.full(len(gpus), -1))


def _tale(run: Run, row: int, ticket_s: float | None) -> str:
    """The hours with errors of one module, what each made of it, and its ticket."""
    name = run.gpus[row].device_id
    begin_s = datetime(2024, 1, 1, tzinfo=UTC).timestamp()
    ticket = "no ticket" if ticket_s is None else f"ticket at {_moment(ticket_s)}"
    lines = [f"`{name}`, {ticket}:", "", "| hour | errors | change_p | growth exponent (80 %) | before the ticket |"]
    lines.append("|---|---|---|---|---|")
    for hour in np.flatnonzero(run.errors[row] > 0)[:12].tolist():
        history = history_at(run, max(hour, 1))
        p, evidence = unusual_errors(fit(history), with_hour(history, run.errors, max(hour, 1)))
        end_s = begin_s + (hour + 1) * HOUR_S
        exponent, low, high, days = (
            float(evidence[key][row])
            for key in ("growth_exponent", "growth_exponent_low", "growth_exponent_high", "correctable_error_days")
        )
        told = f"insufficient events ({days:.0f} error-days)" if days == days else "insufficient events (no day yet)"
        growth = told if np.isnan(exponent) else f"{exponent:.2f} ({low:.2f} to {high:.2f})"
        before = "" if ticket_s is None else f"{(ticket_s - end_s) / 60:.0f} min"
        lines.append(f"| to {_moment(end_s)} | {run.errors[row, hour]:.0f} | {p[row]:.2g} | {growth} | {before} |")
    return "\n".join(lines)


def _moment(time_s: float) -> str:
    return datetime.fromtimestamp(time_s, UTC).strftime("%Y-%m-%d %H:%M")
