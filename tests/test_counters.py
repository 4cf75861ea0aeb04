"""The counters that ship for dcgm-exporter: valid files, and nothing that a forecaster reads is missing."""

import csv
import io
import re
from pathlib import Path

import pytest

from healthsvc.engine.counters import FILES, counters, counters_directory, lines_for
from healthsvc.engine.shipped import load_priors
from healthsvc.engine.survey import Reader
from healthsvc.fleet import Signal
from healthsvc.forecasters import shipped_domain_forecasters, shipped_forecasters
from healthsvc.telemetry.catalogue import dcgm
from healthsvc.telemetry.catalogue.rows import CLASSIC, DCGM_46, DCGM_49

READERS: tuple[Reader, ...] = (*shipped_forecasters(load_priors()), *shipped_domain_forecasters(load_priors()))
NEEDED = frozenset(signal for reader in READERS for group in (*reader.requires, reader.uses) for signal in group)
NAMES = {CLASSIC: (CLASSIC,), DCGM_46: (DCGM_46, CLASSIC), DCGM_49: (DCGM_49, DCGM_46, CLASSIC)}


@pytest.mark.parametrize("generation", FILES)
def test_the_counters_are_a_valid_dcgm_exporter_file(generation: str) -> None:
    text = (counters_directory() / FILES[generation]).read_text()
    rows = [row for row in csv.reader(io.StringIO(text)) if row and not row[0].startswith("#")]
    assert all(len(row) == 3 for row in rows)
    assert {row[1].strip() for row in rows} <= {"gauge", "counter", "label"}
    assert all(re.fullmatch(r"DCGM_(FI_(DEV|SYSTEM)|EXP)_[A-Z0-9_]+|DCGM_FI_DRIVER_VERSION", row[0]) for row in rows)
    assert len({row[0] for row in rows}) == len(rows)
    assert all(row[2].strip() for row in rows)


@pytest.mark.parametrize("generation", FILES)
def test_every_signal_that_a_forecaster_reads_has_its_newest_name_in_the_file(generation: str) -> None:
    fields = counters(generation)
    for signal in NEEDED:
        rows = [row for row in dcgm.ROWS if row.signal is signal and row.metric.startswith("DCGM_FI_")]
        own = next(
            (found for since in NAMES[generation] if (found := [r.metric for r in rows if r.since == since])), []
        )
        if rows:
            assert fields.keys() & own, f"{signal} is missing in {FILES[generation]}: {own}"
            stale = {row.metric for row in rows} - set(own)
            assert not fields.keys() & stale, f"{FILES[generation]} has {stale} of another generation"


def test_counters_of_a_name_that_counts_are_typed_so() -> None:
    for generation in FILES:
        for field, line in counters(generation).items():
            if field.endswith("_TOTAL"):
                assert line.split(",")[1].strip() == "counter", line


def test_lines_to_enable_are_those_of_the_file() -> None:
    lines = lines_for(DCGM_49, {Signal.ENERGY})
    assert lines == ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL, counter, Energy since the driver was loaded (J)",)
    assert lines_for("nothing known", {Signal.ENERGY}) == ()


def test_the_wheel_carries_the_counters() -> None:
    project = (Path(__file__).parent.parent / "pyproject.toml").read_text()
    assert '"deploy/dcgm-exporter" = "healthsvc/_counters"' in project
