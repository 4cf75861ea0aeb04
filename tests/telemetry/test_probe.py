"""Which server it is: found by asking, told by the address, or set; and then asked as that kind wants to be asked."""

import pytest
from pytest_httpserver import HTTPServer
from werkzeug import Request, Response

from healthsvc.config import Flavour, PrometheusSettings
from healthsvc.telemetry.server.profiles import PROFILES, amp_region, profile_by_address
from healthsvc.telemetry.server.prometheus_api import ASKED_AGAIN_S, PrometheusApi
from healthsvc.telemetry.source import SourceError
from tests.servers import Server, free_port
from tests.telemetry import fake_backends as fake
from tests.telemetry.fake_backends import Fake


def api(url: str, **settings: object) -> PrometheusApi:
    return PrometheusApi(PrometheusSettings.model_validate({"url": url, "attempts": 1, "timeout_s": 5, **settings}))


@pytest.mark.parametrize(
    ("build", "headers", "flavour"),
    [
        (fake.PROMETHEUS_2, {}, "prometheus2"),
        (fake.PROMETHEUS_3, {}, "prometheus3"),
        (fake.THANOS, {}, "thanos"),
        (fake.MIMIR, {}, "mimir"),
        ({"application": "Cortex", "version": "1.19.0"}, {}, "cortex"),
        ({}, {}, "victoriametrics"),
        ({"version": "2.24.0"}, {"X-Server-Hostname": "vm-0"}, "victoriametrics"),
        ({"version": "unheard of"}, {}, "generic"),
    ],
)
def test_a_server_is_known_by_its_build(
    httpserver: HTTPServer, build: dict[str, object], headers: dict[str, str], flavour: Flavour
) -> None:
    found = api(Fake(httpserver, build=build, headers=headers).url).backend
    assert found.profile is PROFILES[flavour]
    assert found.version == build.get("version", "")
    assert found.sure


@pytest.mark.parametrize(
    ("prefix", "more", "flavour"),
    [
        ("", {}, "generic"),
        ("", {"isPartial": False}, "victoriametrics"),
        ("/prometheus", {}, "mimir"),
        ("/api/prom", {}, "mimir"),
    ],
)
def test_a_server_that_hides_its_build_is_known_by_one_query(
    httpserver: HTTPServer, prefix: str, more: dict[str, object], flavour: Flavour
) -> None:
    server = Fake(httpserver, prefix, more=more)
    found = api(server.url).backend
    assert (found.profile.flavour, found.url) == (flavour, server.url + prefix)


def test_the_prefix_is_found_and_one_that_is_given_is_kept(httpserver: HTTPServer) -> None:
    server = fake.mimir(httpserver)
    assert api(server.url, tenant="team-a").backend.url == server.url + "/prometheus"
    assert api(server.url + "/prometheus", tenant="team-a", flavour="mimir").backend.url == server.url + "/prometheus"


@pytest.mark.parametrize(
    ("url", "flavour"),
    [
        ("https://aps-workspaces.eu-west-1.amazonaws.com/workspaces/ws-1", "amp"),
        ("https://monitoring.googleapis.com/v1/projects/p/location/global/prometheus", "gmp"),
        ("https://site-abcd.westeurope.prometheus.monitor.azure.com", "azure"),
        ("https://prometheus-prod-01-eu-west-0.grafana.net/api/prom", "grafana_cloud"),
        ("http://vmselect:8481/select/0/prometheus", "victoriametrics_cluster"),
        ("http://prometheus:9090", None),
        ("http://monitoring.googleapis.com.evil.example", None),
        ("http://selector:9090/selected", None),
    ],
)
def test_a_hosted_service_is_known_by_its_address(url: str, flavour: Flavour | None) -> None:
    found = profile_by_address(url)
    assert (found and found.flavour) == flavour


def test_the_region_is_in_the_address() -> None:
    assert amp_region("https://aps-workspaces.ap-southeast-2.amazonaws.com/workspaces/ws-1") == "ap-southeast-2"
    assert amp_region("http://signing-proxy:8005/workspaces/ws-1") == ""


def test_what_is_set_outranks_what_the_server_says(httpserver: HTTPServer) -> None:
    server = Fake(httpserver, build=fake.PROMETHEUS_2)
    assert api(server.url, flavour="thanos").backend.profile is PROFILES["thanos"]
    assert not server.sent(fake.BUILD)


def test_every_flavour_that_can_be_set_has_a_profile() -> None:
    annotation = PrometheusSettings.model_fields["flavour"].annotation
    assert annotation is not None
    known = {value for part in annotation.__args__ for value in part.__args__}
    assert known == {"auto", *PROFILES}
    assert {name: profile.flavour for name, profile in PROFILES.items()} == {name: name for name in PROFILES}


def test_a_server_that_is_starting_is_asked_again_later(httpserver: HTTPServer) -> None:
    ready, now_s = [False], [1000.0]

    def build(_: Request) -> Response:
        return fake.json_response({"status": "success", "data": fake.THANOS}) if ready[0] else Response("", 503)

    httpserver.expect_request(fake.BUILD).respond_with_handler(build)
    settings = PrometheusSettings.model_validate({"url": httpserver.url_for("/"), "attempts": 1})
    asked = PrometheusApi(settings, clock=lambda: now_s[0])
    assert (asked.backend.profile.title, asked.backend.sure) == (PROFILES["generic"].title, False)
    ready[0] = True
    assert not asked.backend.sure, "asked again too soon"
    now_s[0] += ASKED_AGAIN_S
    assert asked.backend.profile is PROFILES["thanos"]


def test_a_server_that_is_down_is_named_and_asked_again() -> None:
    url = f"http://127.0.0.1:{free_port()}"
    asked = api(url)
    for _ in range(2):
        with pytest.raises(SourceError, match="no connection"):
            _ = asked.backend


@pytest.mark.servers
def test_a_real_prometheus_is_recognised(prometheus_server: Server) -> None:
    found = api(prometheus_server.url).backend
    assert found.profile.flavour == "prometheus2"
    assert found.version.startswith("2.")


@pytest.mark.servers
def test_a_real_victoria_metrics_is_recognised(victoria_metrics_server: Server) -> None:
    assert api(victoria_metrics_server.url).backend.profile.flavour == "victoriametrics"


def test_a_missing_tenant_is_named(httpserver: HTTPServer) -> None:
    server = fake.mimir(httpserver)
    with pytest.raises(SourceError, match=r"no org id\. Set prometheus\.tenant"):
        api(server.url).metric_names(0, 600)


def test_a_refusal_names_the_credentials_of_its_kind(httpserver: HTTPServer) -> None:
    httpserver.expect_request(fake.QUERY).respond_with_data("", status=401)
    with pytest.raises(SourceError, match="OAuth 2 access token"):
        api(httpserver.url_for("/"), flavour="gmp").points("up", 600)
