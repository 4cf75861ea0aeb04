"""The measurements run; how fast is for `make bench` to say."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers

BENCH = Path(__file__).parent.parent / "scripts" / "bench.py"


@pytest.mark.servers
def test_every_measurement_gives_its_figures() -> None:
    if reason := servers.missing("prometheus", "promtool"):
        pytest.skip(reason)
    done = subprocess.run([sys.executable, BENCH, "--quick", "--format", "json"], capture_output=True, text=True)
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)
    assert {"small", "large", "train", "digest", "serve", "fetch", "simulate"} == set(told["figures"])
    assert all(row["figure"] > 0 for row in told["rows"])
    missed = any(row["verdict"] == "missed" for row in told["rows"])
    assert done.returncode == int(missed)
