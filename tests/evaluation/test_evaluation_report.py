"""The result object: rows, document, frame."""

import json
import math
import time
from dataclasses import replace

import pytest

from healthsvc.evaluation.episodes import Drop, label_episodes
from healthsvc.evaluation.exact import rate
from healthsvc.evaluation.places import places_of
from healthsvc.evaluation.probability import probability_metrics
from healthsvc.evaluation.report import Evaluation, evaluate
from healthsvc.fleet import GpuId, Placement, build_topology
from tests.evaluation.cases import ALERTS, EXPOSURE_GPU_MONTHS, KNOWN_UNTIL_S, LABELS, LOOP, day, episodes, label


def case(start: float = 0, end: float = 100) -> Evaluation:
    found = episodes(*LABELS, label("GPU-z", "memory", 5, line=9))
    window = (day(start), day(end))
    probability = {"memory 7d": probability_metrics([0.5, math.nan], [1, 0])}
    return evaluate(
        "healthsvc", ALERTS, found, window, KNOWN_UNTIL_S, EXPOSURE_GPU_MONTHS, probability=probability, notes=["few"]
    )


def test_gpu_classes_are_counted_apart_from_domains() -> None:
    found = case()
    assert found.result().precision == rate(2, 4)
    assert found.result(selection="throttling").recall == rate(1, 1)
    assert found.result("degrading").alerts == 0
    with pytest.raises(KeyError, match="failure/gpu"):
        found.result("failure", "nvlink")


def test_every_class_and_grade_has_a_row_even_without_events() -> None:
    rows = case().to_rows()
    assert [(row["grade"], row["class"]) for row in rows[:5]] == [
        ("failure", name) for name in ("thermal", "memory", "device_loss", "throttling", "gpu")
    ]
    assert len(rows) == 10
    memory = rows[1]
    assert (memory["precision_ratio"], memory["precision_n"]) == (pytest.approx(2 / 3), 3)
    assert memory["lead_p50_s"] == 7 * 86_400
    assert math.isnan(rows[0]["recall_with_precursor_ratio"]) is False


def test_the_document_is_plain_json_and_tells_every_alert_and_missed_incident() -> None:
    document = json.loads(json.dumps(case().to_document(), allow_nan=False))
    alerts = {row["raised_at"]: row for row in document["alerts"]}
    assert len(alerts) == 7
    first = alerts["2026-01-08T00:00:00Z"]
    assert first["matched_incident"] == "GPU-a memory 2026-01-15T00:00:00Z"
    assert (first["outcome"], first["cleared_at"], first["probability"]) == ("true", None, None)
    assert alerts["2026-02-05T00:00:00Z"]["decoy"] == "constant_hot"
    assert alerts["2026-02-04T00:00:00Z"]["wrong_class"] is True
    assert alerts["2026-02-23T12:00:00Z"]["members"] == ["GPU-a", "GPU-b", "GPU-c"]
    missed = [(row["scope"], row["class"]) for row in document["missed"] if row["alert_grade"] == "failure"]
    assert missed == [("GPU-c", "thermal"), ("GPU-a", "memory")]
    assert {row["id"] for row in document["incidents"]} >= {a["matched_incident"] for a in alerts.values()} - {None}
    assert document["dropped_labels"] == [
        {
            "scope": "GPU-z",
            "class": "memory",
            "start": "2026-01-10T00:00:00Z",
            "line": 9,
            "reason": Drop.UNKNOWN_SCOPE.value,
        }
    ]
    assert document["probability"]["memory 7d"]["unknown"] == 1
    assert document["probability"]["memory 7d"]["slope"]["value"] is None
    assert document["notes"] == ["few"]


def test_the_document_has_intervals_by_gpu_and_by_rack_and_the_costs_of_thresholds() -> None:
    document = case().to_document()
    assert document == case().to_document()  # drawn with a fixed seed
    rows = {(row["grade"], row["class"]): row["clustered"] for row in document["metrics"]}
    ours = rows["failure", "gpu"]
    assert (ours["gpu"]["precision"]["value"], ours["gpu"]["precision"]["n"]) == (0.5, 3)
    assert ours["rack"]["precision"]["n"] == 2  # GPU-a and GPU-b share r1
    assert ours["gpu"]["recall"]["lower"] <= ours["gpu"]["recall"]["value"] <= ours["gpu"]["recall"]["upper"]
    assert rows["failure", "throttling"] == {"gpu": None, "rack": None}
    cost = document["probability"]["memory 7d"]["cost"]
    assert len(cost["cost"]) == len(cost["ratios"]) == len(cost["best"])
    assert len(cost["cost"][0]) == len(cost["thresholds"])


def test_a_document_of_256_gpus_takes_less_than_two_seconds() -> None:
    gpus = tuple(GpuId(f"GPU-{i:03d}", f"n{i // 8}", str(i % 8)) for i in range(256))
    placement = Placement({f"n{i}": {"rack": f"r{i // 2}"} for i in range(32)})
    found = label_episodes(
        [label(gpu.device_id, "memory", 40, 41) for gpu in gpus[::7]], places_of(gpus, build_topology(gpus, placement))
    )
    alerts = [replace(ALERTS[0], scope=g.device_id, members=frozenset({g.device_id})) for g in gpus[::5]]
    began = time.perf_counter()
    evaluate("healthsvc", alerts, found, (day(0), day(100)), KNOWN_UNTIL_S, 1000.0).to_document()
    assert time.perf_counter() - began < 2.0


def test_only_the_window_is_judged_but_alerts_may_speak_of_what_lies_around_it() -> None:
    found = case(5, 45)
    memory = found.result(selection="memory")
    assert memory.outcomes["true"] == 1  # of day 8; that of day 3 lies before
    assert memory.lead.p50_s == 7 * 86_400  # but foresaw the incident first
    assert LOOP not in {row["scope"] for row in found.to_document()["alerts"]}


def test_the_frame_has_the_rows() -> None:
    frame = case().to_frame()
    assert len(frame) == 10
    assert frame.set_index(["grade", "class"]).loc[("failure", "gpu"), "precision_ratio"] == 0.5
