"""A running healthsvc: as a program of its own, or inside this process; and how to wait for what it should do."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import httpx
import requests

from healthsvc.config import Settings
from healthsvc.engine.build import Replay, open_service
from healthsvc.engine.service import Service
from tests.publish.asks import get
from tests.servers import free_port

T = TypeVar("T")

PROGRAM = [sys.executable, "-m", "healthsvc"]
STOPS_WITHIN_S = 15.0


def eventually(
    what: str, check: Callable[[], T | Literal[False] | None], within_s: float = 30.0, every_s: float = 0.1
) -> T:
    """The first result of `check` that is true; a server that does not answer yet is waited for."""
    deadline_s, last = time.monotonic() + within_s, "nothing"
    while time.monotonic() < deadline_s:
        try:
            if found := check():
                return found
            last = repr(found)
        except (requests.RequestException, KeyError, IndexError) as failure:
            last = repr(failure)
        time.sleep(every_s)
    raise AssertionError(f"{what}: not within {within_s:g} s; last answer {last}")


def variables(settings: dict[str, Any]) -> dict[str, str]:
    """{"cycle_step_s": 10} as environment variables of a program that sees no other settings."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("HEALTHSVC_")}
    return kept | {f"HEALTHSVC_{name}".upper(): str(value) for name, value in settings.items()}


def run_program(*arguments: str, folder: Path, **settings: Any) -> subprocess.CompletedProcess[str]:
    """A run of healthsvc that is expected to end by itself."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd=folder,
        env=variables(settings),
    )


@dataclass(frozen=True)
class Program:
    """A healthsvc in a process of its own, listening at `url`; what it says is in `log`."""

    url: str
    log: Path
    process: "subprocess.Popen[bytes]"

    def get(self, path: str) -> requests.Response:
        return requests.get(self.url + path, timeout=10)

    def json(self, path: str) -> Any:
        answer = self.get(path)
        answer.raise_for_status()
        return answer.json()


@contextmanager
def program(folder: Path, arguments: Sequence[str], port: int | None = None, **settings: Any) -> Iterator[Program]:
    """`healthsvc serve` with its state in folder/state, until the block ends."""
    port = port or free_port()
    command = [*PROGRAM, "serve", "--port", str(port), "--state-dir", str(folder / "state"), *arguments]
    log = folder / "healthsvc.log"
    with log.open("ab") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, cwd=folder, env=variables(settings))
    try:
        yield Program(f"http://127.0.0.1:{port}", log, process)
    finally:
        process.terminate()
        try:
            process.wait(STOPS_WITHIN_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(STOPS_WITHIN_S)


@dataclass(frozen=True)
class Inside:
    """A service whose loop runs in a thread of this process."""

    service: Service
    web: Any

    def get(self, path: str, **params: Any) -> httpx.Response:
        return get(self.web, path, **params)

    def metrics(self) -> str:
        return self.get("/metrics").text

    def failures(self, stage: str) -> float:
        """How often this stage has failed."""
        counted = self.service.self_metrics.registry.get_sample_value("healthsvc_failures_total", {"stage": stage})
        return counted or 0.0

    def unready(self) -> str:
        """What /-/ready complains of; "" while the service is ready, or has nothing to say yet."""
        answer = self.get("/-/ready")
        return str(answer.json()["detail"]) if answer.status_code == 503 else ""

    def as_of(self) -> str:
        return str(self.get("/api/v1/fleet").json().get("as_of", ""))

    def alerts(self) -> list[dict[str, str]]:
        """Labels of what fires."""
        return [alert["labels"] for alert in self.get("/api/v1/alerts").json()["firing"]]


@contextmanager
def inside(
    settings: Settings, replay: Replay | None = None, prepare: Callable[[Service], None] | None = None
) -> Iterator[Inside]:
    """A running service. prepare: changes the wired service before it starts."""
    with open_service(settings, replay) as (service, web):
        if prepare:
            prepare(service)
        thread = threading.Thread(target=service.run, name="engine")
        thread.start()
        try:
            yield Inside(service, web)
        finally:
            service.stop.set()
            thread.join(STOPS_WITHIN_S)
            assert not thread.is_alive(), "the engine did not stop"
