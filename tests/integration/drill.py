"""The small history that all trouble drills share, and the settings that they run with."""

from pathlib import Path
from typing import Any

from healthsvc.config import Settings, load_settings
from healthsvc.engine.build import Replay
from tests.integration.surroundings import DAY_S, ends_today

STEP_S = 300
DAYS = 3
START_S = ends_today(DAYS)
FROM_S = START_S + 2.5 * DAY_S  # where a replay begins unless it says otherwise
# Two facts that stand from the first report on: a failed row remap, and a GPU that is gone beside a live node.
SMALL = {
    "name": "small",
    "days": DAYS,
    "step_s": STEP_S,
    "fleet": {"gpus": 8, "gpus_per_node": 8, "cooling": "liquid"},
    "fault": [
        {"kind": "hbm_wear", "target": 5, "start_day": 0.1, "days_to_failure": 1.5, "remaps": 4},
        {"kind": "off_bus", "target": 3, "start_day": 1.3},
    ],
}


def settings_of(tmp_path: Path, **sections: dict[str, Any]) -> Settings:
    """Settings of a drill: one try a request, a window that outlasts every outage, state in tmp_path/state."""
    sections["prometheus"] = {"attempts": 1, "timeout_s": 5, **sections.get("prometheus", {})}
    sections["cycle"] = {"step_s": STEP_S, "window_s": DAY_S, **sections.get("cycle", {})}
    return load_settings(None, store={"directory": tmp_path / "state"}, **sections)


def replay(day: float = 2.5, cycle_s: float = 0.3) -> Replay:
    """From this day of the small history on, a cycle every `cycle_s` of wall time."""
    return Replay(START_S + day * DAY_S, STEP_S / cycle_s)
