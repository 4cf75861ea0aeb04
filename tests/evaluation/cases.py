"""Three GPUs on two nodes of one loop, five incidents and seven alerts, small enough to be worked out by hand."""

from typing import Any

from healthsvc.evaluation.alert_episodes import AlertEpisode
from healthsvc.evaluation.episodes import Episodes, label_episodes
from healthsvc.evaluation.labels import Label
from healthsvc.evaluation.places import Places, places_of
from healthsvc.fleet import GpuId, Placement, build_topology

DAY_S, MINUTE_S = 86_400.0, 60.0
START_S = 1_767_571_200.0  # 2026-01-05T00:00:00Z
KNOWN_UNTIL_S = START_S + 100 * DAY_S
EXPOSURE_GPU_MONTHS = 3 * 100 / 30.4375
GPUS = (GpuId("GPU-a", "n1", "0"), GpuId("GPU-b", "n1", "1"), GpuId("GPU-c", "n2", "0"))
LOOP = "cooling_loop:l1"
PLACEMENT = Placement({"n1": {"cooling_loop": "l1", "rack": "r1"}, "n2": {"cooling_loop": "l1", "rack": "r2"}})
PLACES: Places = places_of(GPUS, build_topology(GPUS, PLACEMENT))


def day(number: float) -> float:
    return START_S + number * DAY_S


def label(scope: str, what: str, start: float, end: float = float("inf"), grade: str = "T2", **more: Any) -> Label:
    """A label by days."""
    grade = "" if what in ("maintenance", "none") else grade
    return Label(scope, day(start), day(end), what, grade, **{"source": "operator", **more})


def alert(scope: str, what: str, raised: float, cleared: float = float("inf"), **more: Any) -> AlertEpisode:
    """A failure-grade alert by days."""
    return AlertEpisode(scope, PLACES.of(scope), what, "failure", day(raised), day(cleared), **more)


def episodes(*labels: Label) -> Episodes:
    return label_episodes(labels, PLACES)


LABELS = (
    label("GPU-a", "memory", 10, 11, precursor=True),
    label("GPU-b", "device_loss", 20, 21, precursor=False),
    label("GPU-c", "thermal", 40, 41, precursor=True),
    label(LOOP, "throttling", 50, 50.1, precursor=True),
    label("GPU-a", "memory", 60, grade="T1", precursor=True),
    label("GPU-b", "none", 30, 35, scenario="constant_hot"),
)
ALERTS = (
    alert("GPU-a", "memory", 3),  # true: 7 days before the first incident
    alert("GPU-a", "memory", 8),  # true: the same incident again
    alert("GPU-b", "device_loss", 20.5),  # late: it is gone already
    alert("GPU-c", "memory", 30),  # false, wrong class: it is thermal that fails, 10 days later
    alert("GPU-b", "thermal", 31),  # false: it runs hot, and always has
    alert(LOOP, "throttling", 49.5),  # true: 12 hours before
    alert("GPU-b", "memory", 95),  # nobody can know yet: 30 days from here is beyond day 100
)
