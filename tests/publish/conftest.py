"""The option and fixture for golden files, where they are used."""

from tests.golden_files import golden, pytest_addoption

__all__ = ["golden", "pytest_addoption"]
