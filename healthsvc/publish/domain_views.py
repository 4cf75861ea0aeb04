"""Domains and incidents of one snapshot: put in order once and on demand, then a page costs its own length."""

from collections.abc import Iterable, Mapping
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from healthsvc.alerts import Alert
from healthsvc.fleet import LEAST_MEMBERS, DomainForecast, Incident, NeighbourEffect, Snapshot
from healthsvc.publish.domain_models import DomainModel, IncidentModel, NeighbourModel
from healthsvc.publish.models import WorkloadModel, number
from healthsvc.publish.times import horizon_label, timestamp

MOST_LISTED = 100  # UUIDs and pods; the totals tell of the others
THREE, SOON, A_DAY = LEAST_MEMBERS - 1, 1, -1  # of the axes of probability_at_least_k
STATES = ("active", "predicted", "watch", "cleared")  # in this order
STATUS_WORDS = {
    "estimated": "estimated",
    "insufficient": "too few onsets for an estimate",
    "not separable": "common cause or contagion, not separable",
}


class DomainView:
    """Reads one snapshot; keeps what it has derived from it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot, self.report = snapshot, snapshot.report

    @cached_property
    def domains(self) -> tuple[tuple[DomainForecast, int], ...]:
        """Every domain as a forecast and its row in it, by the chance to throttle within two hours, then a day."""
        found = [(forecast, row) for forecast in self.report.domains for row in range(len(forecast.domains))]
        soon, day = (
            np.concatenate([np.zeros(0), *(f.probability_at_least_k[:, THREE, h] for f in self.report.domains)])
            for h in (SOON, A_DAY)
        )
        order = np.lexsort((-_known(day), -_known(soon)))
        return tuple(found[i] for i in order.tolist())

    @cached_property
    def _open(self) -> list[Incident]:
        """What is further on comes last."""
        return [each for each in reversed(self.incidents()) if each.state != "cleared"]

    @cached_property
    def _incident_on(self) -> dict[tuple[str, str], str]:
        return {(each.layer, each.domain): each.id for each in self._open}

    @cached_property
    def _incident_of(self) -> dict[str, str]:
        """device_id -> id of the incident that it is in."""
        return {member: each.id for each in self._open for member in each.members}

    def _incident(self, place: tuple[str, str], members: Iterable[str]) -> str | None:
        """Id of the open incident on this place, or of the one that holds all its members."""
        held = {self._incident_of.get(member) for member in members}
        return self._incident_on.get(place) or (held.pop() if len(held) == 1 else None)

    def select(self, layer: str | None, least: float) -> list[tuple[DomainForecast, int]]:
        """Domains of this layer whose P(at least 3 throttle) within two hours is known and at least this; 0: all."""
        return [
            (forecast, row)
            for forecast, row in self.domains
            if (layer is None or forecast.domains[row][0] == layer)
            and (least <= 0 or forecast.probability_at_least_k[row, THREE, SOON] >= least)
        ]

    def domain(self, forecast: DomainForecast, row: int) -> DomainModel:
        """One line."""
        layer, name = forecast.domains[row]
        horizons = [horizon_label(horizon_s) for horizon_s in forecast.horizons_s]
        chances = forecast.probability_at_least_k[row].tolist()
        gpus = self.report.gpus
        members = [gpus[member].device_id for member in forecast.members[row].tolist()]
        pods = self._pods(members)
        return DomainModel(
            layer=layer,
            domain=name,
            members=len(forecast.members[row]),
            throttling=int(forecast.throttling[row]),
            probability={
                str(k): dict(zip(horizons, map(number, by_horizon), strict=True))
                for k, by_horizon in enumerate(chances, start=1)
            },
            expected_lost_gpu_hours=number(forecast.expected_lost_gpu_hours[row]),
            watch=bool(forecast.watch[row]),
            inferred=bool(forecast.inferred[row]),
            incident=self._incident((layer, name), members),
            workloads=pods[:MOST_LISTED],
            workloads_total=len(pods),
        )

    def neighbours(self) -> list[NeighbourModel]:
        """What the fit says of contagion, by layer."""
        return [neighbour_model(effect) for forecast in self.report.domains for effect in forecast.neighbours]

    def incidents(self, state: str | None = None) -> list[Incident]:
        """Those in this state, or all: open ones first, of each state the newest first."""
        chosen = [each for each in self.report.incidents if state is None or each.state == state]
        return sorted(chosen, key=lambda each: (STATES.index(each.state), -each.onset_s, each.id))

    def incident(self, incident: Incident, actions: Mapping[str, str]) -> IncidentModel:
        """A common-cause event; actions: as `actions_of` gives them."""
        pods = self._pods(incident.members)
        return IncidentModel(
            id=incident.id,
            layer=incident.layer,
            domain=incident.domain,
            state=incident.state,
            alertname=incident.alertname,
            kind=incident.kind,
            cause=incident.cause,
            evidence=incident.evidence,
            action=actions.get(incident.id, ""),
            began=None if incident.began_s is None else timestamp(incident.began_s),
            onset=timestamp(incident.onset_s),
            cleared=None if incident.cleared_s is None else timestamp(incident.cleared_s),
            first_mover=incident.first_mover,
            members=list(incident.members[:MOST_LISTED]),
            members_total=len(incident.members),
            workloads=pods[:MOST_LISTED],
            workloads_total=len(pods),
        )

    def _pods(self, devices: Iterable[str]) -> list[WorkloadModel]:
        workloads = self.snapshot.history.workloads
        if not workloads:
            return []
        held = {pod for device in devices if (pod := workloads.get(device)) is not None}
        ordered = sorted(held, key=lambda pod: (pod.namespace, pod.pod, pod.container))
        return [WorkloadModel(namespace=pod.namespace, pod=pod.pod, container=pod.container) for pod in ordered]


def actions_of(firing: Iterable[Alert]) -> dict[str, str]:
    """Incident id -> what its alert says is to be done; incidents at watch have no alert."""
    told = (alert.annotations for alert in firing if "incident" in alert.annotations)
    return {annotations["incident"]: annotations.get("action", "") for annotations in told}


def neighbour_model(effect: NeighbourEffect) -> NeighbourModel:
    """What a fit says of one layer."""
    return NeighbourModel(
        layer=effect.layer,
        status=STATUS_WORDS[effect.status],
        effect=number(effect.effect),
        low=number(effect.low),
        high=number(effect.high),
        onsets=effect.onsets,
    )


def _known(chance: NDArray[np.floating]) -> NDArray[np.float64]:
    """With unknown below everything, so that it comes last."""
    return np.where(np.isnan(chance), -1.0, chance).astype(np.float64)
