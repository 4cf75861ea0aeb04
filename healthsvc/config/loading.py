"""Settings from file, environment and arguments; what is wrong is told by name, value and cure."""

import os
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict, TomlConfigSettingsSource
from pydantic_settings import SettingsError as UnreadableVariable

from healthsvc.config.sections import (
    AlertmanagerSettings,
    CycleSettings,
    EnvironmentSettings,
    HistorySettings,
    MetricsSettings,
    PrometheusSettings,
    RecordedSettings,
    ServerSettings,
    SettingsError,
    StoreSettings,
)


class Settings(BaseSettings):
    """All settings. Precedence: arguments, HEALTHSVC_SECTION_NAME variables, healthsvc.toml, defaults."""

    model_config = SettingsConfigDict(
        env_prefix="HEALTHSVC_",
        env_nested_delimiter="_",
        env_nested_max_split=1,
        env_ignore_empty=True,
        extra="forbid",
        frozen=True,
    )

    prometheus: PrometheusSettings = PrometheusSettings()
    recorded: RecordedSettings = RecordedSettings()
    alertmanager: AlertmanagerSettings = AlertmanagerSettings()
    cycle: CycleSettings = CycleSettings()
    history: HistorySettings = HistorySettings()
    environment: EnvironmentSettings = EnvironmentSettings()
    metrics: MetricsSettings = MetricsSettings()
    store: StoreSettings = StoreSettings()
    server: ServerSettings = ServerSettings()

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings, env_settings, TomlConfigSettingsSource(settings_cls))


def _cure(error: dict[str, Any]) -> str:
    """What to do about one validation error, from its type and its bounds."""
    bounds = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return "no such setting; `healthsvc check-config` lists all of them"
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            sign = {"greater_than": ">", "greater_than_equal": ">=", "less_than": "<", "less_than_equal": "<="}
            bound = next(iter(bounds.values()))
            return f"set it {sign[error['type']]} {bound:g}"
        case "literal_error":
            return f"choose one of {bounds.get('expected')}"
        case _:
            return str(error["msg"]).removeprefix("Value error, ")


def _shown(error: dict[str, Any]) -> str:
    """The wrong value, as far as it may be shown: no password, header or token ends up in a log."""
    name, value = str(error["loc"][-1]) if error["loc"] else "", error["input"]
    if isinstance(value, dict | list | BaseModel):
        return ""
    hidden = {"headers", "parameters", "basic_password"} & {str(part) for part in error["loc"]} or name.endswith(
        ("password", "token", "secret", "key")
    )
    return " = (hidden)" if hidden or "@" in str(value) else f" = {value!r}"


def _misspelt_variables(names: Iterable[str]) -> list[str]:
    """A line for every HEALTHSVC_* variable that nearly names a section; others may be Kubernetes service links."""
    sections = [name.upper() for name in Settings.model_fields]
    lines = []
    for name in sorted(name for name in names if name.startswith("HEALTHSVC_")):
        section = name.removeprefix("HEALTHSVC_").split("_", 1)[0]
        near = get_close_matches(section, sections, n=1, cutoff=0.8)
        if section not in sections and near:
            meant = name.replace(section, near[0], 1)
            lines.append(f"variable {name}: no section {section.lower()}; did you mean {meant}?")
    return lines


def load_settings(toml: Path | None = None, **overrides: Any) -> Settings:
    """Settings from `toml` (default: ./healthsvc.toml if present), the environment and `overrides`.

    Raises SettingsError, with one line for every setting that is wrong.
    """
    path = toml or Path("healthsvc.toml")
    if toml and not toml.is_file():
        raise SettingsError(f"--config {toml}: no such file; give the path of a healthsvc.toml")
    if misspelt := _misspelt_variables(os.environ):
        raise SettingsError("\n".join(misspelt))

    class FromFile(Settings):
        model_config = SettingsConfigDict(**{**Settings.model_config, "toml_file": path})

    try:
        return FromFile(**overrides)
    except ValidationError as failure:
        lines = [
            f"{'.'.join(map(str, e['loc']))}{_shown(dict(e))}: {_cure(dict(e))}"
            for e in failure.errors(include_url=False)
        ]
        raise SettingsError("\n".join(lines)) from None
    except UnreadableVariable as failure:
        cure = 'write a table as JSON, e.g. HEALTHSVC_PROMETHEUS_HEADERS=\'{"X-Scope-OrgID": "team-a"}\''
        raise SettingsError(f"a HEALTHSVC_* variable: {failure}; {cure}") from None
    except (ValueError, OSError) as failure:
        raise SettingsError(f"{path}: {failure}") from None
