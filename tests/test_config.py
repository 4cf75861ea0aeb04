"""Settings: who outranks whom, and what an error says. A secret is never printed."""

from pathlib import Path

import pytest
from pydantic import SecretStr

from healthsvc.config import Settings, SettingsError, load_settings

SECRET = "hunter2"  # noqa: S105


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No healthsvc.toml of the checkout and no variable of the machine."""
    monkeypatch.chdir(tmp_path)
    import os

    for name in [n for n in os.environ if n.startswith("HEALTHSVC_")]:
        monkeypatch.delenv(name)


def toml(text: str) -> Path:
    path = Path("healthsvc.toml")
    path.write_text(text)
    return path


def refused(text: str = "", **overrides: object) -> str:
    with pytest.raises(SettingsError) as failure:
        load_settings(toml(text), **overrides)
    return str(failure.value)


# -- precedence -------------------------------------------------------------------------------------------------------


def test_without_anything_the_defaults_stand() -> None:
    settings = load_settings()
    assert (settings.server.port, settings.cycle.step_s, settings.prometheus.url) == (9920, 60.0, None)


def test_arguments_outrank_variables_and_variables_outrank_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    path = toml("[server]\nport = 1\nhost = '0.0.0.0'\n[cycle]\nstep_s = 120\n[history]\ntrain_days = 30")
    monkeypatch.setenv("HEALTHSVC_SERVER_PORT", "2")
    monkeypatch.setenv("HEALTHSVC_CYCLE_STEP_S", "300")
    settings = load_settings(path, server={"port": 3})
    assert (settings.server.port, settings.server.host) == (3, "0.0.0.0")  # noqa: S104
    assert (settings.cycle.step_s, settings.history.train_days) == (300.0, 30)


def test_the_file_in_the_working_directory_is_found() -> None:
    toml("[metrics]\ndetail = 'all'")
    assert load_settings().metrics.detail == "all"


def test_a_variable_names_section_and_setting_even_where_the_setting_has_underscores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("HEALTHSVC_HISTORY_BACKFILL_MEMORY_MIB", "256")
    monkeypatch.setenv("HEALTHSVC_PROMETHEUS_URL", "http://prometheus:9090")
    monkeypatch.setenv("HEALTHSVC_PROMETHEUS_HEADERS", '{"X-Scope-OrgID": "team-a"}')
    settings = load_settings()
    assert settings.history.backfill_memory_mib == 256
    assert str(settings.prometheus.url) == "http://prometheus:9090/"
    assert settings.prometheus.headers == {"X-Scope-OrgID": "team-a"}


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHSVC_PROMETHEUS_URL", "")
    assert load_settings().prometheus.url is None


def test_variables_of_other_programs_are_no_business_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kubernetes sets some for a Service named healthsvc."""
    monkeypatch.setenv("HEALTHSVC_PORT", "tcp://10.0.0.1:9920")
    monkeypatch.setenv("HEALTHSVC_SERVICE_HOST", "10.0.0.1")
    assert load_settings().server.port == 9920


def test_settings_do_not_change_once_read() -> None:
    with pytest.raises(ValueError, match="frozen"):
        load_settings().server.port = 1  # type: ignore[misc]


# -- errors -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[cycle]\nstepp_s = 60", "cycle.stepp_s = 60: no such setting; `healthsvc check-config` lists all of them"),
        ("[cyclo]\nstep_s = 60", "cyclo: no such setting; `healthsvc check-config` lists all of them"),
        ("[cycle]\nstep_s = 5", "cycle.step_s = 5: set it >= 10"),
        ("[server]\nport = 70000", "server.port = 70000: set it <= 65535"),
        ("[prometheus]\ntimeout_s = 0", "prometheus.timeout_s = 0: set it > 0"),
        ("[metrics]\ndetail = 'some'", "metrics.detail = 'some': choose one of 'watch' or 'all'"),
        ("[history]\ntrain_days = 'many'", "history.train_days = 'many': Input should be a valid integer"),
        ("[prometheus]\nurl = 'prometheus:9090'", "prometheus.url = 'prometheus:9090': URL scheme should be"),
        ("[cycle]\nstep_s = 45", "cycle: step_s = 45 must divide 600, the ledger's ten-minute window: try 60"),
        (
            "[prometheus]\nclient_key_file = 'k.pem'",
            "prometheus: client_key_file needs client_certificate_file beside it",
        ),
        ("[alertmanager]\nattempts = 9", "alertmanager.attempts = 9: no such setting"),  # the resend is its retry
        ("[environment]\ninlet_sensor = '(inlet'", "environment.inlet_sensor = '(inlet': no regular expression: "),
        (
            "[environment.topology_labels]\nrack = 'rack-id'",
            "environment.topology_labels: 'rack-id' is no name of a label, and every query would fail by it",
        ),
        (
            "[environment.mapping]\ncoolant_temp = 'x'",
            "environment.mapping.coolant_temp.[key] = 'coolant_temp': choose one of 'inlet_temperature_celsius', ",
        ),
        ("cycle = 60", "cycle = 60: Input should be a valid dictionary"),
    ],
)
def test_an_error_names_the_setting_the_value_and_the_cure(text: str, told: str) -> None:
    assert refused(text).startswith(told)


def test_every_wrong_setting_has_a_line_of_its_own() -> None:
    lines = refused("[cycle]\nstep_s = 5\n[server]\nport = -1\nhots = 'x'").splitlines()
    assert [line.partition(" = ")[0] for line in lines] == ["cycle.step_s", "server.port", "server.hots"]


def test_a_wrong_variable_is_told_like_a_wrong_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHSVC_CYCLE_STEP_S", "fast")
    monkeypatch.setenv("HEALTHSVC_SERVER_PROT", "1")
    told = refused()
    assert "cycle.step_s = 'fast': Input should be a valid number" in told
    assert "server.prot = '1': no such setting" in told


def test_a_table_in_a_variable_that_is_no_json_is_told_with_an_example(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHSVC_PROMETHEUS_HEADERS", f"Authorization: {SECRET}")
    told = refused()
    assert "HEALTHSVC_PROMETHEUS_HEADERS='{" in told
    assert SECRET not in told


def test_a_missing_file_or_a_broken_one_is_named() -> None:
    with pytest.raises(SettingsError, match=r"--config /no/such\.toml: no such file; give the path"):
        load_settings(Path("/no/such.toml"))
    with pytest.raises(SettingsError, match=r"--config .*: no such file"):
        load_settings(Path("."))
    assert refused("[cycle\n").startswith("healthsvc.toml: Expected ']'")


def test_credentials_that_exclude_or_need_each_other_are_named() -> None:
    address = "oauth2_token_url = 'https://login.example/token'"
    assert "oauth2_client_secret_file beside it" in refused(f"[prometheus]\n{address}\noauth2_client_id = 'a'")
    whole = f"[prometheus]\n{address}\noauth2_client_id = 'a'\noauth2_client_secret_file = '/s'\n"
    assert "one of them" in refused(whole + "basic_user = 'ops'")
    assert "choose one of" in refused("[prometheus]\nflavour = 'influx'")


# -- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        f"[prometheus]\nbasic_user = 'a'\nbasic_password = '{SECRET}'\nbearer_token_file = '/x'",
        f"[prometheus]\nurl = 'http://a:{SECRET}@prometheus:9090'",
        f"[alertmanager]\nurl = 'http://a:{SECRET}@alertmanager:9093'",
        f"[prometheus]\nbasic_password = ['{SECRET}']",
        f"[prometheus]\nheaders = ['{SECRET}']",
        f"[prometheus.headers]\nAuthorization = ['{SECRET}']",
        f"[prometheus]\nparameters = ['{SECRET}']",
        f"[prometheus.parameters]\napikey = ['{SECRET}']",
        f"[prometheus]\noauth2_token_url = 'http://a:{SECRET}@login'",
        f"[prometheus]\noauth2_client_secret = '{SECRET}'",
        f"[prometheus]\npassword = '{SECRET}'",
        f"[prometheus]\nbearer_token = '{SECRET}'",
        f"[prom]\nbasic_password = '{SECRET}'",
        f"prometheus = [{{basic_password = '{SECRET}'}}]",
    ],
)
def test_no_error_prints_a_secret(text: str) -> None:
    told = refused(text)
    assert SECRET not in told
    assert "prom" in told or "alertmanager" in told


def test_an_address_with_a_password_is_refused_with_the_cure() -> None:
    told = refused("[prometheus]\nurl = 'http://me:secret@prometheus:9090'")
    assert told.startswith("prometheus.url = (hidden): ")
    assert "move user and password to basic_user and basic_password" in told


def test_no_text_of_the_settings_shows_a_secret() -> None:
    path = toml(
        f"[prometheus]\nbasic_user = 'a'\nbasic_password = '{SECRET}'\n"
        f"[prometheus.headers]\nAuthorization = 'Bearer {SECRET}'\n"
        f"[prometheus.parameters]\napikey = '{SECRET}'"
    )
    settings = load_settings(path)
    assert settings.prometheus.basic_password == SecretStr(SECRET)
    assert SECRET not in repr(settings)
    assert SECRET not in str(settings)
    assert SECRET not in str(settings.prometheus)


def test_every_setting_has_a_description() -> None:
    for name, section in Settings():
        for key, field in type(section).model_fields.items():
            assert field.description, f"{name}.{key}"


def test_a_misspelt_section_in_a_variable_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEALTHSVC_PROMETHUS_URL", "http://prometheus:9090")
    with pytest.raises(SettingsError, match="did you mean HEALTHSVC_PROMETHEUS_URL"):
        load_settings()


def test_the_service_links_of_kubernetes_are_no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HEALTHSVC_SERVICE_HOST", "HEALTHSVC_PORT", "HEALTHSVC_PORT_9920_TCP_ADDR", "HEALTHSVC_SERVICE_PORT"):
        monkeypatch.setenv(name, "10.0.0.1")
    load_settings()
