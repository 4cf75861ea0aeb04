"""First stage: what the report says about every GPU and class, incident and silent host."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial

import numpy as np
from numpy.typing import NDArray

from healthsvc.alerts.alert import Rank
from healthsvc.alerts.draft import Draft, Moment, Want
from healthsvc.alerts.policy import DOMAIN, UNKNOWN, WIDE_UNKNOWN
from healthsvc.alerts.words import gpu_alert, host_unknown_alert, incident_alert, subject_name, wide_unknown_alert
from healthsvc.fleet import CLASSES, GRADES, HORIZON_NAMES, Band, GpuId, Same, first_rows

T2, T1 = (GRADES.index(grade) for grade in ("T2", "T1"))
WEEK, MONTH = (HORIZON_NAMES.index(name) for name in ("7d", "30d"))
YES, NO = (True, False, False, False), (False, False, False, False)  # for subjects that know only one rank
WIDE = "wide_unknown"


def propose(draft: Draft, moment: Moment) -> Draft:
    """Wants of this cycle. A subject that is neither wanted nor remembered has none, so a quiet fleet costs nothing."""
    wants = (*_gpu_wants(moment), *_incident_wants(moment), *_unknown_wants(moment))
    warm = moment.now_s - draft.started_s >= moment.policy.warm_up_s
    return replace(draft, wants=(*wants, *_wide_unknown_want(moment, wants, warm)))


@lru_cache(maxsize=2)
def rows_of(fleet: Same[tuple[GpuId, ...]]) -> Mapping[str, int]:
    """device_id -> row, kept as long as the fleet stays the same: a loop over it in each cycle would be felt."""
    return first_rows(fleet.it)


@lru_cache(maxsize=2)
def _hosts(fleet: Same[tuple[GpuId, ...]]) -> int:
    return len({gpu.hostname for gpu in fleet.it})


def place_of(gpu: GpuId) -> str:
    """The socket, where the exporter names it; an index is no socket, because indices move up when a GPU is lost."""
    return "|".join((gpu.cluster, gpu.hostname, gpu.slot)) if gpu.slot else ""


def _gpu_wants(moment: Moment) -> Iterator[Want]:
    report, policy = moment.report, moment.policy
    week, month = (
        report.probability[:, :, :, WEEK],
        report.probability[:, :, T2, MONTH],
    )  # [gpu, class, grade], [gpu, class]
    failure = np.array([policy.failure[name] for name in report.classes])
    watch = np.array(report.watch_p_30d)
    change_p, remembered = _last_tests(moment)
    lost = ~np.isnan(report.facts.lost_s)[:, None] & (np.array(report.classes) == "device_loss")
    changed = change_p < np.array([policy.degrading_p.get(name, 0.0) for name in report.classes])
    wanted = np.stack(  # [gpu, class, rank]
        [
            (month >= watch) | changed,
            week[:, :, T2] >= failure,
            lost,
            (week[:, :, T1] >= failure) | report.facts.terminal,
        ],
        axis=-1,
    )
    fact = np.stack([np.zeros_like(lost), np.zeros_like(lost), lost, report.facts.terminal], axis=-1)
    informed = report.observed | fact.any(-1)
    calm_failure = (week[:, :, T2] < policy.clear_ratio * failure) & ~fact.any(-1) & ~report.facts.open_events
    calm_degrading = (month < policy.clear_ratio * watch) & ~changed
    for row, column in np.argwhere((wanted.any(-1) & informed) | remembered).tolist():
        gpu, name = report.gpus[row], report.classes[column]
        subject = f"{gpu.device_id}|{name}"
        case = moment.before.cases.get(subject)
        calm = calm_failure if case and (case.firing or 0) >= Rank.FAILURE else calm_degrading
        tested = change_p[row, column]
        yield Want(
            subject,
            name,
            tuple(wanted[row, column].tolist()),
            tuple(fact[row, column].tolist()),
            bool(calm[row, column]),
            partial(gpu_alert, report, row, column),
            informed=bool(informed[row, column]),
            device_id=gpu.device_id,
            place=place_of(gpu),
            change_p=None if np.isnan(tested) else float(tested),
        )


def _last_tests(moment: Moment) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    """The newest change_p of each GPU and class, and which of them have a case, both [gpu, class].

    A test is made once a window; between two of them the last one stands.
    """
    report = moment.report
    newest = report.change_p.astype(np.float64)
    remembered = np.zeros(newest.shape, bool)
    ours = [case for case in moment.before.cases.values() if case.group in CLASSES]
    rows = rows_of(Same(report.gpus)) if ours else {}
    for case in ours:
        row = rows.get(case.device_id)
        if row is not None and case.group in report.classes:
            column = report.classes.index(case.group)
            remembered[row, column] = True
            if np.isnan(newest[row, column]) and case.change_p is not None:
                newest[row, column] = case.change_p
    return newest, remembered


def _incident_wants(moment: Moment) -> Iterator[Want]:
    """One want a domain and alertname; of several incidents there the newest open one speaks. None while at watch.

    An incident is cleared once it has been calm for long enough, so its alert ends with it. One that is missing is
    not cleared: after a restart the incidents are found anew, which takes some cycles. One that has moved to a wider
    place keeps the alert that it has.
    """
    told = {
        case.alert.annotations["incident"]: (case.subject, case.alert)
        for case in moment.before.cases.values()
        if case.group == DOMAIN and case.alert and "incident" in case.alert.annotations
    }
    newest = {}
    alerting = (incident for incident in moment.report.incidents if incident.alertname)
    for incident in sorted(alerting, key=lambda i: (i.state != "cleared", i.onset_s)):
        place = f"{incident.alertname}|{incident.layer}|{incident.domain}"
        subject, alert = told.get(incident.id, (place, None))
        newest[subject] = incident, alert
    for subject, (incident, alert) in newest.items():
        over = incident.state == "cleared"
        wanted, fact = NO if over else YES, YES if incident.state == "active" else NO
        yield Want(subject, DOMAIN, wanted, fact, over, partial(incident_alert, incident, alert), over=over)


def _unknown_wants(moment: Moment) -> Iterator[Want]:
    """One want a host that has GPUs of unknown health, or alerts that ended for lack of data."""
    report = moment.report
    silent: dict[str, list[str]] = {}
    for row in np.flatnonzero(report.band == Band.UNKNOWN).tolist():
        silent.setdefault(report.gpus[row].hostname, []).append(report.gpus[row].device_id)
    took_over: dict[str, list[str]] = {}
    for case in moment.before.cases.values():
        if case.taken_over and case.alert and case.group in CLASSES:
            hostname = case.alert.labels.get("hostname", "")
            took_over.setdefault(hostname, []).append(subject_name(case.alert))
            silent.setdefault(hostname, [])
    for hostname, gpus in silent.items():
        build = partial(host_unknown_alert, hostname, gpus, took_over.get(hostname, []))
        yield Want(f"unknown|{hostname}", UNKNOWN, YES, NO, False, build)


def _wide_unknown_want(moment: Moment, wants: tuple[Want, ...], warm: bool) -> Iterator[Want]:
    """One want for all, once more hosts than the limit have been unknown for long enough."""
    cases, policy = moment.before.cases, moment.policy
    subjects = [want.subject for want in wants if want.group == UNKNOWN]
    hosts = [subject.removeprefix("unknown|") for subject in subjects]
    began_s = [cases[subject].since_s[0] for subject in subjects if subject in cases]
    lasting = sum(at is not None and moment.now_s - at >= policy.unknown_hold_s for at in began_s) if warm else 0
    known = cases.get(WIDE)
    if lasting <= policy.flood_least and not known:
        return
    limit = policy.unknown_hosts_limit(_hosts(Same(moment.report.gpus)))
    excess = lasting > limit
    if excess or known:
        build = partial(wide_unknown_alert, f"on {len(hosts)} hosts", hosts, [])
        wanted = YES if excess else NO
        yield Want(WIDE, WIDE_UNKNOWN, wanted, wanted, len(hosts) < policy.clear_ratio * limit, build)
