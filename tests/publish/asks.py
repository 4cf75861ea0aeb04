"""Requests to an application in this process, and a board to serve."""

import asyncio
from dataclasses import replace
from typing import Any

import httpx
from fastapi import FastAPI

from healthsvc.alerts import AlertPolicy, AlertState, Decision, decide
from healthsvc.publish.board import Board, ServiceStatus
from healthsvc.publish.exposition import MetricsPage
from healthsvc.publish.rest import build_app
from tests.reports import NOW_S, five_gpu_report, five_gpu_snapshot

CLOCK_S = 1000.0
READY = ServiceStatus(ready=True, last_cycle_s=CLOCK_S - 30, heartbeat_s=CLOCK_S - 1)


def five_gpu_decision() -> Decision:
    """Several alerts stand, and one is held."""
    policy = replace(AlertPolicy(), trend_hold_s=600.0)
    state = decide(AlertState(), five_gpu_report(), NOW_S - 600, policy).state
    return decide(state, five_gpu_report(), NOW_S, policy)


def ready_board() -> Board:
    return Board(five_gpu_snapshot(), five_gpu_decision(), READY)


def app_of(board: Board) -> FastAPI:
    page = MetricsPage(lambda: b"own 1\n")
    page.publish(b"fleet 1\n", until_s=CLOCK_S + 1)
    return build_app(board, page, cycle_s=60.0, clock=lambda: CLOCK_S)


def get(app: FastAPI, path: str, **params: Any) -> httpx.Response:
    """One GET; an exception inside the application is its 500, as over a socket."""

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://healthsvc") as client:
            return await client.get(path, params=params)

    return asyncio.run(ask())
