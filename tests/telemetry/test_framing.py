"""From answers to the grid: who a series belongs to, what is left out and counted, and what many copies come to."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthsvc.fleet import Signal
from healthsvc.telemetry.catalogue import ENVIRONMENT_ROWS, GPU_ROWS
from healthsvc.telemetry.framing.framer import Framer
from healthsvc.telemetry.framing.owners import LARGEST_LABELS, Owners
from healthsvc.telemetry.identity.labels import DEVICE_LABELS, HOST_LABELS, device_id
from tests.telemetry.framed import GPU, OTHER, Pairs, grid, line, of, samples
from tests.telemetry.scrapes import devices_of

TEMPERATURE, REPLAYS = "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"
TIMES = np.arange(1.0, 6) * 60.0
ROW = next(row for row in GPU_ROWS if row.metric == TEMPERATURE)


def steady(value: float, count: int = 5, late_s: float = 0.0) -> Pairs:
    return [(60.0 * (k + 1) - late_s, value) for k in range(count)]


@pytest.mark.parametrize("label", ["pod", "hpc_job", "replica", "GPU_I_ID", "vgpu"])
def test_copies_of_one_reading_are_one_reading(label: str) -> None:
    copies = [(of(**{label: str(n)}), steady(50 + n)) for n in range(3)]
    assert line(grid({TEMPERATURE: samples(*copies)}, TIMES), Signal.GPU_TEMPERATURE) == [52.0] * 5


def test_a_limit_is_the_smallest_of_its_copies() -> None:
    metric = "DCGM_FI_DEV_SLOWDOWN_TEMP"
    copies = samples((of(pod="a"), steady(90)), (of(pod="b"), steady(87)))
    assert line(grid({metric: copies}, TIMES), Signal.GPU_SLOWDOWN_LIMIT) == [87.0] * 5


def test_of_two_names_the_catalogues_first_wins_and_the_other_fills_its_gaps() -> None:
    answers = {TEMPERATURE: samples((of(), steady(50, 2))), "DCGM_FI_DEV_GPU_TEMP_CELSIUS": samples((of(), steady(51)))}
    assert line(grid(answers, TIMES), Signal.GPU_TEMPERATURE) == [50, 50, 51, 51, 51]


def test_series_that_name_no_gpu_are_counted_and_left_out() -> None:
    nameless = {"UUID": "", "gpu": "3", "Hostname": "node-a"}
    raw = grid({TEMPERATURE: samples((of(), steady(50)), (nameless, steady(60)))}, TIMES)
    assert len(raw.gpus) == 1
    assert raw.rejected == {(Signal.GPU_TEMPERATURE, "no_device"): 5}


def test_a_switch_is_no_gpu_and_no_mistake() -> None:
    switch = {"nvswitch": "0", "Hostname": "node-a"}
    assert grid({REPLAYS: samples((of(), steady(0)), (switch, steady(5)))}, TIMES).rejected == {}


def test_a_label_set_of_megabytes_is_left_out() -> None:
    huge = of(OTHER, note="x" * 10_000_000)
    raw = grid({TEMPERATURE: samples((of(), steady(50)), (huge, steady(60)))}, TIMES)
    assert raw.rejected == {(Signal.GPU_TEMPERATURE, "oversized_labels"): 5}
    assert line(raw, Signal.GPU_TEMPERATURE, 0) == [50.0] * 5
    assert line(raw, Signal.GPU_TEMPERATURE, 1) == [None] * 5
    assert LARGEST_LABELS < 10_000_000


def test_samples_from_a_clock_ahead_are_left_out() -> None:
    pairs = [*steady(50, 3), (240.0, 99.0)]
    raw = grid({TEMPERATURE: samples((of(), pairs))}, TIMES, now_s=200.0)
    assert line(raw, Signal.GPU_TEMPERATURE) == [50, 50, 50, None, None]
    assert raw.rejected == {(Signal.GPU_TEMPERATURE, "future"): 1}


def test_of_two_samples_at_one_moment_the_first_counts_and_no_time_runs_backwards() -> None:
    pairs = [(60.0, 50.0), (60.0, 90.0), (180.0, 52.0), (120.0, 91.0), (240.0, 53.0)]
    raw = grid({TEMPERATURE: samples((of(), pairs))}, TIMES)
    assert line(raw, Signal.GPU_TEMPERATURE) == [50, None, 52, 53, None]
    assert raw.rejected == {(Signal.GPU_TEMPERATURE, why): 1 for why in ("duplicate_time", "out_of_order")}


def test_gpus_of_others_are_left_out() -> None:
    answers = {TEMPERATURE: samples((of(), steady(50)), (of(OTHER), steady(60)))}
    raw = grid(answers, TIMES, gpus=[gpu for gpu in devices_of(answers) if gpu.device_id == OTHER])
    assert raw.values[Signal.GPU_TEMPERATURE].tolist() == [[60.0] * 5]


def test_answers_may_come_in_any_order_and_any_number_of_parts() -> None:
    whole = samples((of(), steady(50, late_s=7)), (of(OTHER), steady(60, late_s=3)))
    wanted = grid({TEMPERATURE: whole}, TIMES).values[Signal.GPU_TEMPERATURE]
    framer = Framer(devices_of({TEMPERATURE: whole}), TIMES, 60.0)
    for columns in (slice(3, 5), slice(0, 1), slice(1, 3)):
        for device, value, late_s in ((OTHER, 60, 3), (GPU, 50, 7)):
            pairs = steady(value, late_s=late_s)[columns]
            framer.take(ROW, samples((of(device), pairs)), columns)
    np.testing.assert_array_equal(framer.grid(0, ()).values[Signal.GPU_TEMPERATURE], wanted)


def test_an_answer_repeated_changes_nothing() -> None:
    whole = samples((of(pod="a"), steady(50)), (of(pod="b"), steady(51)))
    framer = Framer(devices_of({TEMPERATURE: whole}), TIMES, 60.0)
    for _ in range(2):
        framer.take(ROW, whole)
    assert framer.grid(0, ()).values[Signal.GPU_TEMPERATURE].tolist() == [[51.0] * 5]


def test_each_metric_tells_how_it_was_read_and_on_how_many_gpus() -> None:
    answers = {TEMPERATURE: samples((of(), steady(50)), (of(OTHER), steady(60)))}
    (told,) = grid(answers, TIMES).readings
    assert (told.signal, told.metric, told.unit, told.conflict, told.gpus) == (
        Signal.GPU_TEMPERATURE,
        TEMPERATURE,
        "celsius",
        False,
        2,
    )
    assert told.generation == "dcgm-exporter classic"


def test_the_readings_of_a_place_are_cleaned_too() -> None:
    row = replace(next(row for row in ENVIRONMENT_ROWS if row.signal is Signal.INLET), place_labels=("hostname",))
    answer = samples(({"hostname": "n", "name": "Inlet Temp"}, [(60.0, 24.0), (120.0, 644245923.0), (180.0, np.nan)]))
    framer = Framer((), TIMES, 60.0)
    framer.take(row, answer)
    raw = framer.grid(3, ())
    assert raw.environment[Signal.INLET].values[0, 0] == 24
    assert np.isnan(raw.environment[Signal.INLET].values[0, 1:]).all()
    assert raw.rejected == {(Signal.INLET, why): 1 for why in ("out_of_range", "not_a_number")}


WRITTEN = st.sampled_from(["", GPU, GPU.upper(), GPU.removeprefix("GPU-"), OTHER, "N/A", "gpu", "0", "1", "nvswitch"])
NAMES = ("hw_type", "gpu_partition_id", *DEVICE_LABELS, *HOST_LABELS, "pod")


@given(st.lists(st.lists(st.dictionaries(st.sampled_from(NAMES), WRITTEN), max_size=4), max_size=4))
def test_owners_are_told_in_any_order_as_each_series_alone_tells(answers: list[list[dict[str, str]]]) -> None:
    owners = Owners()
    for labels in answers:
        for each in (tuple(labels), tuple(labels), tuple(reversed(labels))):
            assert list(owners.of(each).devices) == [device_id(one) for one in each]


def test_a_name_that_is_known_hides_neither_what_is_no_gpu_nor_another_host() -> None:
    owners = Owners()
    assert list(owners.of(({"UUID": GPU}, {"UUID": GPU, "hw_type": "cpu"})).devices) == [GPU, ""]
    assert list(owners.of(({"UUID": GPU, "gpu_partition_id": "1"}, {"UUID": GPU})).devices) == ["", GPU]
    assert list(owners.of(tuple({"gpu_id": "0", "hostname": host} for host in "ab")).devices) == ["a/0", "b/0"]


def test_a_matcher_narrows_and_what_it_leaves_out_is_not_counted() -> None:
    row = next(row for row in GPU_ROWS if row.matcher)
    framer = Framer((), TIMES, 60.0)
    framer.take(
        replace(row, matcher='job="right"'), samples(({"job": "wrong"}, steady(5)), ({"job": "right"}, [(60.0, 5)]))
    )
    assert framer.grid(0, ()).rejected == {(row.signal, "no_device"): 1}
