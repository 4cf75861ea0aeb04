"""What alerting remembers from cycle to cycle: plain data, kept in the journal, so that a restart resolves nothing."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from healthsvc.alerts.alert import Alert, Rank

NEVER: tuple[float | None, ...] = (None,) * len(Rank)


@dataclass(frozen=True)
class Case:
    """The history of one subject (a GPU and class, an incident, a silent host). Times are data time.

    since_s: by rank, since when its condition has held. firing: the rank that stands, with its alert. calm_since_s:
    since when a standing alert looks over. informed_s: the last cycle that had data on it. change_p: the last test of
    change (tests come once a window, not every cycle). folded_s: when the flood guard first held it back, until it
    fires or its condition ends. cooled: rank and end of the last alert.
    """

    subject: str
    group: str
    device_id: str = ""
    place: str = ""  # its socket, to tell a swap from silence
    since_s: tuple[float | None, ...] = NEVER
    firing: Rank | None = None
    alert: Alert | None = None
    calm_since_s: float | None = None
    informed_s: float = 0.0
    change_p: float | None = None
    folded_s: float | None = None
    cooled_rank: Rank | None = None
    cooled_s: float | None = None
    taken_over: bool = False

    def idle(self) -> bool:
        """Whether nothing in it is worth remembering."""
        pending = any(since is not None for since in self.since_s)
        return not (pending or self.firing is not None or self.cooled_s is not None or self.taken_over)


@dataclass(frozen=True)
class AlertState:
    """Every open case; when this run of cycles began and last ran; and what the flood guard counts in its window.

    news_s: when subjects were due for the first time; released_s: when folded ones fired.
    """

    cases: Mapping[str, Case] = field(default_factory=lambda: MappingProxyType({}))
    started_s: float | None = None
    last_s: float | None = None
    news_s: tuple[float, ...] = ()
    released_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "cases", MappingProxyType(dict(self.cases)))

    def firing(self) -> tuple[Alert, ...]:
        """The alerts that stand, gravest first."""
        standing = [case.alert for case in self.cases.values() if case.firing is not None and case.alert]
        return tuple(sorted(standing, key=Alert.order))

    def to_rows(self) -> list[dict[str, Any]]:
        """JSON-able rows: the first one is the state's own, then one a case."""
        own = {
            "started_s": self.started_s,
            "last_s": self.last_s,
            "news_s": list(self.news_s),
            "released_s": list(self.released_s),
        }
        return [own, *(_case_row(case) for case in self.cases.values())]

    @classmethod
    def from_rows(cls, rows: Iterable[Mapping[str, Any]]) -> "AlertState":
        """The state that `to_rows` wrote; no rows give an empty state. Raises ValueError naming a row that is none."""
        kept = list(rows)
        if not kept:
            return cls()
        try:
            own = kept[0]
            cases = [_case(row) for row in kept[1:]]
            counted = (tuple(own["news_s"]), tuple(own["released_s"]))
            return cls({c.subject: c for c in cases}, own["started_s"], own["last_s"], *counted)
        except (KeyError, TypeError, ValueError) as failure:
            raise ValueError(f"alert state cannot be read: {failure!r}; delete it to start with no alerts") from failure


def _case_row(case: Case) -> dict[str, Any]:
    row = {name: getattr(case, name) for name in Case.__dataclass_fields__}
    alert = case.alert
    row["alert"] = alert and {
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "raised_s": alert.raised_s,
    }
    row["since_s"] = list(case.since_s)
    row["firing"], row["cooled_rank"] = (
        None if rank is None else int(rank) for rank in (case.firing, case.cooled_rank)
    )
    return row


def _case(row: Mapping[str, Any]) -> Case:
    typed = dict(row)
    typed["alert"] = Alert(**row["alert"]) if row["alert"] else None
    typed["since_s"] = tuple(row["since_s"])
    typed["firing"], typed["cooled_rank"] = (
        None if row[name] is None else Rank(row[name]) for name in ("firing", "cooled_rank")
    )
    return Case(**typed)
