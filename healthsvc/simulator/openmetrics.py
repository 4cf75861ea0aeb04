"""The same samples as text, in a classic dcgm-exporter's names, units and labels, to backfill a real Prometheus."""

import shutil
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from healthsvc.fleet import GpuId, Signal
from healthsvc.simulator.fleet import Chunk
from healthsvc.simulator.series import Array

DRIVER_VERSION = "535.183.06"


@dataclass(frozen=True)
class Family:
    """How the exporter shows a signal: value = signal x scale, in whole numbers or to the milli."""

    name: str
    scale: float = 1.0
    decimals: int = 0


DCGM = {
    Signal.GPU_TEMPERATURE: Family("DCGM_FI_DEV_GPU_TEMP"),
    Signal.MEMORY_TEMPERATURE: Family("DCGM_FI_DEV_MEMORY_TEMP"),
    Signal.POWER: Family("DCGM_FI_DEV_POWER_USAGE", decimals=3),
    Signal.ENERGY: Family("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1e3),  # mJ
    Signal.SM_CLOCK: Family("DCGM_FI_DEV_SM_CLOCK", 1e-6),  # MHz
    Signal.GPU_UTILIZATION: Family("DCGM_FI_DEV_GPU_UTIL", 100),  # percent
    Signal.POWER_LIMIT: Family("DCGM_FI_DEV_ENFORCED_POWER_LIMIT"),
    Signal.GPU_MAX_OPERATING_LIMIT: Family("DCGM_FI_DEV_GPU_MAX_OP_TEMP"),
    Signal.GPU_SLOWDOWN_LIMIT: Family("DCGM_FI_DEV_SLOWDOWN_TEMP"),
    Signal.MEMORY_MAX_OPERATING_LIMIT: Family("DCGM_FI_DEV_MEM_MAX_OP_TEMP"),
    # Nanoseconds, whatever the help text of older exporters says (dcgm-exporter PR 589).
    Signal.THERMAL_THROTTLE: Family("DCGM_FI_DEV_THERMAL_VIOLATION", 1e9),
    Signal.SOFTWARE_THERMAL_THROTTLE: Family("DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS", 1e9),
    Signal.HARDWARE_THERMAL_THROTTLE: Family("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", 1e9),
    Signal.POWER_BRAKE_THROTTLE: Family("DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS", 1e9),
    Signal.CLOCK_EVENT_REASONS: Family("DCGM_FI_DEV_CLOCKS_EVENT_REASONS"),
    Signal.XID: Family("DCGM_FI_DEV_XID_ERRORS"),
    Signal.SBE_VOLATILE: Family("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL"),
    Signal.DBE_VOLATILE: Family("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL"),
    Signal.SBE_AGGREGATE: Family("DCGM_FI_DEV_ECC_SBE_AGG_TOTAL"),
    Signal.DBE_AGGREGATE: Family("DCGM_FI_DEV_ECC_DBE_AGG_TOTAL"),
    Signal.CORRECTABLE_REMAPS: Family("DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS"),
    Signal.UNCORRECTABLE_REMAPS: Family("DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS"),
    Signal.REMAP_FAILURE: Family("DCGM_FI_DEV_ROW_REMAP_FAILURE"),
    Signal.REMAP_PENDING: Family("DCGM_FI_DEV_ROW_REMAP_PENDING"),
    Signal.PCIE_REPLAYS: Family("DCGM_FI_DEV_PCIE_REPLAY_COUNTER"),
}
PLACES = {
    Signal.INLET: Family("ipmi_temperature_celsius", decimals=1),
    Signal.COOLANT_SUPPLY: Family("coolant_supply_temperature_celsius", decimals=2),
    Signal.COOLANT_FLOW: Family("coolant_flow_liters_per_minute", decimals=2),
    Signal.RATED_COOLANT_FLOW: Family("coolant_rated_flow_liters_per_minute", decimals=2),
}


class OpenMetricsWriter:
    """Writes OpenMetrics text to `path` as chunks come; the file appears at the end, if all went well.

    All families are gauges: a counter would have to end in _total, and DCGM's do not. Each family gathers in a file of
    its own, since the format wants a family in one piece. A silent GPU has no line.
    """

    def __init__(self, path: Path, gpus: Sequence[GpuId]) -> None:
        self.path, self.gpu_labels = path, [_labels(gpu) for gpu in gpus]

    def __enter__(self) -> "OpenMetricsWriter":
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self._folder = Path(tempfile.mkdtemp(prefix=f".{self.path.name}.partial-", dir=self.path.parent))
        self._files: dict[Signal, IO[str]] = {}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            for file in self._files.values():
                file.close()
            if kind is None:
                joined = self._folder / "joined"
                with joined.open("wb") as out:
                    for file in self._files.values():
                        with open(file.name, "rb") as part:
                            shutil.copyfileobj(part, out, 1 << 20)
                    out.write(b"# EOF\n")
                joined.replace(self.path)
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)

    def add(self, chunk: Chunk) -> None:
        """Writes the chunk's samples."""
        for signal, family in DCGM.items():
            self._write(signal, family, self.gpu_labels, chunk.values[signal], chunk.times_s)
        for signal, series in chunk.environment.items():
            kind = 'name="Inlet Temp",hostname' if signal is Signal.INLET else "loop"
            labels = [f'{kind}="{name}"' for name in series.names]
            self._write(signal, PLACES[signal], labels, series.values.astype(np.float64), chunk.times_s)

    def _write(self, signal: Signal, family: Family, labels: Sequence[str], values: Array, times_s: Array) -> None:
        if signal not in self._files:
            self._files[signal] = (self._folder / family.name).open("w", encoding="utf-8")
            self._files[signal].write(f"# TYPE {family.name} gauge\n")
        scaled = np.round(values * family.scale, family.decimals)
        for label, row in zip(labels, scaled, strict=True):
            seen = ~np.isnan(row)
            shown = (row[seen] if family.decimals else row[seen].astype(np.int64)).tolist()
            moments = times_s[seen].astype(np.int64).tolist()
            begin = f"{family.name}{{{label}}} "
            lines = [f"{begin}{value} {at}\n" for value, at in zip(shown, moments, strict=True)]
            self._files[signal].write("".join(lines))


def _labels(gpu: GpuId) -> str:
    pairs = {
        "gpu": gpu.index,
        "UUID": gpu.device_id,
        "pci_bus_id": gpu.slot,
        "device": f"nvidia{gpu.index}",
        "modelName": gpu.product,
        "Hostname": gpu.hostname,
        "DCGM_FI_DRIVER_VERSION": DRIVER_VERSION,
    }
    return ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs.items())


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
