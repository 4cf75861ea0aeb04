"""What is said of an incident as a whole: what happens to its GPUs, and what to do about its cause."""

from collections.abc import Mapping

from healthsvc.fleet import Incident
from healthsvc.fleet.forecast import IncidentKind

ACTIONS: Mapping[IncidentKind, str] = {
    "flow": "Check the pump, valves and filters of the loop and bring its flow back; move or cap load until then. "
    "Nodes and GPUs need no work.",
    "supply": "Lower the supply temperature or move load away; loops, nodes and GPUs need no work.",
    "airflow": "Check the node's fans and filter, or its branch of the loop; cap its power until then.",
    "common": "Check what the GPUs share: pump and flow of the loop, air of the rack, supply. Measured flow "
    "or inlet would tell which. No single GPU needs work.",
    "power": "Call the facility, the brake is pulled from outside: check the feed and its power supplies and cap. "
    "No GPU is at fault.",
    "": "Look at the shared cooling, airflow or power of the domain before any single GPU.",
}
FLEET = "fleet"  # the layer of an incident that no place holds


def incident_action(incident: Incident) -> str:
    """What to do about it, by what causes it."""
    return ACTIONS[incident.kind]


def incident_summary(incident: Incident) -> str:
    """How many GPUs of what, and what happens to them."""
    count = len(incident.members)
    gpus = f"{count} GPU{'' if count == 1 else 's'}"
    where = "the fleet" if (incident.layer, incident.domain) == (FLEET, "all") else incident.domain
    place = where if where == "the fleet" else f"{incident.layer.replace('_', ' ')} {where}"
    if incident.alertname == "FacilityPowerIncident":
        if incident.layer == FLEET:
            return f"{gpus} of {place}, in no common place, are held by the power brake."
        return f"GPUs of {place} are held by the power brake; it has {gpus}."
    if incident.state == "predicted":
        return f"{gpus} of {place} may soon throttle together."
    return f"{gpus} of {place} are affected together."
