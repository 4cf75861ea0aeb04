"""Every forecaster has its card and its prior, and every card its forecaster: one slug ties them together."""

import json
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
FORECASTERS = ROOT / "healthsvc" / "forecasters"
MODELS = ROOT / "models"
NOT_FORECASTERS = frozenset({"__init__", "base"})
CARD_SECTIONS = ("What it forecasts", "How", "Where it is blind", "Prior")


def forecaster_slugs(folder: Path = FORECASTERS) -> set[str]:
    """The forecasters that there is code for; a file that begins with "_" is a helper of theirs."""
    stems = {path.stem for path in folder.glob("*.py")}
    return {stem for stem in stems if stem not in NOT_FORECASTERS and not stem.startswith("_")}


def model_slugs(folder: Path = MODELS) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_dir()} if folder.is_dir() else set()


def bare_numbers(value: Any, path: str) -> list[str]:
    """Where numbers stand without a `source` in their own group or in one around it."""
    match value:
        case {"source": str(source)} if source.strip():
            return []
        case dict():
            return [line for name, each in value.items() for line in bare_numbers(each, f"{path}.{name}".lstrip("."))]
        case list():
            return [line for i, each in enumerate(value) for line in bare_numbers(each, f"{path}[{i}]")]
        case bool() | str() | None:
            return []
        case _:
            return [path]


def unsourced(prior: dict[str, Any]) -> list[str]:
    """Numbers of a prior that nobody vouches for. The source of the whole file speaks for its loose numbers only."""
    groups = {name: value for name, value in prior.items() if isinstance(value, dict)}
    loose = {name: value for name, value in prior.items() if name not in groups}
    return bare_numbers(loose, "") + [line for name, group in groups.items() for line in bare_numbers(group, name)]


def test_every_forecaster_has_a_models_folder() -> None:
    missing = sorted(forecaster_slugs() - model_slugs())
    assert not missing, f"no models/ folder for {missing}; each needs models/<name>/card.md and prior.json"


def test_every_models_folder_has_a_forecaster() -> None:
    orphans = sorted(model_slugs() - forecaster_slugs())
    assert not orphans, f"models/ folders without healthsvc/forecasters/<name>.py: {orphans}"


@pytest.mark.parametrize("slug", sorted(model_slugs()))
def test_a_card_has_every_section(slug: str) -> None:
    card = MODELS / slug / "card.md"
    assert card.is_file(), f"{card.relative_to(ROOT)} is missing"
    headings = {line.lstrip("#").strip() for line in card.read_text().splitlines() if line.startswith("#")}
    missing = [section for section in CARD_SECTIONS if section not in headings]
    assert not missing, f"{card.relative_to(ROOT)} lacks the sections {missing}"


@pytest.mark.parametrize("slug", sorted(model_slugs()))
def test_every_number_of_a_prior_has_a_source(slug: str) -> None:
    prior = MODELS / slug / "prior.json"
    assert prior.is_file(), f"{prior.relative_to(ROOT)} is missing"
    missing = unsourced(json.loads(prior.read_text()))
    assert not missing, f'{prior.relative_to(ROOT)}: give the group of {missing} a "source"'


@pytest.mark.parametrize(
    ("prior", "missing"),
    [
        ({"rate": {"T2": 0.038, "source": "a study"}}, []),
        ({"rate": {"grades": {"T2": 0.038}, "source": "a study"}}, []),
        ({"rates": [0.1, 0.2], "source": "a study"}, []),
        ({"version": 1, "source": "us", "rate": {"T2": 0.038}}, ["rate.T2"]),
        ({"rate": {"T2": 0.038, "source": " "}}, ["rate.T2"]),
        ({"rate": [0.1]}, ["rate[0]"]),
        ({"enabled": True, "unit": "per_gpu_year"}, []),
    ],
)
def test_an_unsourced_number_is_noticed(prior: dict[str, Any], missing: list[str]) -> None:
    assert unsourced(prior) == missing


def test_helpers_of_forecasters_are_no_forecasters(tmp_path: Path) -> None:
    for name in ("__init__.py", "base.py", "_kernel.py", "ecc_growth.py"):
        (tmp_path / name).touch()
    (tmp_path / "README.md").touch()
    assert forecaster_slugs(tmp_path) == {"ecc_growth"}
    assert model_slugs(tmp_path) == set()
