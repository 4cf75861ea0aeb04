"""Second stage: what ends at once, whatever the numbers say: a GPU that was swapped."""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache

import numpy as np

from healthsvc.alerts.alert import Resolution
from healthsvc.alerts.draft import Draft, Moment
from healthsvc.alerts.propose import place_of, rows_of
from healthsvc.fleet import GpuId, Same


def settle(draft: Draft, moment: Moment) -> Draft:
    """Drop cases and wants of GPUs whose socket holds another one now.

    No cooldown follows: an alert on the successor is news. Blind to a swap where the exporter names no socket (PCI bus
    id): there the old GPU is merely silent.
    """
    swapped = _swapped(draft, moment)
    if not swapped:
        return draft
    cases, resolved = dict(draft.cases), list(draft.resolved)
    for subject, case in draft.cases.items():
        if case.device_id not in swapped:
            continue
        del cases[subject]
        if case.firing is not None and case.alert:
            because = f"{swapped[case.device_id]} sits in its socket"
            resolved.append(case.alert.ended(Resolution.SWAPPED, because))
    wants = tuple(want for want in draft.wants if want.device_id not in swapped)
    return replace(draft, cases=cases, wants=wants, resolved=tuple(resolved))


def _swapped(draft: Draft, moment: Moment) -> dict[str, str]:
    """device_id -> its successor, for GPUs that are gone or lost while another one answers in their place."""
    places = {c.device_id: c.place for c in draft.cases.values() if c.place}
    places |= {w.device_id: w.place for w in draft.wants if w.place}
    if not places:
        return {}
    report, fleet = moment.report, Same(moment.report.gpus)
    present = np.isnan(report.facts.lost_s) & (report.coverage > 0)
    rows = rows_of(fleet)
    swapped = {}
    for device, place in places.items():
        row = rows.get(device)
        if row is not None and present[row]:
            continue
        for holder in _sockets(fleet).get(place, ()):
            if holder != row and present[holder]:
                swapped[device] = report.gpus[holder].device_id
    return swapped


@lru_cache(maxsize=2)
def _sockets(fleet: Same[tuple[GpuId, ...]]) -> Mapping[str, tuple[int, ...]]:
    """Socket -> the rows of the GPUs that are said to sit in it, kept as long as the fleet stays the same."""
    sockets: dict[str, tuple[int, ...]] = {}
    for row, gpu in enumerate(fleet.it):
        if place := place_of(gpu):
            sockets[place] = (*sockets.get(place, ()), row)
    return sockets
