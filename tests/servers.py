"""Real servers: Prometheus, VictoriaMetrics and Alertmanager on free loopback ports, in temporary folders."""

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

READY_WITHIN_S = 20.0


@dataclass(frozen=True)
class Series:
    """One series to be stored: name and labels, and its samples as (unix seconds, value)."""

    metric: str
    labels: Mapping[str, str]
    samples: Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Server:
    """A server that answers at `url`; what it logs is in `log`."""

    url: str
    log: Path
    pid: int

    def forget_peak(self) -> None:
        """Let its peak memory begin anew, at what it holds now."""
        Path(f"/proc/{self.pid}/clear_refs").write_text("5")

    def peak_mib(self) -> float:
        """The most memory it has held since it started, or since `forget_peak`; files that it maps included."""
        status = Path(f"/proc/{self.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) / 1024.0


def missing(*programs: str) -> str:
    """Why tests with these programs cannot run; "" if they can."""
    absent = [program for program in programs if not shutil.which(program)]
    return f"not installed: {', '.join(absent)}; run scripts/servers.sh" if absent else ""


def free_port() -> int:
    """A loopback port that was free a moment ago."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def _running(command: Sequence[str], url: str, ready: str, folder: Path) -> Iterator[Server]:
    log = folder / "server.log"
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder)
        try:
            _wait(process, url + ready, log)
            yield Server(url, log, process.pid)
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait(10)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < deadline:
        if process.poll() is not None:
            break
        try:
            with urllib.request.urlopen(url, timeout=2):  # noqa: S310 - our own loopback server
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.05)
    raise RuntimeError(f"{url} was not ready within {READY_WITHIN_S:g} s; its log ends with\n{log.read_text()[-2000:]}")


@contextmanager
def prometheus(
    folder: Path,
    series: Iterable[Series] = (),
    config: str = "scrape_configs: []\n",
    flags: Sequence[str] = (),
    port: int | None = None,
) -> Iterator[Server]:
    """A Prometheus that holds `series`, and what is in folder/data already; on `port`, where it has to come back."""
    folder.mkdir(parents=True, exist_ok=True)
    data = folder / "data"
    backfill(data, series)
    (folder / "prometheus.yml").write_text(config)
    address = f"127.0.0.1:{port or free_port()}"
    command = [
        "prometheus",
        "--config.file=prometheus.yml",
        f"--storage.tsdb.path={data}",
        "--storage.tsdb.retention.time=100y",
        f"--web.listen-address={address}",
        "--web.enable-lifecycle",
        "--web.enable-remote-write-receiver",
        *flags,
    ]
    with _running(command, f"http://{address}", "/-/ready", folder) as server:
        yield server


@contextmanager
def victoria_metrics(folder: Path, series: Iterable[Series] = (), flags: Sequence[str] = ()) -> Iterator[Server]:
    """A VictoriaMetrics that holds `series`."""
    folder.mkdir(parents=True, exist_ok=True)
    address = f"127.0.0.1:{free_port()}"
    command = [
        "victoria-metrics",
        f"-storageDataPath={folder / 'data'}",
        f"-httpListenAddr={address}",
        "-retentionPeriod=100y",
        *flags,
    ]
    with _running(command, f"http://{address}", "/health", folder) as server:
        import_series(server.url, series)
        yield server


@contextmanager
def alertmanager(folder: Path, config: str = "", flags: Sequence[str] = ()) -> Iterator[Server]:
    """An Alertmanager that stands alone and, unless `config` says otherwise, notifies nobody."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "alertmanager.yml").write_text(config or "route: {receiver: none}\nreceivers: [{name: none}]\n")
    address = f"127.0.0.1:{free_port()}"
    command = [
        "prometheus-alertmanager",
        "--config.file=alertmanager.yml",
        f"--storage.path={folder / 'data'}",
        f"--web.listen-address={address}",
        "--cluster.listen-address=",
        *flags,
    ]
    with _running(command, f"http://{address}", "/-/ready", folder) as server:
        yield server


def _labels(series: Series) -> str:
    escaped = ((k, v.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")) for k, v in series.labels.items())
    return ",".join(f'{k}="{v}"' for k, v in escaped)


def openmetrics(series: Iterable[Series]) -> Iterator[str]:
    """The series as OpenMetrics text, all gauges: a counter would have to be named _total."""
    by_name: dict[str, list[Series]] = {}
    for one in series:
        by_name.setdefault(one.metric, []).append(one)
    for name, group in by_name.items():
        yield f"# TYPE {name} gauge\n"
        for one in group:
            head = f"{name}{{{_labels(one)}}}"
            yield from (f"{head} {value!r} {time_s!r}\n" for time_s, value in one.samples)
    yield "# EOF\n"


def backfill(data: Path, series: Iterable[Series]) -> None:
    """Write `series` as blocks into a Prometheus data folder."""
    series = list(series)
    if not series:
        return
    text = data.parent / "backfill.om"
    with text.open("w") as out:
        out.writelines(openmetrics(series))
    # The flag is hidden and must come first; without it the whole file is parsed again for every two hours.
    command = ["promtool", "tsdb", "create-blocks-from", "--max-block-duration=240h", "openmetrics"]
    made = subprocess.run([*command, str(text), str(data)], capture_output=True, text=True, check=False)
    if made.returncode:
        raise RuntimeError(f"promtool could not write the blocks: {made.stderr[-2000:]}")
    text.unlink()


def import_series(url: str, series: Iterable[Series]) -> None:
    """Send `series` to a VictoriaMetrics, and make them visible."""
    lines = [
        json.dumps(
            {
                "metric": {"__name__": one.metric, **one.labels},
                "values": [value for _, value in one.samples],
                "timestamps": [round(time_s * 1000) for time_s, _ in one.samples],
            }
        )
        for one in series
    ]
    if lines:
        body = "\n".join(lines).encode()
        urllib.request.urlopen(f"{url}/api/v1/import", data=body, timeout=30).close()  # noqa: S310
        urllib.request.urlopen(f"{url}/internal/force_flush", timeout=30).close()  # noqa: S310
