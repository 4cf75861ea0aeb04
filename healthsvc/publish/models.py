"""What the REST interface answers with. Times are RFC 3339 in UTC; null means unknown, never zero."""

import math
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

BandName = Literal["unknown", "healthy", "watch", "degraded", "critical"]
ClassName = Literal["thermal", "memory", "device_loss"]
SortName = Literal["risk", "-risk", "uuid", "-uuid", "hostname", "-hostname", "coverage", "-coverage"]
ByHorizon = dict[str, float | None]


def number(value: Any) -> float | None:
    """NaN, and anything else that JSON cannot say, is null; at most 6 digits."""
    return float(f"{value:.6g}") if math.isfinite(value) else None


class Answer(BaseModel):
    """`class` is a Python word, so the field is `failure_class` in here and `class` outside."""

    model_config = ConfigDict(populate_by_name=True, frozen=True)


class WorkloadModel(Answer):
    """The pod that held a GPU when it was seen last."""

    namespace: str
    pod: str
    container: str


class GpuSummary(Answer):
    """One line of the fleet."""

    uuid: str
    gpu: str = Field(description="index on the host")
    hostname: str
    model: str
    rack: str
    workload: WorkloadModel | None = Field(description="the pod that holds it; null: none, or nobody tells")
    band: BandName
    risk: ByHorizon = Field(description="probability of needing service, any class, by horizon")
    coverage: float | None = Field(description="share of the prior risk that is observed")
    failure_class: ClassName | None = Field(alias="class", description="the class that leads the risk at 7 d")
    open_event: bool = Field(description="a service event goes on, or a terminal fact stands")
    reasons: list[str]
    action: str


class GpuPage(Answer):
    """A page of the fleet."""

    items: list[GpuSummary]
    total: int = Field(description="GPUs that match, on all pages")
    limit: int
    offset: int
    as_of: str


class AlertModel(Answer):
    """An alert that stands."""

    fingerprint: str
    labels: dict[str, str]
    annotations: dict[str, str]
    raised_at: str


class HeldModel(Answer):
    """An alert that is wanted and does not fire, with the reason."""

    labels: dict[str, str]
    reason: str


class AlertsAnswer(Answer):
    """What fires and what is held back."""

    firing: list[AlertModel]
    held: list[HeldModel]
    as_of: str | None


class ClassRisk(Answer):
    """One failure class on one GPU."""

    failure_class: ClassName = Field(alias="class")
    source: Literal["calibrated", "prior"] = Field(description="prior: not yet proven on this site's own events")
    observed: bool = Field(description="false: no data on this class, its prior stands in")
    probability: dict[str, ByHorizon] = Field(
        description="by grade (T2: service event or worse; T1: terminal), horizon"
    )
    share: float | None = Field(description="part of the GPU's hazard at 7 d")
    time_to_limit_seconds: ByHorizon = Field(description="by quantile; null: no crossing expected")
    evidence: dict[str, float] = Field(description="what it rests on; names end in their unit")
    open_event: bool = Field(description="a T2 event that goes on")
    terminal: bool = Field(description="a T1 fact")


class GpuDetail(Answer):
    """Everything known on one GPU."""

    uuid: str
    gpu: str
    hostname: str
    model: str
    slot: str
    cluster: str
    places: dict[str, str] = Field(description="rack, cooling loop and so on, where known")
    workload: WorkloadModel | None = Field(description="the pod that holds it; null: none, or nobody tells")
    band: BandName
    risk: ByHorizon
    coverage: float | None
    classes: list[ClassRisk]
    headroom_celsius: ByHorizon = Field(description="limit minus temperature, by sensor")
    lost_since: str | None = Field(description="last seen then, although its node answers")
    reasons: list[str]
    action: str
    alerts: list[AlertModel]
    held: list[HeldModel]
    as_of: str


class StatusModel(Answer):
    """How the service is."""

    ready: bool
    reasons: list[str]
    missed_cycles: int
    source_ok: bool
    source_message: str
    backfill_days_done: int | None
    backfill_days_total: int | None
    replay_position: str | None = Field(description="data time, when a recording is replayed")
    trained_at: str | None


class MetricModel(Answer):
    """An exporter metric that is read as a signal."""

    metric: str
    generation: str = Field(description="of the exporter")
    unit: str
    why: str = Field(description="why that unit: its name, or what its values prove")
    conflict: bool = Field(description="the values contradict the name")
    gpus: int


class SignalModel(Answer):
    """One signal of the fleet."""

    signal: str = Field(description="canonical name; it ends in its base unit")
    layer: str = Field(description="gpu, or the places of which it speaks: node, cooling_loop")
    reporting: int = Field(description="GPUs or places with a sample in the newest columns")
    since: str | None = Field(description="first sample that the service has seen")
    missing: float | None = Field(description="share of the expected samples that is not there, of those that report")
    metrics: list[MetricModel]
    rejected: dict[str, int] = Field(description="samples that were no measurement since the start, by reason")


class LackModel(Answer):
    """What some GPUs lack."""

    any_of: list[str] = Field(description="any one of these signals would do")
    gpus: int


class ForecasterModel(Answer):
    """How many GPUs a forecaster serves, and what it lacks on the others."""

    name: str
    failure_class: str = Field(alias="class")
    readiness: Literal["ready", "degraded", "starved"] = Field(description="of the GPU that is served worst")
    ready: int
    degraded: int = Field(description="GPUs that lack something it could use")
    starved: int = Field(description="GPUs that it cannot speak for")
    starved_by: list[LackModel]
    degraded_by: list[LackModel]
    beyond_board: int = Field(description="of the starved: nothing can be enabled on such a board")


class SignalsAnswer(Answer):
    """The telemetry of the newest cycle."""

    gpus: int
    silent: int = Field(description="GPUs without any sample in it; not counted as starved")
    signals: list[SignalModel]
    forecasters: list[ForecasterModel]
    incomplete: bool = Field(description="the source says that something is missing in its newest answer")
    warnings: list[str]
    start: str
    as_of: str
