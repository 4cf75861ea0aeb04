"""incidents.csv: what happened, in the words of the label format, with the fault that caused it.

An incident that lies beyond the telemetry is told like any other, with the note "projected".
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet import DAY_S, LEAST_MEMBERS, GpuId, Topology
from healthsvc.simulator.faults import FLEET, Fault
from healthsvc.simulator.label import EPISODE_S, Label, episodes, moment
from healthsvc.simulator.layout import Layout
from healthsvc.simulator.scenario import Scenario
from healthsvc.simulator.truth import HOUR_S, Happening, Truth

DOSE, HARDWARE_DOSE = 0.3, 0.05  # shares of an hour that make a T2, and a T1, of the thermal class
RECURRENCE_S = 14 * DAY_S  # a GPU lost again so soon after it came back is terminal
LEAD_S = 900.0  # how long the fault must have been there before its incident, so that there was something to foresee
DOMAIN_SHARE = 0.8  # an incident is on the smallest domain that holds this share of the affected GPUs
LOST_STEPS, LEAST_LOST_S = 3, 180.0  # one or two missed samples are a slow scrape


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
        labels = domains + self._thermal(common) + self._memory() + self._device_loss() + self._told_as_they_are()
        return sorted(labels, key=lambda label: (label.start, label.scope, label.failure_class, label.grade))

    def _label(
        self, scope: str, start_s: float, end_s: float | None, what: str, grade: str, fault: Fault | None, note: str
    ) -> Label:
        early = fault is not None and start_s - self._at_s(fault.first_sign_day) >= LEAD_S
        kind, told = fault.kind if fault else "", "projected" if start_s > self.truth.end_s else note
        return Label(scope, moment(start_s), moment(end_s), what, grade, "auto", str(early).lower(), kind, told)

    def _at_s(self, day: float) -> float:
        return self.truth.start_s + day * DAY_S

    def _end_s(self, fault: Fault) -> float | None:
        end_s = self._at_s(fault.over_day)
        return end_s if end_s <= self.truth.last_s else None

    def _scope(self, fault: Fault) -> str:
        if isinstance(fault.target, int):
            return self.gpus[fault.target].device_id
        return "fleet:all" if fault.layer == FLEET else f"{fault.layer}:{fault.target}"

    def _cause(self, what: str, rows: set[int], at_s: float) -> Fault | None:
        """The fault on any of these GPUs that was there at that moment (an hour's grace after repair): one of this
        class, or else one that may cause it.
        """
        there = [
            fault
            for fault in self.scenario.fault
            if self._at_s(fault.first_sign_day) <= at_s <= self._at_s(fault.over_day) + HOUR_S
            and rows & set(fault.rows(self.layout).tolist())
        ]
        own = [fault for fault in there if fault.spec.failure_class == what]
        return next(iter(own + [fault for fault in there if what in fault.spec.may_cause]), None)

    def _throttling(self) -> tuple[list[Label], NDArray[np.bool_]]:
        """Domain incidents, and bool[gpu, hour]: hours in which the GPU's domain throttles."""
        hot = self.truth.dose >= DOSE
        common = np.zeros_like(hot)
        topology = self.layout.topology(self.gpus)
        labels: list[Label] = []
        for layer in ("cooling_loop", "power_feed"):
            names, group = self.layout.places(layer)
            for place, name in enumerate(names):
                members, told = np.flatnonzero(group == place), list[Fault]()
                left = hot[members] & ~common[members]
                together = np.flatnonzero(left.sum(axis=0) >= LEAST_MEMBERS)
                common[np.ix_(members, together)] = True
                for hours in np.split(together, np.flatnonzero(np.diff(together) > 1) + 1) if len(together) else ():
                    hit = members[left[:, hours].any(axis=1)]
                    start_s = float(np.sort(self.truth.onset_s[hit, hours[0]])[LEAST_MEMBERS - 1])
                    fault = self._cause("throttling", set(hit.tolist()), start_s)
                    if fault is not None and fault in told:
                        continue  # a pause in the work is not the end of the fault
                    told += [fault] if fault else []
                    widest = f"{layer}:{name}"
                    note = f"{len(hit)} of {len(members)} GPUs of {widest} throttled"
                    own = fault is not None and fault.spec.failure_class == "throttling"
                    scope = self._scope(fault) if fault and own else self._smallest(topology, hit, widest)
                    end_s = self._end_s(fault) if fault and own else self._hour_end_s(hours[-1])
                    labels.append(self._label(scope, start_s, end_s, "throttling", "T2", fault, note))
        return labels, common

    def _hour_end_s(self, hour: int) -> float | None:
        end_s = float((np.floor(self.truth.start_s / HOUR_S) + hour + 1) * HOUR_S)
        return end_s if end_s < self.truth.last_s else None

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
        labels, told = [], set[tuple[int, str, str]]()
        for episode in episodes(events):
            first, quiet_s = episode[0], episode[-1].at_s + HOUR_S
            fault = self._cause("thermal", {first.row}, first.at_s)
            if fault and fault.spec.failure_class == "thermal":
                end_s = self._end_s(fault)
            else:
                end_s = quiet_s if quiet_s + EPISODE_S < self.truth.last_s else None
            for label in self._graded(episode, end_s, "thermal", fault):
                key = (first.row, label.grade, fault.kind if fault else label.start)
                if key not in told:  # a pause in the work is not the end of the fault
                    labels.append(label)
                told.add(key)
        return labels

    def _memory(self) -> list[Label]:
        labels = []
        for episode in episodes(self.truth.memory):
            first, last = episode[0], episode[-1]
            resets = [h.at_s for h in self.truth.resets if h.row == first.row and h.at_s > last.at_s]
            fault = self._cause("memory", {first.row}, first.at_s)
            labels += self._graded(episode, min(resets, default=None), "memory", fault)
        return labels

    def _device_loss(self) -> list[Label]:
        """A loss or an XID of the class; T1 if it comes within 14 days of the return from the one before."""
        outages = {(loss.row, loss.at_s): end_s for loss, end_s in self._outages()}
        silent = [Happening(row, at_s, "T2", "silent while its node answers") for row, at_s in outages]
        labels, returned_s = [], dict[int, float]()
        for episode in episodes(self.truth.warnings + silent):
            first = episode[0]
            ends = [outages[h.row, h.at_s] for h in episode if (h.row, h.at_s) in outages]
            fault = self._cause("device_loss", {first.row}, first.at_s)
            end_s = ends[-1] if ends else self._end_s(fault) if fault else None
            grade = "T1" if 0 < first.at_s - returned_s.get(first.row, -np.inf) <= RECURRENCE_S else "T2"
            note = f"{first.note}, then silent" if ends and first.note.startswith("XID") else first.note
            scope = self.gpus[first.row].device_id
            labels.append(self._label(scope, first.at_s, end_s, "device_loss", grade, fault, note))
            if end_s is not None:
                returned_s[first.row] = end_s
        return labels

    def _outages(self) -> Iterator[tuple[Happening, float | None]]:
        """Each loss that is more than a few missed samples, and when the GPU came back."""
        shortest_s = max(LOST_STEPS * self.truth.step_s, LEAST_LOST_S)
        for loss in self.truth.losses:
            end_s = min((h.at_s for h in self.truth.returns if h.row == loss.row and h.at_s > loss.at_s), default=None)
            if end_s is None or end_s - loss.at_s >= shortest_s:
                yield loss, end_s

    def _graded(self, episode: list[Happening], end_s: float | None, what: str, fault: Fault | None) -> list[Label]:
        """The episode's T2, and its T1 if it came to that; T1 alone where both were in the same moment."""
        scope = self.gpus[episode[0].row].device_id
        first = {h.grade: h for h in reversed(episode)}
        mild, severe = first.get("T2"), first.get("T1")
        labels = []
        if mild and not (severe and severe.at_s <= mild.at_s):
            labels.append(self._label(scope, mild.at_s, end_s, what, "T2", fault, mild.note))
        if severe:
            labels.append(self._label(scope, severe.at_s, None, what, "T1", fault, severe.note))
        return labels

    def _told_as_they_are(self) -> list[Label]:
        """What needs no watching: decoys, maintenance, and power brakes, which are incidents of their feed."""
        labels = []
        for fault in self.scenario.fault:
            start_s, what = self._at_s(fault.start_day), fault.spec.failure_class
            scope, start, end = self._scope(fault), moment(start_s), moment(self._end_s(fault))
            if what == "none":
                labels.append(Label(scope, start, end, "none", "", "auto", "", fault.kind, "decoy"))
            elif what == "maintenance":
                labels.append(Label(scope, start, end, "maintenance", "", "operator", "", fault.kind, "planned"))
            elif fault.kind == "power_brake":
                labels.append(self._label(scope, start_s, self._end_s(fault), what, "T2", fault, "power brake"))
        return labels
