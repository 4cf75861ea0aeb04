"""What ships with the software: priors from models/, and the demo fleet's scenario."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from healthsvc.calibration import ClassPrior, parse_prior
from healthsvc.fleet import CLASSES
from healthsvc.forecasters import DOMAIN_NAMES, NAMES

PACKAGE = Path(__file__).resolve().parent.parent


def first_existing(*candidates: Path) -> Path:
    """The checkout's own file where there is one, else the copy in the wheel."""
    return next((path for path in candidates if path.exists()), candidates[-1])


def models_directory() -> Path:
    """models/ of the checkout or of the installed wheel."""
    return first_existing(PACKAGE.parent / "models", PACKAGE / "_models")


def demo_scenario() -> Path:
    """The scenario of the demo fleet."""
    return first_existing(PACKAGE.parent / "data" / "fixtures" / "demo.toml", PACKAGE / "_demo.toml")


def load_priors() -> dict[str, Mapping[str, Any]]:
    """{forecaster: its prior.json}. Raises FileNotFoundError or ValueError naming the file."""
    found: dict[str, Mapping[str, Any]] = {}
    for name in (*NAMES, *DOMAIN_NAMES):
        path = models_directory() / name / "prior.json"
        try:
            found[name] = json.loads(path.read_text())
        except json.JSONDecodeError as failure:
            raise ValueError(f"{path}: not JSON ({failure}); restore it from the release") from None
    return found


def class_priors(documents: Mapping[str, Mapping[str, Any]]) -> dict[str, ClassPrior]:
    """{failure class: its prior}, for the classes that enter a GPU's risk."""
    priors = {prior.failure_class: prior for prior in (parse_prior(documents[name]) for name in NAMES)}
    return {name: priors[name] for name in CLASSES}
