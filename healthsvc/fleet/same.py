"""Cache keys for what is worked out once a fleet."""

from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Same(Generic[T]):
    """A key that equals only keys of the very same object: asking costs nothing, however many GPUs `it` holds.

    An equal fleet in another tuple is worked out again. The cache keeps `it` alive, so its id is never reused.
    """

    it: T

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Same) and self.it is other.it

    def __hash__(self) -> int:
        return id(self.it)
