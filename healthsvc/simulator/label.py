"""One line of incidents.csv, and the rules by which single events become one incident."""

from dataclasses import astuple, dataclass
from datetime import UTC, datetime

from healthsvc.fleet import DAY_S
from healthsvc.simulator.truth import Happening

COLUMNS = ("scope", "start", "end", "class", "grade", "source", "precursor", "scenario", "note")
EPISODE_S = DAY_S  # events of one GPU within this time of each other are one episode


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


def episodes(events: list[Happening]) -> list[list[Happening]]:
    """Events of one GPU, each within EPISODE_S of the one before, in order of time."""
    found: list[list[Happening]] = []
    for event in sorted(events, key=lambda e: (e.row, e.at_s)):
        last = found[-1][-1] if found else None
        if last and last.row == event.row and event.at_s - last.at_s <= EPISODE_S:
            found[-1].append(event)
        else:
            found.append([event])
    return found
