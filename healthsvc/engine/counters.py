"""Which lines of an exporter's configuration bring a signal: read from the files that ship, so that they cannot drift.

deploy/dcgm-exporter/counters-*.csv holds what the forecasters read, one file a generation of dcgm-exporter.
"""

from collections.abc import Collection
from functools import cache
from pathlib import Path

from healthsvc.engine.shipped import PACKAGE, first_existing
from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue import GPU_ROWS
from healthsvc.telemetry.catalogue.rows import CLASSIC, DCGM_46, DCGM_49

FILES = {CLASSIC: "counters-classic.csv", DCGM_46: "counters-renamed.csv", DCGM_49: "counters-units.csv"}


def counters_directory() -> Path:
    """deploy/dcgm-exporter of the checkout or of the installed wheel."""
    return first_existing(PACKAGE.parent / "deploy" / "dcgm-exporter", PACKAGE / "_counters")


@cache
def counters(generation: str) -> dict[str, str]:
    """{field: its line} of the shipped file, in the file's order. Raises KeyError, OSError."""
    lines = (counters_directory() / FILES[generation]).read_text("utf-8").splitlines()
    return {line.partition(",")[0].strip(): line for line in lines if line.strip() and not line.startswith("#")}


def lines_for(generation: str, signals: Collection[Signal]) -> tuple[str, ...]:
    """What to enable so that an exporter of this generation reports `signals`: lines of its CSV, or metric names for an
    exporter that has no such file. Empty where it reports none of them, or the generation is not known."""
    if generation in FILES:
        signal_of = {row.metric: row.signal for row in GPU_ROWS}
        return tuple(line for field, line in counters(generation).items() if signal_of.get(field) in signals)
    metrics = (row.metric for row in GPU_ROWS if row.since == generation and row.signal in signals)
    return tuple(dict.fromkeys(metrics))
