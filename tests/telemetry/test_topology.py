"""Where GPUs stand, from the labels of their series."""

from healthsvc.fleet import Placement
from healthsvc.telemetry.identity.topology import CHASSIS_LABEL, TRAY_LABELS, LabelledPlaces, platform_places

CHASSIS = {CHASSIS_LABEL: "1821025190044", TRAY_LABELS[0]: "4", TRAY_LABELS[1]: "9"}


def test_dcgm_knows_the_rack_and_the_tray_of_a_board() -> None:
    assert platform_places(CHASSIS) == {"rack": "1821025190044", "tray": "1821025190044/4"}
    assert platform_places({**CHASSIS, TRAY_LABELS[0]: ""}) == {"rack": "1821025190044", "tray": "1821025190044/9"}
    assert platform_places({CHASSIS_LABEL: "N/A", TRAY_LABELS[0]: "4"}) == {}


def test_a_sites_own_labels_go_before_dcgms_fields() -> None:
    places = LabelledPlaces({"rack": "rack", "cooling_loop": "cdu"})
    assert places.placement() is None
    places.hear({"Hostname": "n1", "rack": "r7", "cdu": "loop-2", **CHASSIS})
    places.hear({"Hostname": "n2", "cdu": "loop-2"})
    places.hear({"Hostname": "n3"})
    places.hear({"rack": "r9"})
    assert places.placement() == Placement(
        {
            "n1": {"rack": "r7", "cooling_loop": "loop-2", "tray": "1821025190044/4"},
            "n2": {"cooling_loop": "loop-2"},
        }
    )
    assert set(places.labels) == {"rack", "cdu", CHASSIS_LABEL, *TRAY_LABELS}


def test_without_news_the_placement_is_the_same_object() -> None:
    places = LabelledPlaces({"rack": "rack"})
    places.hear({"Hostname": "n1", "rack": "r1"})
    first = places.placement()
    places.hear({"Hostname": "n1", "rack": "r1"})
    assert places.placement() is first
    places.hear({"Hostname": "n1", "rack": "r2"})
    assert places.placement() == Placement({"n1": {"rack": "r2"}})


def test_topology_csv_wins_layer_by_layer() -> None:
    given = Placement({"n1": {"rack": "r1", "row": ""}, "n2": {"rack": "r2"}})
    labels = Placement({"n1": {"rack": "zz", "row": "A", "tray": "t"}, "n3": {"rack": "r3"}})
    assert given.over(labels) == Placement(
        {"n1": {"rack": "r1", "row": "A", "tray": "t"}, "n2": {"rack": "r2"}, "n3": {"rack": "r3"}}
    )
    assert given.over(None) is given
    assert given.over(Placement()) is given
