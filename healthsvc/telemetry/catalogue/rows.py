"""The two kinds of row that a vendor's table is made of, and what a row's matcher means."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from healthsvc.fleet import Signal
from healthsvc.telemetry.framing.units import UNITS, Unit

Merge = Literal["max", "min", "last"]
Counts = Literal["", "total", "window"]

CLASSIC = "dcgm-exporter classic"  # up to 4.8.4
DCGM_46 = "dcgm-exporter 4.6"  # new names, old units
DCGM_49 = "dcgm-exporter 4.9"  # new names, new units
EXPORTER_OWN = "dcgm-exporter's own"  # DCGM_EXP_*, counted by the exporter and not by DCGM
NVIDIA_SMI = "nvidia_gpu_exporter"
AMD = "amd device-metrics-exporter"
OTEL = "opentelemetry hw"


@dataclass(frozen=True)
class Row:
    """One exporter metric and the canonical signal it carries.

    unit: a word of framing.units, what the name says; the values may prove another. Where several series of one
    device report in one grid column (pods, jobs, MIG instances, replicas), `merge` picks the largest, the smallest or
    the newest; never a sum, because they repeat one reading. Of several rows with one signal the earlier wins, sample
    by sample. since: the generation that brought the name. matcher: label matchers as in PromQL, which narrow.

    code_label: the value is this label's number, not the sample, which counts how often it happened (`counts`): since
    the exporter's start ("total"), or in a sliding window, which must never be differenced ("window").
    """

    signal: Signal
    metric: str
    unit: str
    merge: Merge = "max"
    since: str = CLASSIC
    matcher: str = ""
    code_label: str = ""
    counts: Counts = ""

    @property
    def by_name(self) -> Unit:
        """The unit that the name says."""
        return UNITS[self.unit]


@dataclass(frozen=True)
class EnvironmentRow:
    """One metric of a place. The place is named by the first of `place_labels` that a series has; `matcher` narrows.

    Of several rows with one signal the one of the lower `rank` wins, place by place and sample by sample.
    """

    signal: Signal
    metric: str
    layer: str
    place_labels: tuple[str, ...]
    matcher: str = ""
    merge: Merge = "max"
    rank: int = 0


_MATCHER = re.compile(r'([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"((?:\\.|[^"\\])*)"')


@lru_cache(maxsize=512)
def predicate(matcher: str) -> Callable[[Mapping[str, str]], bool]:
    """Whether labels meet PromQL's `matcher`; a label that is not there is "", expressions match the whole value.

    Blind to what Python's expressions and RE2 understand differently; the tables use nothing of that.
    """
    tests: list[tuple[str, re.Pattern[str], bool]] = []
    for name, operator, value in _MATCHER.findall(matcher):
        plain = value.replace('\\"', '"').replace("\\\\", "\\")
        pattern = plain if operator.endswith("~") else re.escape(plain)
        tests.append((name, re.compile(pattern, re.DOTALL), operator.startswith("=")))

    def meets(labels: Mapping[str, str]) -> bool:
        return all((pattern.fullmatch(labels.get(name, "")) is not None) is wanted for name, pattern, wanted in tests)

    return meets
