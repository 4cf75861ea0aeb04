"""Where GPUs stand: topology.csv before what the labels of a source tell, as soon as they tell it."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from healthsvc.engine.build import placement_of
from healthsvc.engine.placing import at_known_nodes, placed
from healthsvc.engine.recall import recall
from healthsvc.features.daily import definitions
from healthsvc.fleet import HOUR_S, GpuId, Placement, PlaceSeries, Signal
from healthsvc.store import Ledger
from tests.engine.recordings import START_S, STEP_S, settings_for
from tests.engine.sources import ArraySource, steady_source

GPUS = (GpuId("a", "n1", "0"), GpuId("b", "n2", "0"))


@dataclass
class _Labelled(ArraySource):
    """A source that learns where its GPUs stand."""

    learned: Placement | None = None

    def placement(self) -> Placement | None:
        return self.learned


def labelled(environment: dict[Signal, PlaceSeries] | None = None) -> _Labelled:
    plain = steady_source(GPUS, START_S, START_S + 8 * HOUR_S, STEP_S)
    return _Labelled(plain.gpus, plain.times_s, plain.values, environment or {})


def test_a_file_goes_before_labels_layer_by_layer() -> None:
    source = labelled()
    given = Placement({"n1": {"rack": "r1"}})
    assert placed(None, source) is None
    assert placed(given, source) is given
    source.learned = Placement({"n1": {"rack": "x", "row": "A"}, "n2": {"rack": "r2"}})
    merged = placed(given, source)
    assert merged == Placement({"n1": {"rack": "r1", "row": "A"}, "n2": {"rack": "r2"}})
    assert placed(given, source) is merged
    assert placed(None, source) is source.learned


def test_the_settings_file_goes_before_the_source(tmp_path: Path) -> None:
    file = tmp_path / "topology.csv"
    file.write_text("hostname,rack,row\nn1,r1,\n")
    settings = settings_for(tmp_path)
    history = settings.history.model_copy(update={"topology_file": file})
    source = labelled()
    source.learned = Placement({"n1": {"rack": "x", "row": "A"}})
    with_file = settings.model_copy(update={"history": history})
    assert placement_of(with_file, source) == Placement({"n1": {"rack": "r1", "row": "A"}})
    assert placement_of(settings, source) == source.learned


def test_a_running_service_takes_up_what_labels_tell_later(tmp_path: Path) -> None:
    source = labelled()
    ledger = Ledger(tmp_path, definitions())
    memory = recall(source, ledger, START_S + 4 * HOUR_S, settings_for(tmp_path), None, lambda raw: None)
    assert "rack" not in memory.topology.names
    source.learned = Placement({"n1": {"rack": "r1"}})
    memory.advance(source, memory.now_s + STEP_S, lambda raw: None)
    assert memory.topology.names["rack"] == ("r1",)
    assert memory.history().topology.group("rack", 2).tolist() == [0, -1]
    fresh = recall(source, ledger, memory.now_s, settings_for(tmp_path), None, lambda raw: None)
    assert fresh.topology.names == memory.topology.names


def test_inlets_find_their_nodes_by_name_or_by_the_file(tmp_path: Path) -> None:
    inlet = PlaceSeries("node", ("10.9.0.2", "n1-bmc"), np.array([[25.0], [21.0]], np.float32))
    flow = PlaceSeries("cooling_loop", ("n1-bmc",), np.ones((1, 1), np.float32))
    placement = Placement({"n2": {"bmc": "10.9.0.2"}})
    found = at_known_nodes({Signal.INLET: inlet, Signal.COOLANT_FLOW: flow}, GPUS, placement)
    assert found[Signal.INLET].names == ("n1", "n2")
    np.testing.assert_array_equal(found[Signal.INLET].values[:, 0], [21, 25])
    assert found[Signal.COOLANT_FLOW] is flow


def test_a_days_inlets_reach_the_gpus_under_another_spelling(tmp_path: Path) -> None:
    times = steady_source(GPUS, START_S, START_S + 8 * HOUR_S, STEP_S).times_s
    values = np.full((1, len(times)), 22.0, np.float32)
    source = labelled({Signal.INLET: PlaceSeries("node", ("n1.example",), values)})
    ledger = Ledger(tmp_path, definitions())
    memory = recall(source, ledger, START_S + 4 * HOUR_S, settings_for(tmp_path), None, lambda raw: None)
    np.testing.assert_array_equal(memory.today.columns["inlet_celsius"][:, 0], [22.0, np.nan])
    memory.advance(source, memory.now_s + HOUR_S, lambda raw: None)
    np.testing.assert_array_equal(memory.today.columns["inlet_celsius"][:, -1], [22.0, np.nan])
    assert memory.environment[Signal.INLET].names == ("n1",)
