"""Small multiples of lines as one SVG: a few kilobytes, without a plotting library for two pictures."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

WIDTH, HEIGHT, GAP, COLUMNS, POINTS = 260, 120, 46, 3, 150
COLOURS = ("#888888", "#c0392b")  # the first line is measured, the second fitted


@dataclass(frozen=True)
class Panel:
    """A title, x [point], and lines over it, each [point]."""

    title: str
    x: NDArray[np.float64]
    lines: tuple[NDArray[np.float64], ...]


def draw(panels: Sequence[Panel], x_name: str, y_name: str) -> str:
    """The picture. Two lines: measured in grey, fitted in red; more of them all alike."""
    rows = -(-len(panels) // COLUMNS)
    size = (COLUMNS * (WIDTH + GAP) + GAP, rows * (HEIGHT + GAP) + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{size[0]}" height="{size[1]}" font-family="sans-serif" '
        'font-size="10">',
        '<rect width="100%" height="100%" fill="white"/>',
    ]
    for number, panel in enumerate(panels):
        row, column = divmod(number, COLUMNS)
        parts += _panel(panel, GAP + column * (WIDTH + GAP), GAP // 2 + row * (HEIGHT + GAP), x_name, y_name)
    return "\n".join([*parts, "</svg>\n"])


def _panel(panel: Panel, left: float, top: float, x_name: str, y_name: str) -> list[str]:
    low = min(float(line.min()) for line in panel.lines)
    high = max(float(line.max()) for line in panel.lines)
    chosen = np.unique(np.linspace(0, len(panel.x) - 1, POINTS).astype(int))
    x = left + WIDTH * (panel.x[chosen] - panel.x[0]) / (panel.x[-1] - panel.x[0])
    parts = [
        f'<rect x="{left}" y="{top}" width="{WIDTH}" height="{HEIGHT}" fill="none" stroke="#ccc"/>',
        f'<text x="{left}" y="{top - 4}">{panel.title}</text>',
        f'<text x="{left - 4}" y="{top + 9}" text-anchor="end">{high:.0f}</text>',
        f'<text x="{left - 4}" y="{top + HEIGHT}" text-anchor="end">{low:.0f}</text>',
        f'<text x="{left + WIDTH}" y="{top + HEIGHT + 12}" text-anchor="end">{panel.x[-1]:.0f} {x_name}</text>',
        f'<text x="{left}" y="{top + HEIGHT + 12}">{y_name}</text>',
    ]
    for number, line in enumerate(panel.lines):
        y = top + HEIGHT * (1 - (line[chosen] - low) / max(high - low, 1e-9))
        points = " ".join(f"{a:.1f},{b:.1f}" for a, b in zip(x, y, strict=True))
        colour = COLOURS[number] if len(panel.lines) == 2 else COLOURS[1]
        parts.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1"/>')
    return parts
