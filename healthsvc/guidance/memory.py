"""What is said of memory: repairs and what is left of them, recurrences, storms; NVIDIA's policy on what to do.

Correctable errors alone never ask for a replacement: the policy leaves them out.
"""

import numpy as np

from healthsvc.fleet import HOUR_S, EventKind
from healthsvc.fleet.meaning import ROWS_A_BANK
from healthsvc.guidance.case import WATCH_IT, Case, chance
from healthsvc.guidance.words import counted, duration, few


def memory(case: Case) -> tuple[list[str], str]:
    """(reasons, action)."""
    facts, row = case.report.facts, case.row
    remaps = case.evidence("memory", "uncorrectable_remaps_30d_rows")
    episodes = case.evidence("memory", "uncorrectable_episodes_90d_episodes")
    correctable = case.evidence("memory", "correctable_errors_7d_errors")
    reasons = []
    if facts.terminal[row, 1]:
        failed = case.evidence("memory", "remap_failure_bool") >= 1 or case.happened(EventKind.REMAP_FAILURE)
        worn = case.evidence("memory", "sram_threshold_exceeded_bool") >= 1
        if failed or not worn:
            reasons.append(f"{'A row remap has failed: its' if failed else 'Its'} memory can no longer repair itself")
        if worn:
            reasons.append("Uncorrectable errors of its on-chip memory have passed the limit that NVIDIA sets (SRAM)")
    if last := case.last_xid("memory"):
        reasons.append(last)
    if episodes >= 1:
        rows = "" if np.isnan(remaps) else f", {counted(remaps, 'row')} remapped in 30"
        reasons.append(f"{counted(episodes, 'uncorrectable memory episode')} in 90 days{rows}")
    reasons += _correctable(case)
    if correctable > 0 and not episodes >= 1:
        reasons.append(f"{counted(correctable, 'correctable error')} in 7 days; alone they do not predict a failure")
    if case.evidence("memory", "remap_pending_bool") >= 1:
        reasons.append("A row remap waits for a reset")
    left = case.evidence("memory", "spares_at_worst_rows")
    if left < ROWS_A_BANK:
        reasons.append(f"At worst one bank has {counted(left, 'spare row')} left{_used_up(case)}")
    reasons.append(chance(case, 1, "Uncorrectable memory error"))
    if facts.terminal[row, 1]:
        return reasons, "Drain the node, confirm with the field diagnostic and open an RMA case."
    if facts.open_events[row, 1]:
        return (
            reasons,
            "Drain the node and reset the GPU, which applies pending remaps; run the field diagnostic if it recurs.",
        )
    if episodes >= 1:
        return reasons, "Keep long jobs off it; at the next drain reset it and run the field diagnostic."
    return reasons, WATCH_IT


def _correctable(case: Case) -> list[str]:
    """What is out of character in the newest hour, and whether errors come faster and faster."""
    said = []
    hour, siblings = (case.evidence("memory", f"{who}_errors_1h_errors") for who in ("correctable", "sibling"))
    if case.report.change_p[case.row, 1] < case.degrading_p.get("memory", 0.0) and not np.isnan(hour):
        a_second = f" ({hour / HOUR_S:,.0f} a second)" if hour >= HOUR_S else ""
        others = "" if np.isnan(siblings) else f", {siblings:,.0f} on all of its siblings together"
        usual = case.evidence("memory", "correctable_rate_per_h")
        usually = "" if np.isnan(usual) else f"; usual are {few(usual)} an hour"
        said.append(f"{counted(hour, 'correctable error')} in the last whole hour{a_second}{others}{usually}")
    exponent, low = (case.evidence("memory", name) for name in ("growth_exponent", "growth_exponent_low"))
    if low > 1.0 and not np.isnan(exponent):
        days = counted(case.evidence("memory", "correctable_error_days"), "day")
        said.append(f"Correctable errors may be coming faster (exponent {exponent:.1f} on {days} with errors)")
    return said


def _used_up(case: Case) -> str:
    early, middle, late = (float(case.report.time_to_limit_s[case.row, 1, i]) for i in range(3))
    if np.isnan(early) or late == 0:
        return ""
    until = "beyond 180 days" if np.isnan(late) else duration(late)
    most = "" if np.isnan(middle) else f"{duration(middle)}, "
    return f"; it would be used up in {most}80 % interval {duration(early)} to {until}"
