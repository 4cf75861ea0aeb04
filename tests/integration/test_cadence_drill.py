"""How often the slow forecasters speak must not decide what is raised."""

from dataclasses import replace
from pathlib import Path

import pytest

from healthsvc.engine.build import alert_policy
from healthsvc.engine.digest import digest_day
from healthsvc.engine.rehearsal import Rehearsal, RehearsalSpec, rehearse
from healthsvc.engine.scoring import make_scorer
from healthsvc.engine.shipped import class_priors, load_priors
from healthsvc.features.daily import definitions
from healthsvc.fleet import DAY_S
from healthsvc.simulator import load_scenario, write_recording
from healthsvc.store import Ledger
from healthsvc.telemetry.recorded import RecordedSource
from tests.engine.recordings import settings_for

HOUR_S = 3600.0
FIXTURES = Path(__file__).parents[2] / "data" / "fixtures"


@pytest.mark.drill
@pytest.mark.timeout(1200)
def test_hourly_and_six_hourly_scores_raise_the_same_episodes(tmp_path: Path) -> None:
    """32 GPUs, days 14 to 30: every episode of one is an episode of the other, raised within six hours of it."""
    folder = write_recording(load_scenario(FIXTURES / "proof-small.toml"), tmp_path / "recording", seed=101)
    source = RecordedSource(folder)
    start_s, end_s = source.span()
    ledger, settings = Ledger(tmp_path / "state", definitions()), settings_for(tmp_path / "state")
    for day in range(int(start_s // DAY_S), int(end_s // DAY_S)):
        digest_day(source, ledger, day, end_s, 300.0, 256, source.placement())
    documents = load_priors()
    priors = class_priors(documents)
    scorer = make_scorer(documents, priors)

    def past(slow_s: float) -> Rehearsal:
        window = (start_s + 14 * DAY_S, end_s - end_s % 300.0)
        policy, spec = alert_policy(priors, 300.0), replace(RehearsalSpec(), slow_s=slow_s)
        return rehearse(source, ledger, settings, source.placement(), scorer, policy, window, (), spec)

    hourly, six_hourly = past(HOUR_S), past(6 * HOUR_S)
    one, other = ({(a.scope, a.failure_class, a.grade): a.raised_s for a in r.alerts} for r in (hourly, six_hourly))
    assert one.keys() == other.keys()
    assert len(one) >= 3
    assert all(abs(one[key] - other[key]) <= 6 * HOUR_S for key in one)
