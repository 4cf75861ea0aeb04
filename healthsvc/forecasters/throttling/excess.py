"""More onsets within half an hour than what was known of each GPU explains: a common cause that no sensor has shown.

Asked once a disjoint half hour, so that a threshold of 1e-6 means what it says. Each member's chance is that of the
onset model without neighbours, from its covariates at the start of the half hour, its margin lowered by what its own
load has added since: a job that begins is no common cause. Blind to a cause that strikes at a boundary, half of it on
either side.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from healthsvc.features.domains import DomainTable
from healthsvc.features.half_hours import HALF_HOUR_S
from healthsvc.fleet import LEAST_MEMBERS, EventKind, FleetHistory
from healthsvc.forecasters.throttling.counting import tail

Numbers = NDArray[np.float64]


def excess_p(history: FleetHistory, tables: Sequence[DomainTable], chance: Numbers) -> list[Numbers]:
    """Tail probability of each domain's onsets in the half hour that has just ended, one array a table [domain].

    chance [gpu]: of an onset within it, NaN where the GPU throttled
    already at its start or was not observed. 1 where fewer than three members began.
    """
    end_s = history.now_s // HALF_HOUR_S * HALF_HOUR_S
    events = history.events.of(EventKind.THERMAL_THROTTLE)
    began = np.zeros(len(history.gpus), bool)
    began[events.row[(events.start_s >= end_s - HALF_HOUR_S) & (events.start_s < end_s)]] = True
    began &= ~np.isnan(chance)
    found = []
    for table in tables:
        rows = table.table
        count = (began[rows] & (rows >= 0)).sum(axis=1)
        p = np.ones(len(rows))
        for domain in np.flatnonzero(count >= LEAST_MEMBERS):
            members = rows[domain][rows[domain] >= 0]
            known = members[~np.isnan(chance[members])]
            p[domain] = tail(chance[known], int(count[domain]))
        found.append(p)
    return found
