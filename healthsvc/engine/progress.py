"""Progress of long work: a bar where people look, nothing where they do not."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol


class Progress(Protocol):
    """Shows how far a task of `total` parts has come."""

    def task(self, title: str, total: int, unit: str) -> AbstractContextManager[Callable[[], None]]:
        """A context that gives the function to call after each part."""
        ...


class Silent:
    """Shows nothing."""

    @contextmanager
    def task(self, title: str, total: int, unit: str) -> Iterator[Callable[[], None]]:
        yield lambda: None


class Bar:
    """A bar on the terminal's error stream."""

    @contextmanager
    def task(self, title: str, total: int, unit: str) -> Iterator[Callable[[], None]]:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
        from rich.progress import Progress as RichProgress

        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
        console = Console(stderr=True)
        with RichProgress(*columns, TimeRemainingColumn(), console=console, disable=total == 0) as bar:
            number = bar.add_task(title, total=total)
            yield lambda: bar.advance(number)
