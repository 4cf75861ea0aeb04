"""A recording as the series that a dcgm-exporter would have left in a server."""

from collections.abc import Iterator

import numpy as np

from healthsvc.fleet import Signal
from healthsvc.simulator.openmetrics import DCGM, PLACES
from healthsvc.telemetry.framing.grid import uniform_times
from healthsvc.telemetry.recorded import RecordedSource
from tests.servers import Series


def series_of(recording: RecordedSource, start_s: float, end_s: float) -> Iterator[list[Series]]:
    """Everything in (start, end], a batch a metric."""
    times = uniform_times(start_s, end_s, recording.step_s)
    raw = recording.read(times, recording.gpus, recording.step_s)
    for signal, family in DCGM.items():
        if signal not in raw.values:
            continue
        batch = []
        for gpu, row in zip(raw.gpus, raw.values[signal] * family.scale, strict=True):
            labels = {
                "gpu": gpu.index,
                "UUID": gpu.device_id,
                "pci_bus_id": gpu.slot,
                "modelName": gpu.product,
                "Hostname": gpu.hostname,
            }
            batch.append(Series(family.name, labels, _samples(times, row)))
        yield batch
    for signal, places in raw.environment.items():
        family = PLACES[signal]
        yield [
            Series(family.name, _labels_of_place(signal, name), _samples(times, row.astype(np.float64)))
            for name, row in zip(places.names, places.values, strict=True)
        ]


def _labels_of_place(signal: Signal, name: str) -> dict[str, str]:
    return {"name": "Inlet Temp", "hostname": name} if signal is Signal.INLET else {"loop": name}


def _samples(times_s: np.ndarray, values: np.ndarray) -> list[tuple[float, float]]:
    seen = ~np.isnan(values)
    return list(zip(times_s[seen].tolist(), values[seen].tolist(), strict=True))
