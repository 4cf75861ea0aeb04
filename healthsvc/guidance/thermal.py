"""What is said of heat: how far the cooling path has degraded, what part of it, and what to do."""

from collections.abc import Mapping

import numpy as np

from healthsvc.fleet import RiskReport
from healthsvc.fleet.causes import ThermalCause
from healthsvc.fleet.meaning import THERMAL_DAYS
from healthsvc.guidance.case import Case, chance
from healthsvc.guidance.words import counted, duration

INSPECT = "Plan an inspection of its thermal interface and cold plate or heat sink; cap its power until then."
THERMAL_CAUSES: Mapping[int, tuple[str, str]] = {  # the signature in words, and what to do
    ThermalCause.INTERFACE: (
        "Its memory does not follow: the thermal interface of its die, not the cold plate",
        "Plan to renew its thermal interface material; cap its power until then.",
    ),
    ThermalCause.COLD_PLATE: (
        "Its memory resists more too: the cold plate or heat sink that both share",
        "Plan to clean its cold plate or heat sink and check the flow through it; cap its power until then.",
    ),
    ThermalCause.NODE_AIRFLOW: (
        "All GPUs of its node resist {node} more than two weeks ago",
        "Check the node's fans and filter, or its branch of the loop; the GPUs need no work.",
    ),
    ThermalCause.LOOP_FLOW: (
        "All nodes of its loop resist {loop} more than two weeks ago",
        "Check the pump, the flow and the coolant of the loop; nodes and GPUs need no work.",
    ),
    ThermalCause.SUPPLY_WARM: (
        "Its inlet is {inlet} warmer than two weeks ago, its resistance is what it was",
        "Lower the supply temperature or move load away; the GPU needs no work.",
    ),
    ThermalCause.SENSOR: (
        "It came in one step and did not go on: its sensor or its mounting, not a slow fault",
        "Reset it and compare it with its neighbours; if the step stays, reseat its cold plate or heat sink.",
    ),
}


def thermal(case: Case) -> tuple[list[str], str]:
    """(reasons, action)."""
    slope = case.evidence("thermal", "slope_ratio_per_day")
    excess = case.evidence("thermal", "excess_ratio")
    room = case.evidence("thermal", "headroom_at_q95_load_celsius")
    reasons = []
    if slope > 0.0005:
        so_far = "" if np.isnan(excess) else f", {100 * excess:+.0f} % so far"
        reasons.append(f"Thermal resistance rises {100 * slope:.2f} % a day against its node{so_far}")
    if not np.isnan(room):
        where = f"{room:.0f} C below the limit" if room >= 0 else f"{-room:.0f} C above the limit"
        reasons.append(f"At the load it meets it runs {where}")
    middle = float(case.report.time_to_limit_s[case.row, 0, 1])
    if not np.isnan(middle):
        early, late = (float(case.report.time_to_limit_s[case.row, 0, i]) for i in (0, 2))
        to = duration(late) if not np.isnan(late) else "beyond 180 days"
        since = "now" if np.isnan(early) else duration(early)
        reasons.append(f"Time to the limit: {duration(middle)} (80 % interval {since} to {to})")
    memory_room = case.evidence("thermal", "memory_headroom_at_q95_load_celsius")
    if memory_room < room:
        where = f"{memory_room:.0f} C below" if memory_room >= 0 else f"{-memory_room:.0f} C above"
        reasons.append(f"Its memory comes first, {where} its limit")
    sign, action = _thermal_cause(case)
    if sign:
        reasons.append(sign)
    reasons.append(chance(case, 0, "Thermal throttling that costs work"))
    if case.report.facts.open_events[case.row, 0]:
        reasons.insert(0, "Throttled by heat for at least 30 % of the last hour")
        return (
            reasons,
            "Move load away or cap its power now; inspect the thermal interface and the airflow or cold plate.",
        )
    return reasons, action


def _thermal_cause(case: Case) -> tuple[str, str]:
    """What the signature speaks for, in a sentence (empty: nothing in particular), and what to do."""

    def much(name: str, factor: float, unit: str) -> str:
        value = factor * case.evidence("thermal", name)
        return "much" if np.isnan(value) else f"{value:.0f} {unit}"

    sign, action = THERMAL_CAUSES.get(np.nan_to_num(case.evidence("thermal", "cause_code")), ("", INSPECT))
    node, loop = much("node_excess_ratio", 100, "%"), much("loop_excess_ratio", 100, "%")
    return sign.format(node=node, loop=loop, inlet=much("inlet_rise_celsius", 1, "C")), action


def thermal_grounds(report: RiskReport, row: int) -> str:
    """Why there is no thermal trend of a GPU although it answers; empty where nothing is known of that."""
    grounds = report.evidence.get("thermal", {})
    days, windows, reset = (
        float(grounds[name][row]) if name in grounds else np.nan
        for name in ("observed_days", "steady_windows", "reset_days")
    )
    if reset < THERMAL_DAYS:
        return f"Its thermal trend began anew {counted(reset, 'day')} ago, when its cooling path had changed"
    if days < THERMAL_DAYS:
        load = "" if np.isnan(windows) else f"; its days have {windows:.0f} steady ten-minute windows, 20 are needed"
        return f"Its thermal trend has {days:.0f} of {THERMAL_DAYS} days with steady load{load}"
    return ""
