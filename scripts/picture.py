"""Draws docs/demo.svg: what `healthsvc score` prints of the demo fleet, an hour and a quarter into its replay."""

import argparse
import csv
import io
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parent.parent
AT = "2026-02-02T01:15:00Z"
COLOURS = {"critical": "bold red", "degraded": "yellow", "watch": "cyan", "healthy": "green", "unknown": "magenta"}


def scored() -> list[dict[str, str]]:
    """The six most urgent GPUs of the demo fleet."""
    program = [sys.executable, "-m", "healthsvc"]
    with tempfile.TemporaryDirectory() as folder:
        recording, state = f"{folder}/recording", f"{folder}/state"
        subprocess.run([*program, "simulate", "--out", recording, "--seed", "7"], check=True, capture_output=True)
        command = [*program, "score", "--recorded", recording, "--state-dir", state, "--at", AT, "--format", "csv"]
        answer = subprocess.run([*command, "--limit", "6"], capture_output=True, text=True, check=False)
    return list(csv.DictReader(io.StringIO(answer.stdout)))


def main() -> None:
    """Write the picture."""
    argparse.ArgumentParser(description=__doc__).parse_args()
    table = Table(
        title="healthsvc score: the demo fleet, 64 GPUs", title_justify="left", box=SIMPLE_HEAD, padding=(0, 2, 1, 0)
    )
    for name in ("GPU", "band", "risk 7 d", "why", "what to do"):
        table.add_column(name, no_wrap=name in ("GPU", "band", "risk 7 d"))
    for row in scored():
        risk = f"{100 * float(row['risk_7d']):.1f} %"
        band = f"[{COLOURS[row['band']]}]{row['band']}[/]"
        table.add_row(f"{row['hostname']}/{row['index']}", band, risk, row["reason"], row["action"])
    console = Console(record=True, width=130, file=io.StringIO())
    console.print(table)
    target = ROOT / "docs" / "demo.svg"
    target.parent.mkdir(exist_ok=True)
    svg = console.export_svg(title="healthsvc")
    svg = re.sub(r"@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # a picture fetches nothing from elsewhere
    target.write_text(re.sub(r"<!--.*?-->\s*", "", svg, flags=re.DOTALL))
    print(target.relative_to(ROOT))


if __name__ == "__main__":
    main()
