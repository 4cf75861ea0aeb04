"""Whole-text golden files: compared, or with --update-golden written anew and reviewed as a diff."""

from collections.abc import Callable
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """golden(name, text): `text` must equal the file tests/golden/`name`."""
    update = request.config.getoption("--update-golden", default=False)

    def compare(name: str, text: str) -> None:
        path = FOLDER / name
        if update:
            path.write_text(text)
        assert text == path.read_text(), (
            f"tests/golden/{name} differs; refresh it with --update-golden if that is right"
        )

    return compare
