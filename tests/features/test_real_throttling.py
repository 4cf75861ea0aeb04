"""A real run at the power cap: 8 H100 for 338 s, 24,004 of 26,792 rows power-capped, 77 C and 759 W at most."""

from pathlib import Path

import numpy as np
import pytest

from healthsvc.features.events import ONSETS, detect_events
from healthsvc.features.throttling import ThrottleKind, throttle_episodes, throttled_seconds
from healthsvc.fleet import FleetWindow, Signal
from healthsvc.telemetry.framing.grid import frame, uniform_times
from healthsvc.telemetry.imports import ImportSpec, import_files
from healthsvc.telemetry.recorded import RecordedSource

RUN = Path(__file__).parents[2].parent / "shared" / "data" / "h100x8-telemetry-10hz" / "t3_telemetry.csv"
pytestmark = pytest.mark.skipif(not RUN.is_file(), reason=f"no {RUN}")
# The run's names of nvidia-smi's fields; its own further columns stay, and the import leaves them out.
FIELDS = {
    "gpu": "index",
    "gpu_model": "name",
    "power_w": "power.draw [W]",
    "temp_c": "temperature.gpu",
    "gpu_util_pct": "utilization.gpu [%]",
    "throttle_reasons": "clocks_event_reasons.active",
}
POWER_CAP, SOFTWARE_THERMAL = "4", "32"
STEP_S = 1.0


def window_of(folder: Path, bit: str = POWER_CAP) -> FleetWindow:
    """The run through our own import; `bit`: what stands in place of the power cap."""
    header, *rows = RUN.read_text().splitlines()
    names = header.split(",")
    reasons = names.index("throttle_reasons")
    cells = [row.split(",") for row in rows]
    for row in cells:
        row[reasons] = bit if row[reasons] == POWER_CAP else row[reasons]
    log = folder / "t3.csv"
    log.write_text("\n".join(", ".join(row) for row in [[FIELDS.get(name, name) for name in names], *cells]) + "\n")
    found = import_files([log], folder / "recording", ImportSpec(step_s=STEP_S))
    assert found.files[0].rows == 26_792
    source = RecordedSource(found.folder)
    return frame(source.read(uniform_times(found.start_s, found.end_s, STEP_S), source.gpus, STEP_S))[0]


def onsets(window: FleetWindow) -> int:
    return len(detect_events(window, np.zeros(8, np.int32), -np.inf).of(*ONSETS))


def test_a_run_at_the_power_cap_throttles_by_nothing_that_is_a_fault(tmp_path: Path) -> None:
    window = window_of(tmp_path)
    bits = window.get(Signal.CLOCK_EVENT_REASONS)
    assert len(window.gpus) == 8
    assert np.mean(bits[~np.isnan(bits)] == int(POWER_CAP)) > 0.89
    assert np.nanmax(window.get(Signal.GPU_TEMPERATURE)) == 77
    assert onsets(window) == 0
    for kind in ThrottleKind:
        assert np.isfinite(throttled_seconds(window, kind)).mean() > 0.95  # it is observed, and it is none
        assert len(throttle_episodes(window, kind)) == 0


def test_the_same_run_held_down_by_heat_would_be_an_episode_of_each_gpu(tmp_path: Path) -> None:
    window = window_of(tmp_path, SOFTWARE_THERMAL)
    assert sorted(throttle_episodes(window, ThrottleKind.SOFTWARE_THERMAL).row.tolist()) == list(range(8))
    assert onsets(window) == 8
    assert len(throttle_episodes(window, ThrottleKind.HARDWARE_THERMAL)) == 0
