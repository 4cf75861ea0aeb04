"""Second stage: what ends at once, whatever the numbers say. A swapped GPU, or one that was repaired."""

from dataclasses import replace

import numpy as np

from healthsvc.alerts.alert import Resolution
from healthsvc.alerts.draft import Draft, Moment
from healthsvc.alerts.propose import place_of


def settle(draft: Draft, moment: Moment) -> Draft:
    """Drop the cases of repaired GPUs, and cases and wants of GPUs whose socket holds another one now.

    No cooldown follows: a new alert on a repaired GPU is news. Blind to a swap where the exporter names no socket
    (PCI bus id): there the old GPU is merely silent.
    """
    swapped = _swapped(draft, moment)
    cases, resolved = dict(draft.cases), list(draft.resolved)
    for subject, case in draft.cases.items():
        if case.device_id in swapped:
            ended, because = Resolution.SWAPPED, f"{swapped[case.device_id]} sits in its socket"
        elif case.device_id in moment.repaired:
            ended, because = Resolution.REPAIRED, moment.repaired[case.device_id]
        else:
            continue
        del cases[subject]
        if case.firing is not None and case.alert:
            resolved.append(case.alert.ended(ended, because))
    wants = tuple(want for want in draft.wants if want.device_id not in swapped)
    return replace(draft, cases=cases, wants=wants, resolved=tuple(resolved))


def _swapped(draft: Draft, moment: Moment) -> dict[str, str]:
    """device_id -> its successor, for GPUs that are gone or lost while another one answers in their place."""
    places = {c.device_id: c.place for c in draft.cases.values() if c.place}
    places |= {w.device_id: w.place for w in draft.wants if w.place}
    if not places:
        return {}
    report = moment.report
    present = np.isnan(report.facts.lost_s) & (report.coverage > 0)
    here = [gpu for gpu, answers in zip(report.gpus, present.tolist(), strict=True) if answers]
    gone = places.keys() - {gpu.device_id for gpu in here if gpu.device_id in places}
    if not gone:
        return {}
    left = {places[device] for device in gone}
    holder = {place: gpu.device_id for gpu in here if (place := place_of(gpu)) in left}
    return {device: holder[places[device]] for device in gone if places[device] in holder}
