"""How each metric was read: by its name, or against it, and on how many GPUs."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from healthsvc.fleet.survey import Reading
from healthsvc.telemetry.catalogue.rows import Row
from healthsvc.telemetry.framing.units import Unit


@dataclass
class Readings:
    """Gathers readings while answers come in; gpus: how many rows there are."""

    gpus: int
    seen: dict[tuple[Row, Unit], NDArray[np.bool_]] = field(default_factory=dict)
    why: dict[tuple[Row, Unit], str] = field(default_factory=dict)

    def add(self, row: Row, unit: Unit, rows: NDArray[np.intp], why: str) -> None:
        """The series of these rows of the grid were read in `unit`; `why`, if their values prove anything."""
        if not len(rows):
            return
        key = (row, unit)
        if key not in self.seen:
            self.seen[key] = np.zeros(self.gpus, bool)
        self.seen[key][rows] = True
        if why and key not in self.why:
            self.why[key] = why

    def told(self) -> tuple[Reading, ...]:
        """Every metric and unit that was met, in order of signal and metric."""
        found = []
        for (row, unit), rows in self.seen.items():
            conflict = unit is not row.by_name
            proof = self.why.get((row, unit), "")
            said = f"the name says {row.by_name.name}"
            if conflict:
                why = f"{said}, but {proof or 'earlier samples of this host proved otherwise'}; read as {unit.name}"
            else:
                why = f"{said}, and {proof}" if proof else said
            found.append(Reading(row.signal, row.metric, row.since, unit.name, why, conflict, int(rows.sum())))
        return tuple(sorted(found, key=lambda reading: (reading.signal, reading.metric, reading.unit)))
