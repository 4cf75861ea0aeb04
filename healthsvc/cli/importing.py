"""`healthsvc import`: logs and dumps as a recording."""

import time
from pathlib import Path
from typing import Annotated, Any

import typer

from healthsvc.cli.common import Format, FormatOption, configure_logs, plain_errors, show
from healthsvc.config import SettingsError


def import_logs(
    files: Annotated[list[Path], typer.Argument(help="nvidia-smi CSV or dmon logs, OpenMetrics dumps; .gz too")],
    out: Annotated[Path, typer.Option(help="folder to write; must be new", file_okay=False)],
    step: Annotated[int, typer.Option(min=1, max=3600, help="seconds a column of the recording")] = 60,
    timezone: Annotated[str, typer.Option(help="of log times that name none")] = "UTC",
    hostname: Annotated[str, typer.Option(help="of logs without UUID: their GPUs are then told apart by index")] = "",
    columns: Annotated[str, typer.Option(help="fields of CSV logs without header, as given to --query-gpu")] = "",
    format_: FormatOption = Format.TABLE,
) -> None:
    """Turn logs into a recording that score, backtest and serve --recorded read. Exit code 1 if a file gave nothing."""
    configure_logs()
    with plain_errors():
        from healthsvc.engine.progress import Bar
        from healthsvc.fleet import DAY_S
        from healthsvc.telemetry.imports import ImportFileError, ImportSpec, import_files
        from healthsvc.telemetry.imports.times import check_zone

        try:
            fields = tuple(name.strip() for name in columns.split(",") if name.strip())
            ahead_s = time.time() + DAY_S  # a zone taken for another is no broken clock
            spec = ImportSpec(float(step), check_zone(timezone), hostname, fields, now_s=ahead_s)
            with Bar().share("importing") as told:
                found = import_files(files, out, spec, told)
        except (ImportFileError, ValueError) as failure:
            raise SettingsError(str(failure)) from None
    from healthsvc.fleet import rfc3339

    rows: list[dict[str, Any]] = [
        {
            "file": str(report.path),
            "kind": report.kind,
            "rows": report.rows,
            "samples": report.samples,
            "note": report.note,
        }
        for report in found.files
    ]
    show(rows, format_, f"Imported {len(found.gpus)} GPUs, {rfc3339(found.start_s)} to {rfc3339(found.end_s)}")
    if format_ is Format.TABLE:
        show([{"signal": name, "gpus": count} for name, count in found.signals.items()], format_, "Signals")
        rejected = [{"what": what, "reason": why, "count": count} for (what, why), count in found.rejected.items()]
        if rejected:
            show(rejected, format_, "Rejected")
        if found.unused:
            typer.echo(f"Not used: {', '.join(found.unused)}")
        typer.echo(f"{found.folder}: score it with `healthsvc score --recorded {found.folder}`")
    raise typer.Exit(int(any(not report.samples for report in found.files)))
