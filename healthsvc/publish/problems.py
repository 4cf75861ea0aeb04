"""Every error as application/problem+json (RFC 9457): what is wrong, with which value, and the cure."""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, Field
from starlette.exceptions import HTTPException

PROBLEM_JSON = "application/problem+json"
log = structlog.get_logger()


class Problem(BaseModel):
    """RFC 9457."""

    type: str = Field("about:blank", description="kind of problem; about:blank means that the status says it all")
    title: str = Field(description="short text of the status")
    status: int = Field(description="HTTP status")
    detail: str = Field(description="what is wrong here, and the cure")
    instance: str = Field(description="the path that was asked for")


class ProblemError(Exception):
    """Raised by a handler to answer with a problem."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status, self.detail = status, detail


def problem_responses(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """How these statuses look, for the OpenAPI document."""
    schema = {"schema": {"$ref": "#/components/schemas/Problem"}}
    return {
        status: {"model": Problem, "description": HTTPStatus(status).phrase, "content": {PROBLEM_JSON: schema}}
        for status in statuses
    }


def problem(request: Request, status: int, detail: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    """The answer itself."""
    body = Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=detail,
        instance=request.url.path,
    )
    return JSONResponse(body.model_dump(), status, headers, media_type=PROBLEM_JSON)


def install_problems(app: FastAPI) -> None:
    """Every error of `app` becomes a problem, whoever raises it."""

    @app.exception_handler(ProblemError)
    async def ours(request: Request, error: ProblemError) -> JSONResponse:
        return problem(request, error.status, error.detail)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        return problem(request, error.status_code, f"{error.detail}; /docs lists what there is", error.headers)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        wrong = [f"{'.'.join(map(str, e['loc']))} = {e.get('input')!r}: {e['msg']}" for e in error.errors()]
        return problem(request, 422, "; ".join(wrong))

    @app.exception_handler(Exception)
    async def unexpected(request: Request, error: Exception) -> JSONResponse:
        log.error("request failed", path=request.url.path, exc_info=error)
        return problem(request, 500, "the service failed on this request; its log has the cause")
