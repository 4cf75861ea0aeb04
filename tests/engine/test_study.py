"""A whole back-test, from a server and from a recording."""

import shutil
from pathlib import Path

import numpy as np
import pytest
from pydantic import BaseModel

from healthsvc.config import Settings
from healthsvc.engine.progress import Silent
from healthsvc.engine.study import StudySpec, run_study
from healthsvc.evaluation.labels import read_labels
from healthsvc.evaluation.origins import NOT_CROSS_VALIDATED, Fold
from healthsvc.fleet import DAY_S
from healthsvc.telemetry.recorded import RecordedSource
from tests import servers
from tests.engine.recordings import START_S, settings_for
from tests.recording_series import series_of

WINDOW = (START_S + 8.75 * DAY_S, START_S + 9.5 * DAY_S)
FOLD = Fold(WINDOW[0], None, WINDOW, NOT_CROSS_VALIDATED)
SPEC = StudySpec(START_S, WINDOW[1], START_S + 40 * DAY_S, (FOLD,), jobs=1)


def of_recording(tiny: RecordedSource, state: Path) -> Settings:
    return settings_for(state).model_copy(
        update={"recorded": Settings().recorded.model_copy(update={"directory": tiny.directory})}
    )


@pytest.mark.servers
def test_a_server_and_a_recording_give_the_same_alerts(tiny: RecordedSource, tmp_path: Path) -> None:
    if reason := servers.missing("victoria-metrics"):
        pytest.skip(reason)
    with servers.victoria_metrics(tmp_path / "victoria_metrics") as victoria_metrics:
        for batch in series_of(tiny, START_S - 300.0, START_S + 10 * DAY_S):
            servers.import_series(victoria_metrics.url, batch)
        assert_same_alerts(tiny, victoria_metrics.url, tmp_path)


def assert_same_alerts(tiny: RecordedSource, url: str, tmp_path: Path) -> None:
    base = settings_for(tmp_path / "server")
    server = base.model_copy(
        update={
            "prometheus": base.prometheus.model_copy(update={"url": url}),
            "history": base.history.model_copy(update={"topology_file": tiny.directory / "topology.csv"}),
        }
    )
    labels = read_labels(tiny.directory / "incidents.csv")
    one = run_study(of_recording(tiny, tmp_path / "recording"), SPEC, labels, Silent())
    other = run_study(server, SPEC, labels, Silent())

    def told(result: object) -> list[tuple[object, ...]]:
        alerts = result.evaluations[0].matchings["failure"].alerts  # type: ignore[attr-defined]
        return [(a.scope, a.failure_class, a.grade, a.raised_s, a.cleared_s) for a in alerts]

    assert told(one) == told(other)
    assert len(told(one)) >= 3
    assert one.evaluations[0].exposure_gpu_months == pytest.approx(other.evaluations[0].exposure_gpu_months)


def test_a_back_test_goes_on_where_it_was_broken_off(tiny: RecordedSource, tmp_path: Path) -> None:
    settings = of_recording(tiny, tmp_path / "state")
    first = run_study(settings, SPEC, None, Silent())
    kept = list((tmp_path / "state" / "backtest").rglob("rehearsals/**/*.npz"))
    assert len(kept) == 1
    written_s = kept[0].stat().st_mtime
    again = run_study(settings, SPEC, None, Silent())
    assert kept[0].stat().st_mtime == written_s
    assert repr(again.evaluations[0].to_rows()) == repr(first.evaluations[0].to_rows())


def test_a_rehearsal_of_other_settings_is_another(tiny: RecordedSource, tmp_path: Path) -> None:
    settings, state = of_recording(tiny, tmp_path / "state"), tmp_path / "state" / "backtest"
    elsewhere = tmp_path / "topology.csv"
    elsewhere.write_text("hostname,rack\nnode-000,r1\nnode-001,r1\n")
    history, cycle = settings.history, settings.cycle
    changed: list[dict[str, BaseModel]] = [
        {"history": history.model_copy(update={"train_days": 9})},
        {"history": history.model_copy(update={"topology_file": elsewhere})},
        {"cycle": cycle.model_copy(update={"window_s": 3600.0})},
    ]
    run_study(settings, SPEC, None, Silent())
    for count, change in enumerate(changed, start=2):
        run_study(settings.model_copy(update=change), SPEC, None, Silent())
        assert len(list(state.rglob("rehearsals/**/*.npz"))) == count


def test_two_sources_never_share_a_ledger(tiny: RecordedSource, tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(tiny.directory, other)
    about = other / "recording.json"
    about.write_text(about.read_text().replace('"seed": 1', '"seed": 2'))
    for source in (tiny, RecordedSource(other)):
        run_study(of_recording(source, tmp_path / "state"), SPEC, None, Silent())
    assert len(list((tmp_path / "state" / "backtest").glob("*/ledger"))) == 2


def test_the_document_names_every_alert_and_every_missed_incident(tiny: RecordedSource, tmp_path: Path) -> None:
    labels = read_labels(tiny.directory / "incidents.csv")
    result = run_study(of_recording(tiny, tmp_path / "state"), SPEC, labels, Silent())
    document = result.evaluations[0].to_document()
    wanted = {"scope", "members", "class", "grade", "raised_at", "cleared_at", "probability", "horizon_s", "reason"}
    assert document["alerts"]
    assert all(wanted | {"matched_incident"} <= alert.keys() for alert in document["alerts"])
    caught = {(alert["grade"], alert["matched_incident"]) for alert in document["alerts"]}
    uncaught = [row for row in document["incidents"] if (row["alert_grade"], row["id"]) not in caught]
    assert document["missed"]
    assert [row["id"] for row in document["missed"]] == [row["id"] for row in uncaught]
    assert np.isfinite(document["exposure_gpu_months"])
