"""What is said of GPUs that are lost, or have been."""

import numpy as np

from healthsvc.guidance.case import Case, chance
from healthsvc.guidance.words import counted, duration


def device_loss(case: Case) -> tuple[list[str], str]:
    """(reasons, action)."""
    facts, row = case.report.facts, case.row
    reasons = []
    since = float(facts.lost_s[row])
    if not np.isnan(since):
        ago = duration(max(case.history.now_s - since, 0.0))
        reasons.append(f"Lost: no sample for {ago} while other GPUs of its node answer")
    if last := case.last_xid("device_loss"):
        reasons.append(last)
    episodes = case.evidence("device_loss", "device_episodes_30d_episodes")
    if episodes >= 1:
        reasons.append(f"{counted(episodes, 'device episode')} in 30 days")
    reasons.append(chance(case, 2, "Device loss"))
    if facts.terminal[row, 2]:
        return (
            reasons,
            "Drain the node and open an RMA case: it failed so again within two weeks of a reboot.",
        )
    if not np.isnan(since):
        return (
            reasons,
            "Drain the node and restart it; if the GPU does not return or is lost again within 14 days, RMA.",
        )
    return reasons, "Reset the GPU at the next drain; reseat it and check its power and risers if this recurs."
