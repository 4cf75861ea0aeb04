"""The measurements run; how fast is for `make bench` to say."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests import servers

SCRIPTS = Path(__file__).parent.parent / "scripts"


@pytest.mark.servers
def test_every_measurement_gives_its_figures() -> None:
    if reason := servers.missing("prometheus", "promtool"):
        pytest.skip(reason)
    done = subprocess.run(
        [sys.executable, SCRIPTS / "bench.py", "--quick", "--format", "json"], capture_output=True, text=True
    )
    assert done.returncode in (0, 1), done.stderr
    told = json.loads(done.stdout)
    parts = {"small", "large", "train", "trend", "memory", "cascade", "digest", "serve", "frame", "day", "fetch"}
    parts |= {"simulate"}
    assert parts == set(told["figures"])
    assert all(row["figure"] > 0 for row in told["rows"])
    missed = any(row["verdict"] == "missed" for row in told["rows"])
    assert done.returncode == int(missed)


@pytest.mark.drill
@pytest.mark.servers
def test_a_measured_back_test_tells_time_memory_and_that_both_sources_agree() -> None:
    if reason := servers.missing("victoria-metrics"):
        pytest.skip(reason)
    command = [sys.executable, str(SCRIPTS / "bench_backtest.py"), "proof", "--quick"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    parquet, server, same = done.stdout.splitlines()
    for line in (parquet, server):
        seconds, mib = map(float, re.findall(r"(\d+) (?:s|MiB) \(", line))
        assert seconds > 0
        assert 50 < mib < 4096  # a Python with numpy and pyarrow needs more than 50 MiB
    assert re.fullmatch(r"the same [1-9]\d* alerts from both: yes", same)
