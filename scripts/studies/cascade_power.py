"""A power feed in trouble brakes 9 of 36 nodes: one incident of the facility, and no GPU blamed for it."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from healthsvc.fleet import DAY_S, MINUTE_S, EventKind
from scripts.studies.cascade_fleet import Site, cycles, make_run, shipped

FLEET = {"gpus": 288, "nodes_per_rack": 3, "racks_per_loop": 4, "racks_per_row": 12, "racks_per_feed": 3}
BEGINS_MINUTES, LASTS_MINUTES, AFTER_MINUTES = 20.0, 60.0, 60.0
KNOWN, UNKNOWN = Site(whole=True), Site(whole=True, unknown=frozenset({"power_feed"}))


@dataclass
class Brake:
    """What stood because of it; minutes after the brake, NaN = never. incidents: ids by name; gpu_alerts: names of
    alerts on single GPUs, by how many stood at some time; extent: members of the incident over those braked."""

    alerted: float = np.nan
    place: str = ""
    incidents: dict[str, set[str]] = field(default_factory=dict)
    gpu_alerts: Counter[str] = field(default_factory=Counter)
    extent: float = np.nan
    episodes: int = 0


def brake(seed: int, site: Site, braked_share: float = 0.8) -> Brake:
    """One fleet, one feed by turns; the whole scorer and every alert."""
    start_day = (120.0 + BEGINS_MINUTES) / 1440.0
    fault = {
        "kind": "power_brake",
        "target": f"feed-{seed % 4 + 1}",
        "start_day": start_day,
        "end_day": start_day + LASTS_MINUTES / 1440.0,
        "braked_share_ratio": braked_share,
    }
    hours = (120.0 + BEGINS_MINUTES + LASTS_MINUTES + AFTER_MINUTES) / 60.0
    run = make_run(FLEET, [fault], hours, seed, site)
    begun_s = run.start_s + start_day * DAY_S
    seen, singles = Brake(), set()
    for cycle in cycles(run, shipped()):
        told = {each.id: each for each in cycle.snapshot.report.incidents}
        for alert in cycle.firing:
            if "layer" not in alert.labels:
                singles.add((alert.alertname, alert.key))
                continue
            incident = told.get(alert.annotations["incident"])
            seen.incidents.setdefault(alert.alertname, set()).add(alert.annotations["incident"])
            if alert.alertname == "FacilityPowerIncident" and incident and np.isnan(seen.alerted):
                seen.alerted = (cycle.now_s - begun_s) / MINUTE_S
                seen.place = incident.layer
                seen.extent = len(incident.members) / (FLEET["gpus"] / 4)
        braked = cycle.snapshot.history.events.of(EventKind.POWER_BRAKE)
        seen.episodes = max(seen.episodes, int(np.bincount(braked.row).max(initial=0)))
    seen.gpu_alerts = Counter(name for name, _ in singles)
    return seen


def figures(found: list[Brake]) -> dict[str, Any]:
    """Counts over all fleets."""
    minutes = np.array([each.alerted for each in found])
    only = [each.incidents.keys() == {"FacilityPowerIncident"} for each in found]
    return {
        "cases": len(found),
        "within_10_minutes": int(np.sum(minutes <= 10.0)),
        "minutes": [float(np.nanmin(minutes)), float(np.nanmax(minutes))] if not np.isnan(minutes).all() else [],
        "exactly_one": sum(
            one and len(each.incidents["FacilityPowerIncident"]) == 1 for one, each in zip(only, found, strict=True)
        ),
        "incidents": dict(Counter(name for each in found for name, ids in each.incidents.items() for _ in ids)),
        "places": dict(Counter(each.place or "none" for each in found)),
        "extent": [each.extent for each in found],
        "gpu_alerts": dict(sum((each.gpu_alerts for each in found), Counter())),
        "most_episodes_of_a_gpu": max(each.episodes for each in found),
    }
