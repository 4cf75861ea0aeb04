"""The command line as a user meets it: simulating a fleet, and the start of the service; one line of JSON.

Wall seconds, the least of some rounds: what people wait for. The service starts on a small recording with a state
directory in which an earlier run has left everything.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from datetime import UTC, datetime
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from tests.servers import free_port

HEALTHSVC = (sys.executable, "-m", "healthsvc")
START = "2026-01-05T00:00:00Z"
SCENARIO = "[fleet]\ngpus = {gpus}\n\n"  # healthy: how long it takes is no matter of faults
PATIENCE_S = 60.0


def healthsvc(*arguments: str | Path) -> None:
    """One command; its words on stderr only if it fails."""
    done = subprocess.run([*HEALTHSVC, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"healthsvc {' '.join(map(str, arguments))} failed:\n{done.stderr[-2000:]}")


def simulate(folder: Path, gpus: int, days: int) -> Path:
    """A recording of a fleet without faults."""
    scenario = folder / "scenario.toml"
    scenario.write_text(f'name = "bench"\ndays = {days}\nstep_s = 60\nstart = {START}\n\n{SCENARIO.format(gpus=gpus)}')
    out = folder / "recording"
    healthsvc("simulate", "--scenario", scenario, "--out", out)
    return out


def bench_simulate(gpus: int, days: int) -> dict[str, float]:
    """Once: long enough to be steady."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        simulate(Path(folder), gpus, days)
        return {"simulate_s": round(time.monotonic() - began, 2)}


def bench_serve(gpus: int, days: int, rounds: int) -> dict[str, float]:
    """Seconds from the command until GET /metrics answers 200, and until a fleet is in it."""
    with tempfile.TemporaryDirectory() as folder:
        recording, state = simulate(Path(folder), gpus, days), Path(folder) / "state"
        start_s = datetime.fromisoformat(START).timestamp()
        at = datetime.fromtimestamp(start_s + (days - 0.5) * 86_400.0, UTC).isoformat()
        healthsvc("train", "--recorded", recording, "--state-dir", state, "--at", at)
        began = [start_once(recording, state, at) for _ in range(rounds)]
    return {
        "first_metrics_s": round(min(first for first, _ in began), 2),
        "first_report_s": round(min(report for _, report in began), 2),
    }


def start_once(recording: Path, state: Path, at: str) -> tuple[float, float]:
    """One start: (first /metrics, first report in it), in seconds."""
    port = free_port()
    command = ("serve", "--recorded", recording, "--state-dir", state, "--replay-from", at, "--port", port)
    began = time.monotonic()
    process = subprocess.Popen(
        [*HEALTHSVC, *map(str, command), "--replay-speed", "1"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        first = 0.0
        while time.monotonic() - began < PATIENCE_S and process.poll() is None:
            page = metrics(port)
            if page is not None:
                first = first or time.monotonic() - began
                if b"\nhealthsvc_gpu_risk_ratio{" in page:
                    return first, time.monotonic() - began
            time.sleep(0.02)
    finally:
        process.terminate()
        process.wait()
    raise SystemExit(
        f"healthsvc serve gave no report within {PATIENCE_S:g} s; try: healthsvc {' '.join(map(str, command))}"
    )


def metrics(port: int) -> bytes | None:
    """The page, or None while nobody answers."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError):
        return None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=["serve", "simulate"])
    parser.add_argument("--gpus", type=int, default=64)
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    if given.part == "serve":
        print(json.dumps(bench_serve(given.gpus, given.days, given.rounds)))
    else:
        print(json.dumps(bench_simulate(given.gpus, given.days)))


if __name__ == "__main__":
    main()
