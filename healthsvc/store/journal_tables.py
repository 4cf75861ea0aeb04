"""The journal's tables, in SQL that SQLite and PostgreSQL share."""

import json
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa

SCHEMA_VERSION = 3
# What makes a journal of the version before into one of this.
FROM_VERSION_2 = (
    "ALTER TABLE incidents ADD COLUMN kind TEXT NOT NULL DEFAULT ''",
    "ALTER TABLE incidents ADD COLUMN began_s FLOAT",
    "ALTER TABLE incidents ADD COLUMN evidence TEXT NOT NULL DEFAULT ''",
)


class Json(sa.types.TypeDecorator[Any]):
    """JSON in a text column: unlike the databases' own JSON types it keeps NaN and infinity (an open end) anywhere."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str:
        return json.dumps(value, default=_plain, sort_keys=True)

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else json.loads(value)


def _plain(value: Any) -> Any:
    """NumPy scalars and arrays as Python numbers and lists, any mapping as a dict."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, Mapping):
        return dict(value)
    raise TypeError(f"{type(value).__name__} cannot be kept in the journal; give numbers, text, lists or mappings")


TABLES = sa.MetaData()
schema_version = sa.Table("schema_version", TABLES, sa.Column("version", sa.Integer, primary_key=True))
alerts = sa.Table(
    "alerts",
    TABLES,
    sa.Column("key", sa.Text, primary_key=True),  # the subject of the case; empty for what belongs to none
    sa.Column("payload", Json, nullable=False),  # what the alert stages remember
)
incidents = sa.Table(
    "incidents",
    TABLES,
    sa.Column("id", sa.Text, primary_key=True),
    sa.Column("layer", sa.Text, nullable=False),
    sa.Column("domain", sa.Text, nullable=False),
    sa.Column("state", sa.Text, nullable=False),
    sa.Column("alertname", sa.Text, nullable=False),
    sa.Column("cause", sa.Text, nullable=False),
    sa.Column("onset_s", sa.Float, nullable=False),
    sa.Column("cleared_s", sa.Float),
    sa.Column("members", Json, nullable=False),
    sa.Column("first_mover", sa.Text, nullable=False),
    sa.Column("last_true_s", sa.Float, nullable=False),
    sa.Column("kind", sa.Text, nullable=False),
    sa.Column("began_s", sa.Float),
    sa.Column("evidence", sa.Text, nullable=False),
)
