"""What the REST interface says of domains, incidents and the fleet. As in `models`: null means unknown, never zero."""

from typing import Literal

from pydantic import Field

from healthsvc.publish.models import Answer, BandName, ByHorizon, StatusModel, WorkloadModel

StateName = Literal["watch", "predicted", "active", "cleared"]


class NeighbourModel(Answer):
    """How much a throttling neighbour hastens an onset, all else that is known being equal."""

    layer: str = Field(description="of the neighbours")
    status: str = Field(description="estimated, or why there is no number")
    effect: float | None = Field(description="log odds a log(1 + throttling neighbours)")
    low: float | None = Field(description="of the 90 % interval")
    high: float | None
    onsets: int = Field(description="that it was learned from")


class DomainModel(Answer):
    """Some GPUs that could throttle together."""

    layer: str
    domain: str
    members: int = Field(description="observed GPUs in it")
    throttling: int = Field(description="of these, how many throttle by heat now")
    probability: dict[str, ByHorizon] = Field(description="that at least so many members throttle, by horizon")
    expected_lost_gpu_hours: float | None = Field(description="within the second horizon")
    watch: bool = Field(description="worth a look, though no alert")
    inferred: bool = Field(description="guessed from how its nodes move together; nobody named it")
    incident: str | None = Field(
        description="id of the incident that is open on it, or on a wider place of all its members"
    )
    workloads: list[WorkloadModel] = Field(description="pods on its GPUs, by name; not all if there are many")
    workloads_total: int


class DomainPage(Answer):
    """A page of the domains, and what is known of contagion."""

    items: list[DomainModel]
    neighbours: list[NeighbourModel]
    total: int = Field(description="domains that match, on all pages")
    limit: int
    offset: int
    as_of: str


class IncidentModel(Answer):
    """One common-cause event of a domain."""

    id: str
    layer: str
    domain: str
    state: StateName
    alertname: str = Field(description="fixed when it first alerts; empty while at watch")
    kind: str = Field(description="flow, supply, airflow, common or power; empty if nobody knows")
    cause: str
    evidence: str = Field(description="in what order sensors and GPUs moved")
    action: str = Field(description="of the alert that stands on it; empty without one")
    began: str | None = Field(description="when the first of them moved, as far as was seen")
    onset: str = Field(description="when it was opened")
    cleared: str | None
    first_mover: str
    members: list[str] = Field(description="UUIDs; not all if there are many")
    members_total: int
    workloads: list[WorkloadModel] = Field(description="pods on its GPUs, by name; not all if there are many")
    workloads_total: int


class IncidentPage(Answer):
    """Incidents: active, predicted, at watch, and those that have just cleared; the newest of each first."""

    items: list[IncidentModel]
    total: int
    limit: int
    offset: int
    as_of: str


class FleetAnswer(Answer):
    """The fleet in numbers."""

    gpus: int
    bands: dict[BandName, int]
    expected_failures: dict[str, dict[str, float]] = Field(description="service events expected, by class and horizon")
    incidents: list[IncidentModel]
    status: StatusModel
    as_of: str
