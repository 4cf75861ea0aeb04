"""What a small fake server answers: one metric, one GPU, ten samples; and how it is asked."""

import json
from collections.abc import Sequence

import numpy as np
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.config import PrometheusSettings
from healthsvc.telemetry.prometheus import PrometheusSource

NAMES = "/api/v1/label/__name__/values"
QUERY = "/api/v1/query"
TIMES_S = np.arange(1.0, 11) * 60.0
GPU = {"UUID": "GPU-1", "gpu": "0", "Hostname": "n1"}


def answer(kind: str, result: Sequence[object], **more: object) -> dict[str, object]:
    return {"status": "success", "data": {"resultType": kind, "result": result}, **more}


def reading(labels: dict[str, str], value: str) -> dict[str, object]:
    """One series of an instant query's answer."""
    return {"metric": labels, "value": [600, value]}


def samples(request: Request) -> dict[str, object]:
    """One GPU at 50 C, in whatever form the query wants."""
    if "group by" in request.form["query"]:
        return answer("vector", [{"metric": GPU, "value": [600, "1"]}])
    return answer("matrix", [{"metric": GPU, "values": [[60 * k, "50"] for k in range(1, 11)]}])


def source(server: HTTPServer, **settings: object) -> PrometheusSource:
    values = {"url": server.url_for("/"), "attempts": 2, "timeout_s": 5, **settings}
    return PrometheusSource(PrometheusSettings.model_validate(values))


def queries(server: HTTPServer) -> int:
    return sum(request.path == QUERY for request, _ in server.log)


def json_response(body: dict[str, object]) -> Response:
    return Response(json.dumps(body), content_type="application/json")


def is_read(request: Request) -> bool:
    return "group by" not in request.form["query"]
