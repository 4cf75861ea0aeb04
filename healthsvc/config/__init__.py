"""Settings: healthsvc.toml and HEALTHSVC_* variables, checked at start; an error names the setting, value and cure."""

from healthsvc.config.loading import Settings, load_settings
from healthsvc.config.sections import (
    AlertmanagerSettings,
    CoolingName,
    EnvironmentSettings,
    Flavour,
    HttpClientSettings,
    PrometheusSettings,
    SettingsError,
)

__all__ = [
    "AlertmanagerSettings",
    "CoolingName",
    "EnvironmentSettings",
    "Flavour",
    "HttpClientSettings",
    "PrometheusSettings",
    "Settings",
    "SettingsError",
    "load_settings",
]
