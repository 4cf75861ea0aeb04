"""`healthsvc check-config`."""

from typing import Any

from healthsvc.cli.common import Config, Format, FormatOption, plain_errors, show
from healthsvc.config import load_settings


def check_config(
    config: Config = None,
    format_: FormatOption = Format.TABLE,
) -> None:
    """Check the settings and print every one with its value and meaning; secrets stay hidden."""
    with plain_errors():
        settings = load_settings(config)
    rows = []
    for section_name, section in settings:
        for name, field in type(section).model_fields.items():
            rows.append(
                {
                    "setting": f"{section_name}.{name}",
                    "value": _hidden(name, getattr(section, name)),
                    "variable": f"HEALTHSVC_{section_name}_{name}".upper(),
                    "meaning": field.description or "",
                }
            )
    show(rows, format_, "Settings")


def _hidden(name: str, value: Any) -> str:
    """A setting's value, of headers and parameters only the names: either may carry a token."""
    return ", ".join(f"{each}: (hidden)" for each in value) if name in ("headers", "parameters") else str(value)
