"""`healthsvc simulate`."""

from pathlib import Path
from typing import Annotated

import typer

from healthsvc.cli.common import moment, plain_errors


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
    with plain_errors():
        from healthsvc.engine.progress import Bar
        from healthsvc.engine.shipped import demo_scenario
        from healthsvc.simulator import load_scenario, write_recording

        chosen = load_scenario(scenario or demo_scenario()).with_fleet(gpus=gpus, days=days)
        with Bar().share("simulating") as told:
            folder = write_recording(chosen, out, seed, moment(start, "--start"), openmetrics, told)
    typer.echo(
        f"{folder}: {chosen.name}, seed {seed}; replay it with `healthsvc serve --recorded {folder} --replay-from T`"
    )
