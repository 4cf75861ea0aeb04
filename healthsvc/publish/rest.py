"""The REST interface. Handlers read the board's snapshot and nothing behind it: no request waits on a server."""

import time
from collections.abc import Callable
from typing import Annotated

from fastapi import FastAPI, Query, Request
from fastapi.responses import PlainTextResponse, RedirectResponse, Response
from fastapi_offline import FastAPIOffline

from healthsvc import __version__
from healthsvc.publish.board import MISSED_CYCLES, Board
from healthsvc.publish.domain_models import DomainPage, FleetAnswer, IncidentModel, IncidentPage, StateName
from healthsvc.publish.domain_views import actions_of
from healthsvc.publish.exposition import MetricsPage
from healthsvc.publish.models import (
    AlertsAnswer,
    BandName,
    ClassName,
    GpuDetail,
    GpuPage,
    SignalsAnswer,
    SortName,
)
from healthsvc.publish.problems import ProblemError, install_problems, problem_responses
from healthsvc.publish.signal_views import signals_answer
from healthsvc.publish.times import timestamp
from healthsvc.publish.views import SnapshotView, alert_model, held_model

MOST_A_PAGE = 1000
LEAST_HEARTBEAT_S = 60.0


def why_unready(board: Board, cycle_s: float, now_s: float) -> tuple[str, ...]:
    """Why the service cannot be relied on at this moment of the monotonic clock; empty when it can."""
    status, reasons = board.status, list(board.status.reasons)
    told = status.source_ok or any(status.source_message in reason for reason in reasons)
    if board.snapshot is None:
        if status.backfill_days:
            reasons.append("backfill {}/{} days".format(*status.backfill_days))
        if not told:
            reasons.append(f"source: {status.source_message}")
        return tuple(reasons or ["no cycle has finished yet"])
    if status.last_cycle_s is not None and now_s - status.last_cycle_s >= MISSED_CYCLES * cycle_s:
        source = "" if told else f"; source: {status.source_message}"
        reasons.append(
            f"the last cycle ended {now_s - status.last_cycle_s:.0f} s ago, one is due every {cycle_s:g} s{source}"
        )
    return tuple(reasons) if reasons or status.ready else ("the service is starting or stopping",)


Application = FastAPI  # so that the wiring can name it without importing the framework


def build_app(board: Board, page: MetricsPage, cycle_s: float, clock: Callable[[], float] = time.monotonic) -> FastAPI:
    """The application. `clock` is the monotonic clock that the board's status uses; a cycle is due every `cycle_s`."""
    app = FastAPIOffline(  # its pages come from here: on call, there may be no way out to a CDN
        redoc_url=None,
        title="healthsvc",
        version=__version__,
        description="Predictive GPU health: which GPU, which failure, how likely, how soon, why, and what to do.",
        responses=problem_responses(422, 500),
    )
    install_problems(app)
    last: list[SnapshotView] = []

    def view() -> SnapshotView:
        snapshot = board.snapshot
        if snapshot is None:
            raise ProblemError(503, "not ready: " + "; ".join(why_unready(board, cycle_s, clock())))
        if not last or last[0].snapshot is not snapshot:
            last[:] = [SnapshotView(snapshot)]
        return last[0]

    @app.get("/", include_in_schema=False)
    def root() -> RedirectResponse:
        return RedirectResponse("/docs")

    @app.get("/metrics", tags=["operations"], summary="Prometheus text format", response_class=PlainTextResponse)
    def metrics(request: Request) -> Response:
        body, headers = page.body(request.headers.get("accept-encoding", ""), clock())
        return Response(body, headers=headers)

    @app.get(
        "/-/healthy",
        tags=["operations"],
        summary="200 while the main loop is alive",
        response_class=PlainTextResponse,
        responses=problem_responses(503),
    )
    def healthy() -> str:
        silent_s = clock() - board.status.heartbeat_s
        if silent_s >= max(MISSED_CYCLES * cycle_s, LEAST_HEARTBEAT_S):
            raise ProblemError(
                503, f"the main loop has given no sign of life for {silent_s:.0f} s; restart the service"
            )
        return "healthy"

    @app.get(
        "/-/ready",
        tags=["operations"],
        summary="200 while reports are fresh",
        response_class=PlainTextResponse,
        responses=problem_responses(503),
    )
    def ready() -> str:
        if reasons := why_unready(board, cycle_s, clock()):
            raise ProblemError(503, "not ready: " + "; ".join(reasons))
        return "ready"

    @app.get("/api/v1/gpus", tags=["fleet"], summary="GPUs, most urgent first", responses=problem_responses(503))
    def gpus(
        band: Annotated[BandName | None, Query(description="only this band")] = None,
        failure_class: Annotated[ClassName | None, Query(alias="class", description="only where it leads")] = None,
        hostname: Annotated[str | None, Query(description="only this host")] = None,
        rack: Annotated[str | None, Query(description="only this rack")] = None,
        sort: Annotated[SortName, Query(description="-risk: open events first, then risk at 7 d")] = "-risk",
        limit: Annotated[int, Query(ge=1, le=MOST_A_PAGE)] = 100,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> GpuPage:
        now = view()
        rows = now.select(band, failure_class, hostname, rack, sort)
        items = [now.summary(row) for row in rows[offset : offset + limit].tolist()]
        return GpuPage(items=items, total=len(rows), limit=limit, offset=offset, as_of=now.as_of)

    @app.get(
        "/api/v1/gpus/{uuid}",
        tags=["fleet"],
        summary="Everything known on one GPU",
        responses=problem_responses(404, 503),
    )
    def gpu(uuid: str) -> GpuDetail:
        now = view()
        row = now.rows.get(uuid)
        if row is None:
            raise ProblemError(404, f"no GPU has the UUID {uuid!r}; GET /api/v1/gpus lists those that there are")
        decision = board.decision
        return now.detail(row, decision.firing, decision.held)

    @app.get("/api/v1/fleet", tags=["fleet"], summary="The fleet in numbers", responses=problem_responses(503))
    def fleet() -> FleetAnswer:
        return view().fleet(board.status, board.decision.firing)

    @app.get(
        "/api/v1/domains",
        tags=["fleet"],
        summary="Nodes, racks, loops, feeds and jobs, the likeliest to throttle first",
        responses=problem_responses(503),
    )
    def domains(
        layer: Annotated[str | None, Query(description="only this layer: node, rack, cooling_loop and so on")] = None,
        min_probability: Annotated[
            float, Query(ge=0, le=1, description="only where P(at least 3 GPUs throttle within 2 h) is at least this")
        ] = 0.0,
        limit: Annotated[int, Query(ge=1, le=MOST_A_PAGE)] = 100,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> DomainPage:
        now = view()
        found = now.domains.select(layer, min_probability)
        return DomainPage(
            items=[now.domains.domain(*each) for each in found[offset : offset + limit]],
            neighbours=now.domains.neighbours(),
            total=len(found),
            limit=limit,
            offset=offset,
            as_of=now.as_of,
        )

    @app.get(
        "/api/v1/incidents",
        tags=["alerts"],
        summary="Incidents, open ones first",
        responses=problem_responses(503),
    )
    def incidents(
        state: Annotated[StateName | None, Query(description="only in this state")] = None,
        limit: Annotated[int, Query(ge=1, le=MOST_A_PAGE)] = 100,
        offset: Annotated[int, Query(ge=0)] = 0,
    ) -> IncidentPage:
        now = view()
        found, actions = now.domains.incidents(state), actions_of(board.decision.firing)
        items = [now.domains.incident(each, actions) for each in found[offset : offset + limit]]
        return IncidentPage(items=items, total=len(found), limit=limit, offset=offset, as_of=now.as_of)

    @app.get(
        "/api/v1/incidents/{incident_id:path}",  # names of places are in it, and those may have slashes
        tags=["alerts"],
        summary="One incident",
        responses=problem_responses(404, 503),
    )
    def incident(incident_id: str) -> IncidentModel:
        now = view()
        found = next((each for each in now.report.incidents if each.id == incident_id), None)
        if found is None:
            raise ProblemError(
                404, f"no incident has the id {incident_id!r}; GET /api/v1/incidents lists those that there are"
            )
        return now.domains.incident(found, actions_of(board.decision.firing))

    @app.get(
        "/api/v1/signals",
        tags=["fleet"],
        summary="Which signals are there, and what each forecaster lacks",
        responses=problem_responses(503),
    )
    def signals() -> SignalsAnswer:
        survey = board.survey
        if survey is None:
            raise ProblemError(503, "not ready: " + "; ".join(why_unready(board, cycle_s, clock())))
        return signals_answer(survey)

    @app.get("/api/v1/alerts", tags=["alerts"], summary="Alerts that fire, and those held back with the reason")
    def alerts() -> AlertsAnswer:
        decision, snapshot = board.decision, board.snapshot
        return AlertsAnswer(
            firing=[alert_model(alert) for alert in decision.firing],
            held=[held_model(alert, why) for alert, why in decision.held],
            as_of=timestamp(snapshot.report.as_of_s) if snapshot else None,
        )

    return app
