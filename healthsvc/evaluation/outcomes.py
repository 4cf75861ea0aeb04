"""What really happened after each forecast, as the 0, 1 or NaN that a probability is judged by."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from healthsvc.evaluation.episodes import Episodes


def outcomes(
    device_ids: Sequence[str],
    origins_s: NDArray[np.float64],
    horizon_s: float,
    failure_class: str,
    episodes: Episodes,
    known_until_s: float,
) -> NDArray[np.float64]:
    """float64[origin, gpu]: 1 if an event of the class begins in (origin, origin + horizon], 0 if none does.

    NaN where the horizon reaches beyond what is known and no event has come yet, and where the GPU was in an event of
    the class or under maintenance at the origin: a failed GPU is not forecast again.
    """
    row = {device_id: i for i, device_id in enumerate(device_ids)}
    y = np.zeros((len(origins_s), len(device_ids)))
    y[origins_s + horizon_s > known_until_s] = np.nan
    events = [e for e in episodes.events if e.failure_class == failure_class]
    for event in events:
        ahead = (origins_s < event.start_s) & (event.start_s <= origins_s + horizon_s)
        for member in event.members & row.keys():
            y[ahead, row[member]] = 1.0
    for going_on in (*events, *episodes.maintenance):
        during = (origins_s >= going_on.start_s) & (origins_s <= going_on.end_s)
        for member in going_on.members & row.keys():
            y[during, row[member]] = np.nan
    return y


def disjoint(origins_s: NDArray[np.float64], horizon_s: float) -> NDArray[np.intp]:
    """Positions of origins at least one horizon apart, so that no outcome is counted twice."""
    chosen: list[int] = []
    for position, at_s in enumerate(origins_s.tolist()):
        if not chosen or at_s - origins_s[chosen[-1]] >= horizon_s:
            chosen.append(position)
    return np.array(chosen, np.intp)
