"""What ships with the software is there, whole, and found."""

from pathlib import Path

import pytest

from healthsvc.engine.progress import Bar, Silent
from healthsvc.engine.shipped import class_priors, demo_scenario, load_priors, models_directory
from healthsvc.fleet import CLASSES
from healthsvc.forecasters import DOMAIN_NAMES, NAMES, shipped_domain_forecasters, shipped_forecasters
from healthsvc.simulator import load_scenario


def test_every_forecaster_has_its_prior_and_is_made_from_it() -> None:
    documents = load_priors()
    assert set(documents) == {*NAMES, *DOMAIN_NAMES}
    assert tuple(f.name for f in shipped_forecasters(documents)) == NAMES
    assert tuple(f.name for f in shipped_domain_forecasters(documents)) == DOMAIN_NAMES
    assert [f.failure_class for f in shipped_forecasters(documents)] == list(CLASSES)


def test_priors_are_given_per_class_in_the_order_of_the_classes() -> None:
    priors = class_priors(load_priors())
    assert list(priors) == list(CLASSES)
    assert all(prior.failure_class == name for name, prior in priors.items())


def test_the_models_are_where_they_should_be() -> None:
    assert {path.parent.name for path in models_directory().glob("*/prior.json")} >= {*NAMES, *DOMAIN_NAMES}


def test_the_demo_has_a_start_and_something_happens_after_its_replay_begins() -> None:
    demo = load_scenario(demo_scenario())
    assert demo.start is not None
    assert demo.fleet.gpus == 64
    assert any(28.0 < fault.start_day < demo.days for fault in demo.fault)


@pytest.mark.parametrize("progress", [Silent(), Bar()])
@pytest.mark.parametrize("total", [0, 3])
def test_progress_counts_parts_and_says_nothing_on_stdout(
    progress: Silent | Bar, total: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with progress.task("reading history", total, "days") as advance:
        for _ in range(total):
            advance()
    assert capsys.readouterr().out == ""


def test_paths_of_what_ships_exist() -> None:
    assert Path(demo_scenario()).is_file()
    assert models_directory().is_dir()
