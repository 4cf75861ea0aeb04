"""What strikes the GPUs of a place together, in words: a sensor that moved says more than who was hit."""

import numpy as np

from healthsvc.features.medians import nan_last, nan_median
from healthsvc.features.resistance import NORMAL_DAYS, WARM_CELSIUS
from healthsvc.fleet import FleetHistory, Signal
from healthsvc.fleet.forecast import IncidentKind
from healthsvc.incidents.places import Place
from healthsvc.incidents.sensors import Rows, Track, flow_shares

LONE = ("node", "tray")  # layers with an airflow, or a branch of the loop, of their own
# The later ones are never unsaid by earlier ones.
SURER: tuple[IncidentKind, ...] = ("", "airflow", "common", "supply", "flow", "power")


def cause_of(
    history: FleetHistory, place: Place, rows: Rows, found: tuple[Track, ...], seen: str, starved: bool
) -> tuple[IncidentKind, str]:
    """(kind, cause). rows: the members of `place`; seen: what was seen of them; starved: flow below half of rated.

    Blind to what no sensor measures: then one node is put down to its airflow, several to a common cooling cause.
    """
    fallen = [t for t in found if t.signal is Signal.COOLANT_FLOW and t.moved_s is not None and t.change < 0]
    if starved or fallen:
        return "flow", _flow(history, place, rows, fallen)
    warmer = _warmer_celsius(history, rows, found)
    if warmer >= WARM_CELSIUS:
        return "supply", f"warm supply: {warmer:.0f} C above what is usual; {seen}"
    if place[0] in LONE:
        return "airflow", f"airflow of the {place[0]}: {seen}"
    return "common", f"common cooling cause: {seen}"


def _flow(history: FleetHistory, place: Place, rows: Rows, fallen: list[Track]) -> str:
    shares, topology = flow_shares(history), history.topology
    here = []
    for (layer, name), share in shares.items():
        group = topology.group(layer, len(history.gpus))[rows]
        names = topology.names.get(layer, ())
        if (layer, name) == place or (name in names and (group == names.index(name)).any()):
            here.append(share)
    if here:
        return f"coolant flow at {100 * min(here):.0f} % of rated"
    before = fallen[0].means[0] if fallen else np.nan
    return f"coolant flow fell by {100 * -fallen[0].change / before:.0f} %" if fallen else "coolant flow fell"


def _warmer_celsius(history: FleetHistory, rows: Rows, found: tuple[Track, ...]) -> float:
    """By how much coolant or air is warmer than when the window began, or than the ledger's two weeks have it; -inf
    where it is not measured. Coolant supply outranks air, as it does in the ledger."""
    heat = [track for track in found if track.signal is not Signal.COOLANT_FLOW]
    if not heat:
        return -np.inf
    usual = nan_median(nan_median(history.daily.get("inlet_q95_celsius")[rows, -NORMAL_DAYS - 1 :]))
    rises = (heat[0].change, float(nan_last(heat[0].means) - usual))
    return max((rise for rise in rises if not np.isnan(rise)), default=-np.inf)
