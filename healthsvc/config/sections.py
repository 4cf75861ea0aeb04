"""The sections of the settings: names, types, bounds and what each is for."""

import re
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, HttpUrl, SecretStr, field_validator, model_validator

Flavour = Literal[
    "prometheus2",
    "prometheus3",
    "thanos",
    "mimir",
    "cortex",
    "victoriametrics",
    "victoriametrics_cluster",
    "amp",
    "gmp",
    "azure",
    "grafana_cloud",
    "generic",
]


class SettingsError(Exception):
    """A setting is missing, misspelt or out of range; the text names it, its value and the cure."""


class Section(BaseModel):
    """A table of healthsvc.toml. Unknown names are errors: a misspelt setting must not be silently ignored."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class HttpClientSettings(Section):
    """What every HTTP client of ours needs: credentials (from files, so that they can rotate), trust, bounds."""

    bearer_token_file: Path | None = Field(None, description="file holding the bearer token; re-read at each request")
    basic_user: str = Field("", description="user of basic authentication")
    basic_password: SecretStr | None = Field(None, description="its password; prefer basic_password_file")
    basic_password_file: Path | None = Field(None, description="file holding the password")
    ca_file: Path | None = Field(None, description="private certificate authority (PEM)")
    client_certificate_file: Path | None = Field(None, description="client certificate for mutual TLS (PEM)")
    client_key_file: Path | None = Field(None, description="its key (PEM)")
    headers: dict[str, str] = Field(
        default_factory=dict, repr=False, description='further headers, e.g. {"X-Scope-OrgID" = "team-a"}'
    )
    timeout_s: float = Field(30.0, gt=0, le=600, description="seconds that one request may take")

    @model_validator(mode="after")
    def _pairs(self) -> "HttpClientSettings":
        if self.client_key_file and not self.client_certificate_file:
            raise ValueError("client_key_file needs client_certificate_file beside it")
        if self.bearer_token_file and self.basic_user:
            raise ValueError("give bearer_token_file or basic_user, not both")
        return self

    @field_validator("url", mode="after", check_fields=False)
    @classmethod
    def _without_password(cls, url: HttpUrl | None) -> HttpUrl | None:
        if url is not None and (url.username or url.password):
            raise ValueError("an address is shown and logged; move user and password to basic_user and basic_password")
        return url


class PrometheusSettings(HttpClientSettings):
    """Where the history is read from."""

    url: HttpUrl | None = Field(None, description="base URL of the Prometheus API, e.g. http://prometheus:9090")
    flavour: Flavour | Literal["auto"] = Field("auto", description="what kind of server it is; auto: found by asking")
    tenant: str = Field("", description="tenant of Mimir or Cortex, sent as X-Scope-OrgID; a|b for several")
    parameters: dict[str, str] = Field(
        default_factory=dict,
        repr=False,
        description='parameters of every question, over those of the flavour, e.g. {"partial_response" = "true"}',
    )
    oauth2_token_url: HttpUrl | None = Field(
        None, description="where client credentials become a token, e.g. of Entra: .../<tenant>/oauth2/v2.0/token"
    )
    oauth2_client_id: str = Field("", description="the client's id")
    oauth2_client_secret_file: Path | None = Field(None, description="file holding the client's secret")
    oauth2_scope: str = Field("", description="scope of the token; by default what the flavour asks for")
    aws_region: str = Field("", description="region of Amazon Managed Prometheus; by default that of the url")
    aws_profile: str = Field("", description="profile of the AWS credentials; by default botocore's own search")
    selector: str = Field("", description='label matchers added to every query, e.g. cluster="a",job="dcgm-exporter"')
    shard_gpus: int = Field(
        2000, ge=1, le=100_000, description="GPUs a query may cover before it is split by UUID prefix"
    )
    samples_a_query: int = Field(2_000_000, ge=10_000, le=50_000_000, description="samples one query may return")
    concurrency: int = Field(2, ge=1, le=16, description="queries under way at a time")
    attempts: int = Field(4, ge=1, le=10, description="tries of one request, backing off in between")

    @model_validator(mode="after")
    def _one_authority(self) -> "PrometheusSettings":
        if self.oauth2_token_url and not (self.oauth2_client_id and self.oauth2_client_secret_file):
            raise ValueError("oauth2_token_url needs oauth2_client_id and oauth2_client_secret_file beside it")
        if self.oauth2_token_url and (self.bearer_token_file or self.basic_user):
            raise ValueError("give oauth2_token_url, bearer_token_file or basic_user, one of them")
        return self

    @field_validator("oauth2_token_url", mode="after")
    @classmethod
    def _no_secret_in_token_url(cls, url: HttpUrl | None) -> HttpUrl | None:
        return cls._without_password(url)


class AlertmanagerSettings(HttpClientSettings):
    """Where alerts are pushed to."""

    url: HttpUrl | None = Field(None, description="base URL of Alertmanager, e.g. http://alertmanager:9093")
    resend_s: float = Field(60.0, ge=5, le=60, description="seconds between two sends of a firing alert")
    external_url: str = Field("http://localhost:9920", description="where people reach this service; links in alerts")


class CycleSettings(Section):
    """The two loops."""

    step_s: float = Field(
        60.0, ge=10, le=300, description="seconds between score cycles and between grid columns; divides 600"
    )
    window_s: float = Field(7200.0, ge=1800, le=86_400, description="seconds of recent telemetry that forecasters see")
    train_every_s: float = Field(86_400.0, ge=3600, le=7 * 86_400, description="seconds between trainings")
    ingest_delay_s: float = Field(30.0, ge=0, le=600, description="seconds to wait for samples that arrive late")

    @model_validator(mode="after")
    def _whole_steps(self) -> "CycleSettings":
        if 600 % self.step_s:
            raise ValueError(f"step_s = {self.step_s:g} must divide 600, the ledger's ten-minute window: try 60")
        return self


class HistorySettings(Section):
    """How far back the ledger reaches."""

    train_days: int = Field(60, ge=7, le=400, description="days of ledger that training sees")
    backfill_memory_mib: int = Field(
        1024, ge=64, le=65_536, description="memory the first walk through history may take"
    )
    departed_after_s: float = Field(86_400.0, ge=600, description="seconds without a sample after which a GPU leaves")
    lost_for_s: float = Field(7 * 86_400.0, ge=3600, description="seconds that a GPU lost beside a live node is kept")
    topology_file: Path | None = Field(
        None,
        description="topology.csv: hostname,tray,rack,cooling_loop,row,power_feed; bmc names its controller; "
        "position, batch, installed tell of its boards",
    )


CoolingName = Literal[
    "inlet_temperature_celsius",
    "coolant_supply_temperature_celsius",
    "coolant_flow_liters_per_minute",
    "coolant_rated_flow_liters_per_minute",
]
PlaceLayer = Literal["tray", "rack", "cooling_loop", "row", "power_feed", "job"]


class EnvironmentSettings(Section):
    """Air and coolant of the site, and the labels that say where things stand."""

    inlet_sensor: str = Field(
        "(inlet|ambient|intake|front panel|sys(tem)? ?amb)",
        description="expression for the names of inlet air sensors (IPMI, iDRAC, Redfish, hwmon), in any case",
    )
    mapping: dict[CoolingName, str] = Field(
        default_factory=dict, description="PromQL that gives the site's own metrics the canonical names"
    )
    node_labels: tuple[str, ...] = Field((), description="labels that name a node, before the usual ones")
    loop_labels: tuple[str, ...] = Field(
        ("loop", "cooling_loop", "cdu"), description="labels that name a cooling loop; the first that is there counts"
    )
    rack_labels: tuple[str, ...] = Field(("rack",), description="labels that name a rack")
    topology_labels: dict[PlaceLayer, str] = Field(
        default_factory=dict, description="label of the GPUs' series that names their place, by layer"
    )

    @field_validator("topology_labels")
    @classmethod
    def _are_labels(cls, labels: dict[PlaceLayer, str]) -> dict[PlaceLayer, str]:
        for label in labels.values():
            if not re.fullmatch(r"[a-zA-Z_]\w*", label, re.ASCII):
                raise ValueError(f"{label!r} is no name of a label, and every query would fail by it")
        return labels

    @field_validator("inlet_sensor")
    @classmethod
    def _is_an_expression(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as failure:
            raise ValueError(f"no regular expression: {failure}") from None
        return pattern


class MetricsSettings(Section):
    """What /metrics shows."""

    detail: Literal["watch", "all"] = Field(
        "watch", description="per-class families for GPUs at watch or above, or all"
    )


class StoreSettings(Section):
    """Where state is kept."""

    directory: Path = Field(Path("var/healthsvc"), description="ledger, journal and trained arrays")


class ServerSettings(Section):
    """Where the service listens."""

    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(9920, ge=0, le=65_535, description="port to listen on")


class RecordedSettings(Section):
    """A folder written by `healthsvc simulate`, read in place of a server."""

    directory: Path | None = Field(None, description="folder with telemetry/, gpus.csv and topology.csv")
