"""Back-tests with their figures: the proof fleet from a recording and from a real server, and the protocol study.

proof: 256 GPUs x 45 days from Parquet and from a VictoriaMetrics; the same alerts, at most 5 minutes and 4 GiB each.
protocol: 64 GPUs x 180 days, three test blocks of four weeks, thresholds from calibration blocks; prints its table.
Exit code 1 if a target is missed. --quick takes the small proof fleet: shows that it runs, not how fast.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from healthsvc.fleet import DAY_S
from healthsvc.telemetry.recorded import RecordedSource
from tests import servers
from tests.recording_series import series_of

ROOT = Path(__file__).resolve().parents[1]
HEALTHSVC = (sys.executable, "-m", "healthsvc")
MOST_S, MOST_MIB = 300.0, 4096.0


@dataclass(frozen=True)
class Run:
    """One back-test: its document, wall seconds, and the largest process in MiB."""

    document: dict[str, Any]
    wall_s: float
    peak_mib: float

    @property
    def alerts(self) -> list[tuple[str, ...]]:
        """What was raised, for comparing sources."""
        rows = self.document["evaluations"][0]["alerts"]
        return [(a["scope"], a["class"], a["grade"], a["raised_at"], str(a["cleared_at"])) for a in rows]


def simulate(scenario: str, seed: int, out: Path) -> RecordedSource:
    """A recording of one of the shipped scenarios."""
    path = ROOT / "data" / "fixtures" / f"{scenario}.toml"
    command = [*HEALTHSVC, "simulate", "--scenario", str(path), "--seed", str(seed), "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    return RecordedSource(out)


def backtest(recording: RecordedSource, state: Path, *options: str, url: str | None = None) -> Run:
    """The command as a user types it."""
    source = ("--prometheus-url", url) if url else ("--recorded", str(recording.directory))
    labels = ("--incidents", str(recording.directory / "incidents.csv"), "--known-until", str(recording.labels_end))
    environment = {**os.environ, "HEALTHSVC_HISTORY_TOPOLOGY_FILE": str(recording.directory / "topology.csv")}
    command = [*HEALTHSVC, "backtest", *source, *labels, "--state-dir", str(state), "--format", "json", *options]
    began_s = time.monotonic()
    with tempfile.TemporaryFile() as out, subprocess.Popen(command, stdout=out, env=environment) as process:
        # Of this child and those it waited for; getrusage would be the largest of all children so far.
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        answer = out.read()
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return Run(json.loads(answer), time.monotonic() - began_s, usage.ru_maxrss / 1024)


def proof(scenario: str, seed: int, *, server: bool) -> bool:
    """From Parquet, and from a VictoriaMetrics that holds the same samples. Whether all targets are met."""
    with tempfile.TemporaryDirectory() as folder:
        recording = simulate(scenario, seed, Path(folder) / "recording")
        parquet = backtest(recording, Path(folder) / "parquet")
        told("proof fleet from Parquet", parquet)
        met = parquet.wall_s <= MOST_S and parquet.peak_mib <= MOST_MIB
        if not server:
            return met
        if reason := servers.missing("victoria-metrics"):
            print(f"from a server: not run, {reason}")
            return met
        with servers.victoria_metrics(Path(folder) / "server") as victoria_metrics:
            start_s, end_s = recording.span()
            for day in range(int((end_s - start_s) // DAY_S) + 1):
                first_s = start_s + day * DAY_S
                for batch in series_of(recording, first_s - recording.step_s, min(first_s + DAY_S, end_s + 1) - 1):
                    servers.import_series(victoria_metrics.url, batch)
            end = str(parquet.document["evaluations"][0]["window"][1])
            live = backtest(recording, Path(folder) / "live", "--end", end, url=victoria_metrics.url)
        told("proof fleet from VictoriaMetrics", live)
        same = live.alerts == parquet.alerts
        print(f"the same {len(parquet.alerts)} alerts from both: {'yes' if same else 'NO'}")
        return met and same and live.wall_s <= MOST_S and live.peak_mib <= MOST_MIB


def protocol(seed: int) -> bool:
    """Three test blocks of four weeks, a gap of one week, thresholds from the calibration blocks."""
    with tempfile.TemporaryDirectory() as folder:
        recording = simulate("protocol", seed, Path(folder) / "recording")
        labels = ("--incidents", str(recording.directory / "incidents.csv"))
        blocks = ("--horizon-days", "7", "--train-days", "30")
        command = [*HEALTHSVC, "backtest", "--recorded", str(recording.directory), *labels, *blocks]
        return subprocess.run([*command, "--state-dir", f"{folder}/state"], check=False).returncode == 0


def told(what: str, run: Run) -> None:
    """The figures of a run, on one line."""
    print(f"{what}: {run.wall_s:.0f} s (<= {MOST_S:.0f}), largest process {run.peak_mib:.0f} MiB (<= {MOST_MIB:.0f})")


def main() -> None:
    """Run what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["proof", "protocol"], help="proof, protocol; default: both")
    parser.add_argument("--seed", type=int, default=101, help="a development seed of data/fixtures/seeds.toml")
    parser.add_argument("--no-server", action="store_true", help="the proof fleet from Parquet only")
    parser.add_argument("--quick", action="store_true", help="the small proof fleet: 32 GPUs, 30 days")
    given = parser.parse_args()
    met = True
    if "proof" in given.what:
        met &= proof("proof-small" if given.quick else "proof", given.seed, server=not given.no_server)
    if "protocol" in given.what:
        met &= protocol(given.seed)
    sys.exit(0 if met else 1)


if __name__ == "__main__":
    main()
