"""incidents.csv: what happened, in the words of the label format, with the fault that caused it."""

from dataclasses import astuple, dataclass
from datetime import UTC, datetime

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, LEAST_MEMBERS, GpuId, Topology
from healthsvc.simulator.faults import KINDS, Fault
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.scenario import Scenario
from healthsvc.simulator.truth import HOUR_S, Happening, Truth

COLUMNS = ("scope", "start", "end", "class", "grade", "source", "precursor", "scenario", "note")
DOSE, HARDWARE_DOSE = 0.3, 0.05  # shares of an hour that make a T2, and a T1, of the thermal class
EPISODE_S = DAY_S  # events of one GPU within this time of each other are one episode
RECURRENCE_S = 14 * DAY_S  # a GPU lost again so soon after it came back is terminal
# How long the fault must have been there before its incident, so that there was something to foresee.
LEAD_S = {"thermal": DAY_S, "memory": DAY_S, "device_loss": DAY_S, "throttling": 600.0}
DOMAIN_SHARE = 0.8  # an incident is on the smallest domain that holds this share of the affected GPUs


@dataclass(frozen=True)
class Label:
    """One line of incidents.csv."""

    scope: str
    start: str
    end: str
    failure_class: str
    grade: str
    source: str
    precursor: str
    scenario: str
    note: str

    def row(self) -> tuple[str, ...]:
        """In the order of COLUMNS."""
        return astuple(self)


def moment(at_s: float | None) -> str:
    """RFC 3339, in UTC; empty for what has not come."""
    return "" if at_s is None else datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class Labeller:
    """Turns the truth of a run into labels."""

    scenario: Scenario
    layout: Layout
    gpus: tuple[GpuId, ...]
    truth: Truth

    def labels(self) -> list[Label]:
        """All incidents and decoys, by start."""
        domains, common = self._throttling()
        labels = domains + self._thermal(common) + self._memory() + self._device_loss() + self._decoys()
        return sorted(labels, key=lambda label: (label.start, label.scope, label.failure_class))

    def _label(
        self, scope: str, start_s: float, end_s: float | None, what: str, grade: str, fault: Fault | None, note: str
    ) -> Label:
        early = fault is not None and start_s - self._start_s(fault) >= LEAD_S[what]
        kind = fault.kind if fault else ""
        return Label(scope, moment(start_s), moment(end_s), what, grade, "auto", str(early).lower(), kind, note)

    def _start_s(self, fault: Fault) -> float:
        return self.truth.start_s + fault.start_day * DAY_S

    def _end_s(self, fault: Fault) -> float | None:
        ends = fault.end_day is not None and fault.end_day < self.scenario.days
        return self.truth.start_s + fault.end_day * DAY_S if ends and fault.end_day else None

    def _cause(self, what: str, rows: set[int], at_s: float) -> Fault | None:
        """The fault of this class on any of these GPUs that was there at that moment (an hour's grace after repair)."""
        for fault in self.scenario.fault:
            end_s = self._end_s(fault)
            there = self._start_s(fault) <= at_s and (end_s is None or at_s <= end_s + HOUR_S)
            if KINDS[fault.kind].failure_class == what and there and rows & set(fault.rows(self.layout).tolist()):
                return fault
        return None

    def _throttling(self) -> tuple[list[Label], NDArray[np.bool_]]:
        """Domain incidents, and bool[gpu, hour]: hours in which the GPU's domain throttles."""
        hot = self.truth.dose >= DOSE
        common = np.zeros_like(hot)
        topology = self.layout.topology(self.gpus)
        labels: list[Label] = []
        told: list[Fault | None] = []
        for loop in range(len(self.layout.loops)):
            members = np.flatnonzero(self.layout.loop_of == loop)
            together = np.flatnonzero(hot[members].sum(axis=0) >= LEAST_MEMBERS)
            common[np.ix_(members, together)] = True
            for hours in np.split(together, np.flatnonzero(np.diff(together) > 1) + 1) if len(together) else ():
                hit = members[hot[np.ix_(members, hours)].any(axis=1)]
                onsets = np.sort(self.truth.onset_s[hit, hours[0]])
                start_s = float(onsets[LEAST_MEMBERS - 1])
                fault = self._cause("throttling", set(hit.tolist()), start_s)
                if fault is not None and fault in told:
                    continue  # a pause in the work is not the end of the fault
                told.append(fault)
                scope = f"cooling_loop:{self.layout.loops[loop]}"
                if fault is None:
                    scope = self._smallest(topology, hit, scope)
                else:
                    scope = f"{KINDS[fault.kind].target}:{fault.target}"
                last_s = (np.floor(self.truth.start_s / HOUR_S) + hours[-1] + 1) * HOUR_S
                end_s = self._end_s(fault) if fault else float(last_s) if last_s < self.truth.end_s else None
                note = f"{len(hit)} of {len(members)} GPUs of the loop throttled"
                labels.append(self._label(scope, start_s, end_s, "throttling", "T2", fault, note))
        return labels, common

    @staticmethod
    def _smallest(topology: Topology, rows: NDArray[np.intp], widest: str) -> str:
        """The smallest domain that holds most of the affected GPUs; `widest` if none does."""
        for layer in ("node", "rack"):
            names, counts = np.unique(topology.groups[layer][rows], return_counts=True)
            if counts.max() >= max(LEAST_MEMBERS, DOMAIN_SHARE * len(rows)):
                return f"{layer}:{topology.names[layer][names[np.argmax(counts)]]}"
        return widest

    def _thermal(self, common: NDArray[np.bool_]) -> list[Label]:
        events = []
        for row, hour in zip(*np.nonzero((self.truth.dose >= DOSE) & ~common), strict=True):
            severe = self.truth.hardware_dose[row, hour] > HARDWARE_DOSE
            note = f"{self.truth.dose[row, hour]:.0%} of the hour throttled"
            events.append(Happening(int(row), float(self.truth.onset_s[row, hour]), "T1" if severe else "T2", note))
        labels = []
        for episode in _episodes(events):
            first = episode[0]
            fault = self._cause("thermal", {first.row}, first.at_s)
            quiet_s = episode[-1].at_s + HOUR_S
            over = quiet_s + EPISODE_S < self.truth.end_s
            end_s = (self._end_s(fault) if fault else None) or (quiet_s if over and not fault else None)
            labels += self._graded(episode, end_s, "thermal", fault)
        return labels

    def _memory(self) -> list[Label]:
        labels = []
        for episode in _episodes(self.truth.memory):
            first, last = episode[0], episode[-1]
            resets = [h.at_s for h in self.truth.resets if h.row == first.row and h.at_s > last.at_s]
            fault = self._cause("memory", {first.row}, first.at_s)
            labels += self._graded(episode, min(resets, default=None), "memory", fault)
        return labels

    def _device_loss(self) -> list[Label]:
        labels = []
        for loss in self.truth.losses:
            said = [h for h in self.truth.warnings if h.row == loss.row and 0 <= loss.at_s - h.at_s <= 600]
            start_s = said[0].at_s if said else loss.at_s
            back = [h.at_s for h in self.truth.returns if h.row == loss.row]
            again = any(0 < start_s - returned <= RECURRENCE_S for returned in back)
            fault = self._cause("device_loss", {loss.row}, start_s)
            note = f"{said[0].note}, then silent" if said else "silent while its node answers"
            end_s = min((r for r in back if r > loss.at_s), default=None)
            scope, grade = self.gpus[loss.row].device_id, "T1" if again else "T2"
            labels.append(self._label(scope, start_s, end_s, "device_loss", grade, fault, note))
        return labels

    def _graded(self, episode: list[Happening], end_s: float | None, what: str, fault: Fault | None) -> list[Label]:
        """The episode's T2, and its T1 if it came to that."""
        scope, labels = self.gpus[episode[0].row].device_id, []
        for grade in ("T2", "T1"):
            found = [h for h in episode if h.grade == grade]
            if found:
                end = None if grade == "T1" else end_s
                labels.append(self._label(scope, found[0].at_s, end, what, grade, fault, found[0].note))
        return labels

    def _decoys(self) -> list[Label]:
        labels = []
        for fault in self.scenario.fault:
            kind = KINDS[fault.kind]
            if kind.failure_class == "none":
                gpu = kind.target == "gpu"
                scope = self.gpus[int(fault.target)].device_id if gpu else f"{kind.target}:{fault.target}"
                start, end = moment(self._start_s(fault)), moment(self._end_s(fault))
                labels.append(Label(scope, start, end, "none", "", "auto", "", fault.kind, "decoy"))
        return labels


def _episodes(events: list[Happening]) -> list[list[Happening]]:
    """Events of one GPU, each within EPISODE_S of the one before, in order of time."""
    episodes: list[list[Happening]] = []
    for event in sorted(events, key=lambda e: (e.row, e.at_s)):
        last = episodes[-1][-1] if episodes else None
        if last and last.row == event.row and event.at_s - last.at_s <= EPISODE_S:
            episodes[-1].append(event)
        else:
            episodes.append([event])
    return episodes
