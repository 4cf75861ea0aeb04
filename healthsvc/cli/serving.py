"""`healthsvc serve`."""

import os
import signal
import socket
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from healthsvc import __version__
from healthsvc.cli.common import (
    CANNOT_RUN,
    Config,
    PrometheusUrl,
    Recorded,
    State,
    chosen_settings,
    configure_logs,
    moment,
    plain_errors,
)
from healthsvc.config import Settings, SettingsError

if TYPE_CHECKING:
    from healthsvc.engine.build import Replay

DEMO_DIRECTORY = Path("var/demo")
DEMO_SEED = 7
DEMO_REPLAY_DAYS = 28.0
REPLAY_SPEED = 60.0
STOPS_WITHIN_S = 3.0  # a read that hangs is not waited for: what it would write is written whole or not at all


def serve(
    config: Config = None,
    prometheus_url: PrometheusUrl = None,
    recorded: Recorded = None,
    state_dir: State = None,
    alertmanager_url: Annotated[str | None, typer.Option(help="push alerts to this Alertmanager")] = None,
    replay_from: Annotated[str | None, typer.Option(help="replay from this time (RFC 3339) on")] = None,
    replay_speed: Annotated[
        float | None, typer.Option(min=0.1, max=100_000, help="times faster than the clock; default 60")
    ] = None,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(help="port to listen on; default 9920")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="say more")] = False,
) -> None:
    """Run the service. Without any source it serves the demo fleet: 64 simulated GPUs, replayed at 60 times."""
    configure_logs(verbose)
    with plain_errors():
        from healthsvc.engine.build import Replay

        settings = chosen_settings(
            config,
            prometheus_url,
            recorded,
            state_dir,
            alertmanager={"url": alertmanager_url},
            server={"host": host, "port": port},
        )
        from_s = moment(replay_from, "--replay-from")
        if settings.prometheus.url is None and settings.recorded.directory is None:
            settings, demo_s = demo_of(settings, state_dir)
            from_s = demo_s if from_s is None else from_s
        elif from_s is None and settings.recorded.directory:
            raise SettingsError("--recorded needs --replay-from: a recording has ended; say from when to replay it")
        elif from_s is None and replay_speed is not None:
            raise SettingsError(f"--replay-speed {replay_speed:g}: nothing is replayed; give --replay-from, or drop it")
        replay = None if from_s is None else Replay(from_s, replay_speed or REPLAY_SPEED)
        _serve(settings, replay)


def demo_of(settings: Settings, state_dir: Path | None) -> tuple[Settings, float]:
    """The demo fleet, simulated once, with state of its own unless one was given; and day 28, where things begin."""
    from healthsvc.engine.progress import Bar
    from healthsvc.engine.shipped import demo_scenario
    from healthsvc.fleet import DAY_S
    from healthsvc.simulator import load_scenario, write_recording

    scenario = load_scenario(demo_scenario())
    folder = DEMO_DIRECTORY / "recording"
    if not (folder / "recording.json").is_file():
        typer.echo("no Prometheus given: simulating the demo fleet once (64 GPUs, 30 days)", err=True)
        with Bar().share("simulating") as told:
            write_recording(scenario, folder, DEMO_SEED, progress=told)
    start_s = scenario.start.timestamp() if scenario.start else 0.0
    recorded = settings.recorded.model_copy(update={"directory": folder})
    store = settings.store.model_copy(update={"directory": state_dir or DEMO_DIRECTORY / "state"})
    demo = settings.model_copy(update={"recorded": recorded, "store": store})
    return demo, start_s + DEMO_REPLAY_DAYS * DAY_S


def _serve(settings: Settings, replay: "Replay | None") -> None:
    """The web server in this thread, the engine in another; either one's end ends both."""
    import uvicorn

    from healthsvc.engine.arena import keep_large_arrays
    from healthsvc.engine.build import open_service
    from healthsvc.engine.progress import Bar

    keep_large_arrays()
    with (
        _listen(settings.server.host, settings.server.port) as listener,
        open_service(settings, replay, Bar()) as (service, web),
    ):
        server = uvicorn.Server(uvicorn.Config(web, log_level="warning"))
        died = threading.Event()

        def run() -> None:
            try:
                while not (server.started or server.should_exit):  # first answer, then work: both want the interpreter
                    time.sleep(0.01)
                service.run()
            except BaseException:
                died.set()
                raise
            finally:
                server.should_exit = True

        # The web server hands a signal on after its own shutdown; by default that would kill us in mid-write.
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: service.stop.set())
        thread = threading.Thread(target=run, name="engine", daemon=True)
        thread.start()
        host, port = listener.getsockname()[:2]
        typer.echo(
            f"healthsvc {__version__} on http://{host}:{port}: /api/v1/gpus?sort=-risk  /metrics  /docs", err=True
        )
        server.run(sockets=[listener])
        service.stop.set()
        thread.join(STOPS_WITHIN_S)
    if died.is_set():
        raise typer.Exit(CANNOT_RUN)
    if thread.is_alive():  # the interpreter would wait for the read's own threads, retries and all
        os._exit(0)


def _listen(host: str, port: int) -> socket.socket:
    """The socket of the web server. Raises SettingsError if the address is taken or not ours."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as failure:
        raise SettingsError(
            f"server.host = {host}, server.port = {port}: {failure.strerror}; choose others with --host and --port"
        ) from None
