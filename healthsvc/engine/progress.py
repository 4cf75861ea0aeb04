"""Progress of long work: a bar where people look, nothing where they do not."""

import sys
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
    """A bar on the terminal's error stream; nothing where that is no terminal."""

    @contextmanager
    def task(self, title: str, total: int, unit: str) -> Iterator[Callable[[], None]]:
        with _bar(title, total, unit) as told:
            done = 0

            def advance() -> None:
                nonlocal done
                done += 1
                told(done)

            yield advance

    @contextmanager
    def share(self, title: str) -> Iterator[Callable[[float], None]]:
        """A context that gives the function to call with the share (0-1) that is done."""
        with _bar(title, 100, "%") as told:
            yield lambda share: told(round(100 * share))


@contextmanager
def _bar(title: str, total: int, unit: str) -> Iterator[Callable[[int], None]]:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichProgress

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn(unit))
    shown = total > 0 and sys.stderr.isatty()
    with RichProgress(*columns, TimeRemainingColumn(), console=Console(stderr=True), disable=not shown) as bar:
        number = bar.add_task(title, total=total)
        yield lambda done: bar.update(number, completed=done)
