"""What the studies have in common: fresh seeds, and the place in a card where their tables stand."""

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

BEGIN, END = "<!-- study: begin -->", "<!-- study: end -->"


def fresh_seeds(day: str) -> list[int]:
    """Five seeds that nobody can have tuned to, from the day of the run as YYYYMMDD."""
    return [int(seed) for seed in np.random.SeedSequence(int(day)).generate_state(5)]


def renew_card(model: Path, tables: str) -> None:
    """models/<forecaster>/card.md with its tables drawn anew."""
    card = model / "card.md"
    before, rest = card.read_text().split(BEGIN, 1)
    after = rest.split(END, 1)[1]
    card.write_text(f"{before}{BEGIN}\n\n{tables}\n{END}{after}")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    """Markdown, a line at a time, with an empty one at the end."""
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in rows)
    yield ""
