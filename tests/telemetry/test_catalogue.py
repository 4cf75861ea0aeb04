"""The tables: every signal has a row, and every row a unit, a generation and a name of its own."""

import numpy as np
import pytest

from healthsvc.fleet import ENVIRONMENT, GPU_SIGNALS, Signal
from healthsvc.telemetry.catalogue import ENVIRONMENT_ROWS, GPU_ROWS, NOT_READ, rows_in
from healthsvc.telemetry.catalogue.rows import CLASSIC, DCGM_46, DCGM_49, predicate
from healthsvc.telemetry.framing.hygiene import PLAUSIBLE
from healthsvc.telemetry.framing.units import UNITS


def test_every_signal_that_is_not_derived_has_a_row() -> None:
    assert {row.signal for row in GPU_ROWS} == set(GPU_SIGNALS) - {Signal.DRIVER_RELOADS}
    assert {row.signal for row in ENVIRONMENT_ROWS} == ENVIRONMENT


def test_a_metric_with_its_matcher_has_one_row() -> None:
    metrics = [(row.metric, row.matcher) for row in GPU_ROWS] + [(row.metric, row.matcher) for row in ENVIRONMENT_ROWS]
    assert len(metrics) == len(set(metrics))


def test_every_row_has_a_unit_of_the_closed_table() -> None:
    assert {row.unit for row in GPU_ROWS} <= UNITS.keys()


def test_every_signal_has_a_range_that_hardware_can_have() -> None:
    assert {row.signal for row in GPU_ROWS} | {row.signal for row in ENVIRONMENT_ROWS} <= PLAUSIBLE.keys()


def test_what_is_not_read_is_in_no_row() -> None:
    assert not NOT_READ.keys() & {row.metric for row in GPU_ROWS}


@pytest.mark.parametrize(
    ("signal", "classic", "dcgm_46", "dcgm_49"),
    [
        (Signal.GPU_TEMPERATURE, "GPU_TEMP celsius", "GPU_TEMP_CELSIUS celsius", ""),
        (Signal.MEMORY_TEMPERATURE, "MEMORY_TEMP celsius", "MEMORY_TEMP_CELSIUS celsius", ""),
        (Signal.GPU_SLOWDOWN_LIMIT, "SLOWDOWN_TEMP celsius", "GPU_TEMP_SLOWDOWN_CELSIUS celsius", ""),
        (Signal.GPU_TEMPERATURE_MARGIN, "GPU_TEMP_LIMIT celsius", "GPU_TEMP_MARGIN_CELSIUS celsius", ""),
        (Signal.POWER, "POWER_USAGE watts", "BOARD_POWER_WATTS watts", ""),
        (Signal.ENERGY, "TOTAL_ENERGY_CONSUMPTION millijoules", "", "GPU_ENERGY_JOULES_TOTAL joules"),
        (Signal.SM_CLOCK, "SM_CLOCK megahertz", "", "SM_CLOCK_HERTZ hertz"),
        (Signal.GPU_UTILIZATION, "GPU_UTIL percent", "GPU_UTIL_RATIO ratio", ""),
        (Signal.THERMAL_THROTTLE, "THERMAL_VIOLATION nanoseconds", "", "GPU_THERMAL_THROTTLE_SECONDS_TOTAL seconds"),
        (Signal.CORRECTABLE_REMAPS, "CORRECTABLE_REMAPPED_ROWS count", "ROW_REMAP_CORRECTABLE_TOTAL count", ""),
        (Signal.REMAP_FAILURE, "ROW_REMAP_FAILURE bool", "ROW_REMAP_FAILED bool", ""),
        (Signal.SRAM_THRESHOLD, "THRESHOLD_SRM bool", "SRAM_EXCEEDED bool", ""),
        (Signal.UNREPAIRABLE, "MEMORY_UNREPAIRABLE_FLAG bool", "MEMORY_UNREPAIRABLE bool", ""),
        (Signal.RETIRED_PAGES_DBE, "RETIRED_DBE count", "PAGE_RETIRED_DBE_TOTAL count", ""),
        (Signal.PCIE_REPLAYS, "PCIE_REPLAY_COUNTER count", "PCIE_REPLAY_TOTAL count", ""),
        (Signal.SBE_AGGREGATE, "ECC_SBE_AGG_TOTAL count", "", ""),
    ],
)
def test_each_generation_has_its_names_and_units(signal: Signal, classic: str, dcgm_46: str, dcgm_49: str) -> None:
    for since, wanted in ((CLASSIC, classic), (DCGM_46, dcgm_46), (DCGM_49, dcgm_49)):
        prefix = "DCGM_FI_DEV_"
        found = [
            f"{row.metric.removeprefix(prefix)} {row.unit}"
            for row in GPU_ROWS
            if row.signal is signal and row.since == since and row.metric.startswith(prefix)
        ]
        assert found == ([wanted] if wanted else [])


def test_names_in_small_letters_are_found_too() -> None:
    found = rows_in({"dcgm_fi_dev_gpu_temp", "DCGM_FI_DEV_POWER_USAGE", "up"})
    assert [(row.signal, row.metric) for row in found] == [
        (Signal.GPU_TEMPERATURE, "dcgm_fi_dev_gpu_temp"),
        (Signal.POWER, "DCGM_FI_DEV_POWER_USAGE"),
    ]


@pytest.mark.parametrize(
    ("matcher", "labels", "met"),
    [
        ("", {}, True),
        ('a="1"', {"a": "1"}, True),
        ('a="1"', {}, False),
        ('a!="1"', {}, True),
        ('gpu_id!="",gpu_partition_id=~"0?"', {"gpu_id": "3"}, True),
        ('gpu_id!="",gpu_partition_id=~"0?"', {"gpu_id": "3", "gpu_partition_id": "1"}, False),
        ('name=~"(?i).*inlet.*"', {"name": "Inlet Temp"}, True),
        ('name!~"x|y"', {"name": "y"}, False),
        ('name="a\\"b"', {"name": 'a"b'}, True),
    ],
)
def test_a_matcher_means_what_it_means_in_promql(matcher: str, labels: dict[str, str], met: bool) -> None:
    assert predicate(matcher)(labels) is met


def test_only_the_whole_board_of_a_partitioned_amd_gpu_is_read() -> None:
    rows = [row for row in GPU_ROWS if row.metric == "gpu_junction_temperature"]
    assert [predicate(row.matcher)({"gpu_id": "0", "gpu_partition_id": part}) for row in rows for part in "01"] == [
        True,
        False,
    ]
    assert np.all([row.merge == "max" for row in rows])
