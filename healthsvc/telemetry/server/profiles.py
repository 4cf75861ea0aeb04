"""What differs between servers that speak Prometheus' API: one profile a flavour, as data.

Nothing here about points a series (we never ask for query_range) or about whose windows are closed at the start: the
sample that a closed window repeats there is dropped on the grid, so both kinds read alike. Times are whole seconds for
everybody. Sources: the projects' HTTP API pages; Prometheus 2.42 and VictoriaMetrics 1.79 also by trial.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from urllib.parse import urlsplit

from healthsvc.config import Flavour
from healthsvc.fleet import DAY_S

_NO_PARAMETERS: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class BackendProfile:
    """How one flavour is asked.

    prefixes: base paths below the configured URL, the likeliest first. parameters: sent with every question. coarse:
    parameters that ask for 5-minute averages where raw samples are gone; empty: there are none. longest_range_s: of one
    selector, and of a look into the index. post: queries go as a form. index: label values can be asked with several
    selectors. service: the SigV4 service, "" if requests are not signed. scope: of an OAuth 2 token. credentials: what
    it wants, in words.
    """

    flavour: Flavour
    title: str
    prefixes: tuple[str, ...] = ("",)
    parameters: Mapping[str, str] = field(default_factory=lambda: _NO_PARAMETERS)
    coarse: Mapping[str, str] = field(default_factory=lambda: _NO_PARAMETERS)
    longest_range_s: float = 30 * DAY_S
    index_reach_s: float = 400 * DAY_S
    post: bool = True
    index: bool = True
    service: str = ""
    scope: str = ""
    credentials: str = "prometheus.bearer_token_file, or prometheus.basic_user and basic_password_file"


_TENANT = "prometheus.tenant (X-Scope-OrgID), and bearer_token_file or basic_user where a gateway asks for them"
_VICTORIA = MappingProxyType({"nocache": "1"})  # else the server shifts times to its own grid
_THANOS = {"dedup": "true", "partial_response": "false", "max_source_resolution": "0s"}

PROFILES: Mapping[str, BackendProfile] = MappingProxyType(
    {
        profile.flavour: profile
        for profile in (
            BackendProfile("prometheus2", "Prometheus 2"),
            BackendProfile("prometheus3", "Prometheus 3"),
            BackendProfile(
                "thanos",
                "Thanos",
                parameters=MappingProxyType(_THANOS),
                coarse=MappingProxyType({**_THANOS, "max_source_resolution": "5m"}),
            ),
            BackendProfile("mimir", "Mimir", ("/prometheus", ""), credentials=_TENANT),
            BackendProfile("cortex", "Cortex", ("/prometheus", "/api/prom", ""), credentials=_TENANT),
            BackendProfile("victoriametrics", "VictoriaMetrics", ("", "/prometheus"), parameters=_VICTORIA),
            BackendProfile("victoriametrics_cluster", "VictoriaMetrics cluster", parameters=_VICTORIA),
            BackendProfile(
                "amp",
                "Amazon Managed Prometheus",
                service="aps",
                credentials="AWS credentials that botocore finds (variables, profile, role), allowed aps:QueryMetrics",
            ),
            BackendProfile(
                "gmp",
                "Google Managed Prometheus",
                post=False,
                index=False,
                credentials="prometheus.bearer_token_file with an OAuth 2 access token (scope monitoring.read)",
            ),
            BackendProfile(
                "azure",
                "Azure Monitor managed Prometheus",
                index_reach_s=30 * DAY_S,  # 32 days are refused
                scope="https://prometheus.monitor.azure.com/.default",
                credentials="prometheus.oauth2_token_url, oauth2_client_id and oauth2_client_secret_file of an Entra "
                "application (role Monitoring Data Reader), or prometheus.bearer_token_file",
            ),
            BackendProfile(
                "grafana_cloud",
                "Grafana Cloud",
                ("", "/api/prom"),
                credentials="prometheus.basic_user (the instance id) and basic_password_file (a token, metrics:read)",
            ),
            # Answers the API and says nothing more: asked as Prometheus 2 is.
            BackendProfile("generic", "a server with Prometheus' API"),
        )
    }
)


def profile_by_address(url: str) -> BackendProfile | None:
    """The flavour that an address alone gives away; None for all that people run themselves."""
    parts = urlsplit(url)
    host, path = (parts.hostname or "").lower(), parts.path.lower()
    if host.startswith("aps-workspaces") and host.endswith((".amazonaws.com", ".amazonaws.com.cn", ".api.aws")):
        return PROFILES["amp"]
    if host == "monitoring.googleapis.com":
        return PROFILES["gmp"]
    if host.endswith((".prometheus.monitor.azure.com", ".prometheus.monitor.azure.cn", ".prometheus.monitor.azure.us")):
        return PROFILES["azure"]
    if host.endswith((".grafana.net", ".grafana-dev.net", ".grafana-ops.net")):
        return PROFILES["grafana_cloud"]
    if path.startswith("/select/"):
        return PROFILES["victoriametrics_cluster"]
    return None


def amp_region(url: str) -> str:
    """eu-west-1 of aps-workspaces.eu-west-1.amazonaws.com; "" for other hosts."""
    parts = (urlsplit(url).hostname or "").split(".")
    return parts[1] if len(parts) > 2 and parts[0].startswith("aps-workspaces") else ""
