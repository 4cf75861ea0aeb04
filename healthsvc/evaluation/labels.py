"""incidents.csv: what really happened, in the one label format that people, webhooks and the simulator share."""

import csv
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from healthsvc.fleet import CLASSES, GRADES, LAYERS, rfc3339

COLUMNS = ("scope", "start", "end", "class", "grade", "source", "precursor", "scenario", "note")
OPTIONAL = ("precursor", "scenario", "note")
THROTTLING, MAINTENANCE, DECOY = "throttling", "maintenance", "none"
LABEL_CLASSES = (*CLASSES, THROTTLING, MAINTENANCE, DECOY)
SOURCES = ("operator", "webhook", "auto", "service")
RFC_3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,6})?([Zz]|[+-]\d\d:\d\d)")
PRECURSOR = {"": None, "true": True, "false": False}
WHOLE_FLEET = "fleet:all"  # what befalls every GPU at once, such as a heat wave


class LabelError(ValueError):
    """Rows that cannot be labels: one line for each, naming the file, the line, the value and the cure."""


@dataclass(frozen=True)
class Label:
    """One row: what befell `scope` (a device_id, or `layer:name`) from start_s to end_s (inf while it lasts).

    failure_class: one of LABEL_CLASSES; `none` is a decoy, its kind in `scenario`. precursor: whether there was
    something to foresee, None if nobody said. line: where it was read, 0 if nowhere.
    """

    scope: str
    start_s: float
    end_s: float
    failure_class: str
    grade: str = ""
    source: str = "operator"
    precursor: bool | None = None
    scenario: str = ""
    note: str = ""
    line: int = 0

    @property
    def judged(self) -> bool:
        """Whether it may be counted: our own output is none until somebody has judged it and put his name to it."""
        return self.source != "service"


def is_domain(scope: str) -> bool:
    """Whether the scope is a place (`rack:r3`) rather than a GPU."""
    layer, colon, name = scope.partition(":")
    return scope == WHOLE_FLEET or (bool(colon and name) and layer in LAYERS)


def read_labels(path: Path) -> tuple[Label, ...]:
    """The labels of a file, in its order. Raises LabelError with a line for everything that is wrong."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as failure:
        raise LabelError(f"{path}: {failure.strerror}; give the path of an incidents.csv") from None
    except UnicodeDecodeError as failure:
        raise LabelError(f"{path}: byte {failure.start} is not UTF-8; save the file as UTF-8") from None
    return parse_labels(text, str(path))


def parse_labels(text: str, where: str = "incidents.csv") -> tuple[Label, ...]:
    """As `read_labels`, from text; `where` names the file in errors. `service` rows are read and not judged."""
    labels: list[Label] = []
    wrong: list[str] = []
    for line, cells in _rows(text, where):
        label, faults = _label(cells, line)
        wrong += [f"{where}:{line}: {fault}" for fault in faults]
        labels += [] if faults else [label]
    wrong += _conflicts(labels, where)
    if wrong:
        raise LabelError("\n".join(wrong))
    return tuple(labels)


def _rows(text: str, where: str) -> list[tuple[int, dict[str, str]]]:
    """(first line, cells by column) of each record."""
    reader = csv.reader(io.StringIO(text), strict=True)
    rows: list[tuple[int, dict[str, str]]] = []
    wrong: list[str] = []
    header: Sequence[str] = ()
    while True:
        line = reader.line_num + 1
        try:
            cells = [cell.strip() for cell in next(reader)]
        except StopIteration:
            break
        except csv.Error as failure:
            wrong.append(f"{where}:{line}: {failure}; quote a cell that holds quotes or line breaks")
            break
        if not any(cells):
            continue
        if not header:
            header = _header(cells, f"{where}:{line}")
        elif len(cells) != len(header):
            wrong.append(f"{where}:{line}: {len(cells)} cells; the header has {len(header)}, quote cells with commas")
        else:
            rows.append((line, dict(zip(header, cells, strict=True))))
    if wrong:
        raise LabelError("\n".join(wrong))
    if not header:
        raise LabelError(f"{where}:1: no header; begin with the line {','.join(COLUMNS)}")
    return rows


def _header(cells: list[str], where: str) -> list[str]:
    unknown = [cell for cell in cells if cell not in COLUMNS]
    missing = [name for name in COLUMNS if name not in cells and name not in OPTIONAL]
    repeated = sorted({cell for cell in cells if cells.count(cell) > 1})
    if unknown or missing or repeated:
        found = "; ".join(
            f"{what}: {', '.join(names)}"
            for what, names in (("unknown", unknown), ("missing", missing), ("twice", repeated))
            if names
        )
        raise LabelError(f"{where}: columns {found}; begin with the line {','.join(COLUMNS)}")
    return cells


def _label(cells: dict[str, str], line: int) -> tuple[Label, list[str]]:
    """The row as a label, and what is wrong with it; with faults the label is not to be used."""
    scope, what, grade = cells["scope"], cells["class"], cells["grade"]
    faults = _scope_faults(scope, what)
    if what not in LABEL_CLASSES:
        faults.append(f"class = {what!r}: no such class; choose one of {', '.join(LABEL_CLASSES)}")
    elif what in (MAINTENANCE, DECOY) and grade:
        faults.append(f"grade = {grade!r}: {what} has no grade; leave it empty")
    elif what == THROTTLING and grade != "T2":
        faults.append(f"grade = {grade!r}: throttling is always T2; write T2")
    elif what in CLASSES and grade not in GRADES:
        faults.append(f"grade = {grade!r}: no such grade; choose one of {', '.join(GRADES)}")
    if cells["source"] not in SOURCES:
        faults.append(f"source = {cells['source']!r}: no such source; choose one of {', '.join(SOURCES)}")
    precursor = cells.get("precursor", "").lower()
    if precursor not in PRECURSOR:
        faults.append(f"precursor = {precursor!r}: write true or false, or leave it empty")
    start_s, end_s = (_time_s(cells[name], name, faults) for name in ("start", "end"))
    if start_s > end_s:
        faults.append(f"end = {cells['end']!r}: before start = {cells['start']!r}; swap them, or leave end empty")
    label = Label(
        scope,
        start_s,
        end_s,
        what,
        grade,
        cells["source"],
        PRECURSOR.get(precursor),
        cells.get("scenario", ""),
        cells.get("note", ""),
        line,
    )
    return label, faults


def _scope_faults(scope: str, what: str) -> list[str]:
    if not scope or any(c.isspace() for c in scope.partition(":")[0]) or (":" in scope and not is_domain(scope)):
        places = ", ".join(f"{layer}:NAME" for layer in LAYERS)
        return [f"scope = {scope!r}: neither a GPU nor a place; write its device_id (UUID or serial), or {places}"]
    if what in CLASSES and is_domain(scope):
        return [f"scope = {scope!r}: {what} befalls single GPUs; write a device_id a row, or the class throttling"]
    if what == THROTTLING and not is_domain(scope):
        return [f"scope = {scope!r}: throttling befalls places; write layer:NAME, or the class thermal"]
    return []


def _time_s(text: str, name: str, faults: list[str]) -> float:
    """Unix seconds; an empty end is inf. What is no time is added to `faults` and gives NaN."""
    if not text and name == "end":
        return float("inf")
    try:
        if RFC_3339.fullmatch(text):
            return datetime.fromisoformat(text.upper()).timestamp()
    except ValueError:
        pass
    faults.append(f"{name} = {text!r}: no RFC 3339 time; write it like 2026-01-31T08:30:00Z")
    return float("nan")


def _conflicts(labels: Sequence[Label], where: str) -> list[str]:
    """Rows that tell the same moment twice. A T2 that grows into a T1 later is no contradiction, but one history."""
    first: dict[tuple[str, str, float, str], Label] = {}
    found = []
    for label in labels:
        kind = label.scenario if label.failure_class == DECOY else ""
        key = (label.scope, label.failure_class, label.start_s, kind)
        known = first.setdefault(key, label) if label.judged else label
        if known is label:
            continue
        told = f"{where}:{label.line}: {label.scope} {label.failure_class} at {rfc3339(label.start_s)}"
        if known.grade != label.grade:
            told += f" is {label.grade} here and {known.grade} in line {known.line}; keep the graver row"
        elif known.end_s != label.end_s:
            told += f" ends otherwise in line {known.line}; keep one of the two rows"
        else:
            told += f" is a duplicate of line {known.line}; delete one of the two rows"
        found.append(told)
    return found
