"""How people say lengths of time, probabilities and counts; what each XID means."""

import numpy as np

from healthsvc.fleet import DAY_S, HOUR_S

# What they say: NVIDIA XID catalogue (read 2025-10), hardware-relevant codes only.
XIDS: dict[int, str] = {
    46: "GPU stopped processing",
    48: "double-bit ECC error",
    62: "PMU halt",
    63: "row remap or page retirement recorded",
    64: "row remap or page retirement failed",
    74: "NVLink error",
    79: "GPU has fallen off the bus",
    92: "high rate of correctable errors",
    94: "contained uncorrectable error",
    95: "uncontained uncorrectable error",
    119: "GSP RPC timeout",
    120: "GSP error",
    136: "link training failed",
    140: "unrecovered ECC error",
    143: "GPU initialisation failed",
    157: "resource retirement failed",
    158: "GPU fatal timeout",
    160: "HBM channel repaired",
    161: "HBM channel repair failed",
    171: "uncorrectable DRAM error",
    172: "uncorrectable SRAM error",
}


def duration(seconds: float) -> str:
    """A length of time as people say it."""
    if np.isnan(seconds):
        return "an unknown time"
    if seconds < 2 * HOUR_S:
        return f"{seconds / 60:.0f} min"
    return f"{seconds / HOUR_S:.0f} h" if seconds < 2 * DAY_S else f"{seconds / DAY_S:.0f} days"


def percent(p: float) -> str:
    """A probability as people say it."""
    if np.isnan(p):
        return "unknown"
    return "under 0.1 %" if p < 0.001 else f"{100 * p:.2g} %" if p < 0.995 else "over 99 %"


def few(number: float) -> str:
    """A number that may be far below one or far above, to two digits."""
    return (
        f"{number:,.0f}"
        if number >= 10
        else f"{number:.1f}"
        if number >= 1
        else np.format_float_positional(number, precision=2, fractional=False, trim="-")
    )


def counted(number: float, noun: str) -> str:
    """A count with its noun; an unobserved count is said to be unknown."""
    if np.isnan(number):
        return f"an unknown number of {noun}s"
    return f"{number:,.0f} {noun}{'' if round(number) == 1 else 's'}"
