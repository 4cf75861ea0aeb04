"""A tiny fleet for the wiring: eight GPUs, ten days, five-minute steps, and some of everything that can go wrong."""

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from healthsvc.config import Settings
from healthsvc.fleet import DAY_S
from healthsvc.simulator import parse_scenario, write_recording

START_S = 1_767_571_200.0  # 2026-01-05T00:00:00Z
START_DAY = int(START_S // DAY_S)
STEP_S = 300.0
DAYS = 10
SCENARIO = """
name = "tiny"
days = 10
step_s = 300
start = 2026-01-05T00:00:00Z

[fleet]
gpus = 8
gpus_per_node = 4
nodes_per_rack = 1
racks_per_loop = 1

[errors]
correctable_per_day = 2.0
pcie_replays_per_day = 2.0
application_xids_per_day = 1.0

[[fault]]
kind = "hbm_wear"
target = 1
start_day = 1.0
days_to_failure = 8.5
remaps = 4

[[fault]]
kind = "off_bus"
target = 2
start_day = 9.1

[[fault]]
kind = "tim_drift"
target = 6
start_day = 1.0
growth_percent_per_day = 3.0

[[fault]]
kind = "loop_flow_loss"
target = "loop-2"
start_day = 9.3
end_day = 9.4
ramp_minutes = 20
remaining_ratio = 0.25
"""


def write_tiny(folder: Path) -> Path:
    """The recording; row i of gpus.csv is target i of the scenario."""
    import tomllib

    return write_recording(parse_scenario(tomllib.loads(SCENARIO), "tiny"), folder, seed=1)


def miss_scrapes(recording: Path, share: float, seed: int = 3) -> None:
    """Drop samples at random, as slow scrapes do."""
    rng = np.random.default_rng(seed)
    for path in sorted((recording / "telemetry").iterdir()):
        table = pq.read_table(path, partitioning=None)
        pq.write_table(table.filter(pa.array(rng.random(len(table)) >= share)), path)


def settings_for(state: Path, **history: float) -> Settings:
    """Settings at the recording's own step."""
    return Settings(cycle={"step_s": STEP_S}, history={"train_days": 30, **history}, store={"directory": state})
