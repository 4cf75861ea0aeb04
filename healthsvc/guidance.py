"""Evidence in plain words: why a GPU stands where it stands, and what to do about it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from healthsvc.fleet import CLASSES, DAY_S, HOUR_S, Band, EventKind, FleetHistory, RiskReport
from healthsvc.fleet.causes import ThermalCause
from healthsvc.fleet.xids import XIDS_BY_CLASS

# What they say: NVIDIA XID catalogue (read 2025-10), hardware-relevant codes only.
XIDS: dict[int, str] = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "PMU halt",
    63: "row remap or page retirement recorded",
    64: "row remap or page retirement failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of correctable errors",
    94: "contained uncorrectable error",
    95: "uncontained uncorrectable error",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialisation failed",
    157: "resource retirement failed",
    158: "GPU fatal timeout",
    160: "HBM channel repaired",
    161: "HBM channel repair failed",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}

WATCH_IT = "Keep it in service and watch it."


def duration(seconds: float) -> str:
    """A length of time as people say it."""
    if np.isnan(seconds):
        return "an unknown time"
    if seconds < 2 * HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.0f} h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:.0f} days"


def percent(p: float) -> str:
    """A probability as people say it."""
    if np.isnan(p):
        return "unknown"
    return "under 0.1 %" if p < 0.001 else f"{100 * p:.2g} %" if p < 0.995 else "over 99 %"


def counted(number: float, noun: str) -> str:
    """A count with its noun; an unobserved count is said to be unknown."""
    if np.isnan(number):
        return f"an unknown number of {noun}s"
    return f"{number:,.0f} {noun}{'' if round(number) == 1 else 's'}"


NewestXids = Mapping[str, Mapping[int, tuple[int, float]]]  # failure class -> row -> (code, start_s)


def newest_xids(history: FleetHistory) -> NewestXids:
    """The newest XID of each class and GPU; one pass over the events, which are in order of start."""
    xids = history.events.of(EventKind.XID)
    found = {}
    for failure_class, codes in XIDS_BY_CLASS.items():
        mine = xids.where(np.isin(xids.value, list(codes)))
        told = zip(mine.value.astype(int).tolist(), mine.start_s.tolist(), strict=True)
        found[failure_class] = dict(zip(mine.row.tolist(), told, strict=True))
    return found


@dataclass(frozen=True)
class _Case:
    """One GPU's row, with short names for the sentences below."""

    report: RiskReport
    history: FleetHistory
    row: int
    degrading_p: Mapping[str, float]
    xids: NewestXids

    def evidence(self, failure_class: str, name: str) -> float:
        column = self.report.evidence.get(failure_class, {}).get(name)
        return float("nan") if column is None else float(column[self.row])

    def p_7d(self, column: int) -> float:
        return float(self.report.probability[self.row, column, 0, 1])

    def notable(self, column: int) -> bool:
        """Whether this class has something to say: a fact, a change, or a probability at the watch level."""
        report, row = self.report, self.row
        changed = report.change_p[row, column] < self.degrading_p.get(CLASSES[column], 0.0)
        fact = report.facts.open_events[row, column] or report.facts.terminal[row, column]
        return bool(fact or changed or report.class_band[row, column] >= Band.WATCH)

    def happened(self, kind: EventKind) -> bool:
        """Whether the GPU has an event of this kind."""
        events = self.history.events
        return bool(((events.row == self.row) & (events.kind == kind)).any())

    def last_xid(self, failure_class: str) -> str:
        """The newest XID of this class in words, or nothing."""
        code, start_s = self.xids.get(failure_class, {}).get(self.row, (0, 0.0))
        if not code:
            return ""
        ago = duration(max(self.history.now_s - start_s, 0.0))
        return f"XID {code} ({XIDS[code]}) {ago} ago" if code in XIDS else f"XID {code} {ago} ago"


def _chance(case: _Case, column: int, what: str) -> str:
    if np.isnan(case.p_7d(column)):
        return f"{what} within 7 days: unknown, nothing is observed"
    source = "calibrated" if case.report.calibrated[case.row, column] else "prior"
    return f"{what} within 7 days: {percent(case.p_7d(column))} ({source})"


def _thermal(case: _Case) -> tuple[list[str], str]:
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
    reasons.append(_chance(case, 0, "Thermal throttling that costs work"))
    if case.report.facts.open_events[case.row, 0]:
        reasons.insert(0, "Throttled by heat for at least 30 % of the last hour")
        return (
            reasons,
            "Move load away or cap its power now; inspect the thermal interface and the airflow or cold plate.",
        )
    return reasons, action


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


def _thermal_cause(case: _Case) -> tuple[str, str]:
    """What the signature speaks for, in a sentence (empty: nothing in particular), and what to do."""

    def much(name: str, factor: float, unit: str) -> str:
        value = factor * case.evidence("thermal", name)
        return "much" if np.isnan(value) else f"{value:.0f} {unit}"

    sign, action = THERMAL_CAUSES.get(np.nan_to_num(case.evidence("thermal", "cause_code")), ("", INSPECT))
    node, loop = much("node_excess_ratio", 100, "%"), much("loop_excess_ratio", 100, "%")
    return sign.format(node=node, loop=loop, inlet=much("inlet_rise_celsius", 1, "C")), action


def _memory(case: _Case) -> tuple[list[str], str]:
    facts, row = case.report.facts, case.row
    remaps = case.evidence("memory", "uncorrectable_remaps_30d_rows")
    episodes = case.evidence("memory", "uncorrectable_episodes_90d_episodes")
    correctable = case.evidence("memory", "correctable_errors_7d_errors")
    reasons = []
    if facts.terminal[row, 1]:
        failed = case.evidence("memory", "remap_failure_bool") >= 1 or case.happened(EventKind.REMAP_FAILURE)
        reasons.append(f"{'A row remap has failed: its' if failed else 'Its'} memory can no longer repair itself")
    if last := case.last_xid("memory"):
        reasons.append(last)
    if episodes >= 1:
        reasons.append(
            f"{counted(episodes, 'uncorrectable memory episode')} in 90 days, {counted(remaps, 'row')} remapped in 30"
        )
    if correctable > 0 and not episodes >= 1:
        reasons.append(f"{correctable:,.0f} correctable errors in 7 days; alone they do not predict a failure")
    if case.evidence("memory", "remap_pending_bool") >= 1:
        reasons.append("A row remap waits for a reset")
    reasons.append(_chance(case, 1, "Uncorrectable memory error"))
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


def _device_loss(case: _Case) -> tuple[list[str], str]:
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
    reasons.append(_chance(case, 2, "Device loss"))
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


_SPEAKERS: tuple[Callable[[_Case], tuple[list[str], str]], ...] = (_thermal, _memory, _device_loss)


LEAST_DAYS = 7  # of steady load, from which a thermal trend is told


def _thermal_grounds(report: RiskReport, row: int) -> str:
    """Why there is no thermal trend of a GPU although it answers; empty where nothing is known of that."""
    grounds = report.evidence.get("thermal", {})
    days, windows, reset = (
        float(grounds[name][row]) if name in grounds else np.nan
        for name in ("observed_days", "steady_windows", "reset_days")
    )
    if reset < LEAST_DAYS:
        return f"Its thermal trend began anew {counted(reset, 'day')} ago, when its cooling path had changed"
    if days < LEAST_DAYS:
        load = "" if np.isnan(windows) else f"; its days have {windows:.0f} steady ten-minute windows, 20 are needed"
        return f"Its thermal trend has {days:.0f} of {LEAST_DAYS} days with steady load{load}"
    return ""


def _blind(observed: tuple[bool, ...], grounds: str) -> tuple[tuple[str, ...], str]:
    """What to say of a GPU that too little is known about."""
    missing = [name.replace("_", " ") for name, seen in zip(CLASSES, observed, strict=True) if not seen]
    return (
        (f"Too little telemetry to judge it: nothing observed for {', '.join(missing)}", *filter(None, [grounds])),
        "Check its exporter and enable the missing fields; until then nothing is known, which is not healthy.",
    )


def advise(report: RiskReport, history: FleetHistory, degrading_p: Mapping[str, float]) -> RiskReport:
    """The report with reasons and one action for every GPU that is not healthy, the gravest class first."""
    reasons: dict[int, tuple[str, ...]] = {}
    actions: dict[int, str] = {}
    said: dict[tuple[tuple[bool, ...], str], tuple[tuple[str, ...], str]] = {}
    for row in np.flatnonzero(report.band == Band.UNKNOWN).tolist():
        observed = tuple(report.observed[row].tolist())
        key = observed, "" if observed[0] else _thermal_grounds(report, row)
        reasons[row], actions[row] = said.setdefault(key, _blind(*key))
    xids = newest_xids(history)
    for row in np.flatnonzero(report.band >= Band.WATCH).tolist():
        case = _Case(report, history, row, degrading_p, xids)
        facts = report.facts
        weight = 4 * facts.terminal[row] + 2 * facts.open_events[row] + np.nan_to_num(report.share[row])
        texts: list[str] = []
        action = ""
        for column in np.argsort(-weight, kind="stable").tolist():
            if case.notable(column):
                words, advice = _SPEAKERS[column](case)
                texts += words
                action = action or advice
        reasons[row] = tuple(texts) or ("Its risk stands above the fleet's",)
        actions[row] = action or WATCH_IT
    return replace(report, reasons=reasons, actions=actions)
