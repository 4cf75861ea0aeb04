"""What all tables of a scenario file have in common."""

from pydantic import BaseModel, ConfigDict


class ScenarioError(ValueError):
    """A scenario that cannot be simulated; names the key, its value and the cure, one line each."""


class Spec(BaseModel):
    """One table of a scenario file: fixed once read, and a key nobody knows is an error, not a surprise."""

    model_config = ConfigDict(frozen=True, extra="forbid")
