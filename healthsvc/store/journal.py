"""The journal: what must survive a restart and is no telemetry - alerts, incidents, progress."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from healthsvc.fleet import Incident
from healthsvc.store.atomic import set_aside
from healthsvc.store.errors import StoreError, store_error
from healthsvc.store.journal_tables import SCHEMA_VERSION, TABLES, alerts, incidents, meta, schema_version

BUSY_TIMEOUT_MS = 5000
# What a row of save_alerts may leave out.
ALERT_DEFAULTS: Mapping[str, Any] = {
    "annotations": {},
    "raised_s": None,
    "last_true_s": None,
    "cleared_s": None,
    "started_wall_s": None,
    "payload": {},
}


def sqlite_url(directory: Path) -> sa.URL:
    """Where the journal of a state directory lies, unless a database server is given."""
    return sa.URL.create("sqlite", database=str(Path(directory) / "journal.sqlite"))


class Journal:
    """Alert state, incidents and progress in a database; each save is one transaction.

    Opening creates what is missing. A damaged SQLite file is set aside with a warning and a fresh journal begun.
    Raises StoreError if the database refuses, or was written by newer software. Close it, or use it as a context.
    """

    def __init__(self, url: str | sa.URL) -> None:
        self._engine = sa.create_engine(url, hide_parameters=True)
        self._where = self._engine.url.render_as_string(hide_password=True)
        if self._engine.dialect.name == "sqlite":
            sa.event.listen(self._engine, "connect", _tune_sqlite)
            self._set_aside_if_damaged()
        try:
            self._prepare()
        except StoreError:
            self.close()
            raise

    def __enter__(self) -> "Journal":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give back the connections."""
        self._engine.dispose()

    def save_alerts(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Replace all alerts: after a kill there is the old set or the new one, never a mixture.

        Keys are the columns of `alerts`: key, labels and state always, the others may be left out.
        """
        complete = [{**ALERT_DEFAULTS, **row} for row in rows]
        with self._transaction() as connection:
            connection.execute(alerts.delete())
            if complete:
                connection.execute(alerts.insert(), complete)

    def load_alerts(self) -> list[dict[str, Any]]:
        """All alerts, in order of key."""
        with self._transaction() as connection:
            return [dict(row) for row in connection.execute(sa.select(alerts).order_by(alerts.c.key)).mappings()]

    def save_incidents(self, changed: Sequence[Incident]) -> None:
        """Add incidents, or replace those of the same id; the others stay."""
        if not changed:
            return
        with self._transaction() as connection:
            gone = incidents.delete().where(incidents.c.id == sa.bindparam("gone"))
            connection.execute(gone, [{"gone": incident.id} for incident in changed])
            connection.execute(incidents.insert(), [asdict(incident) for incident in changed])

    def load_incidents(self) -> tuple[Incident, ...]:
        """All incidents, in order of onset."""
        with self._transaction() as connection:
            rows = connection.execute(sa.select(incidents).order_by(incidents.c.onset_s, incidents.c.id)).mappings()
            return tuple(Incident(**{**row, "members": tuple(row["members"])}) for row in rows)

    def set_meta(self, key: str, value: Any) -> None:
        """Keep one value (anything that JSON can say), for example how far the backfill has come."""
        with self._transaction() as connection:
            connection.execute(meta.delete().where(meta.c.key == key))
            connection.execute(meta.insert().values(key=key, value=value))

    def get_meta(self, key: str, default: Any = None) -> Any:
        """The value kept under `key`."""
        with self._transaction() as connection:
            row = connection.execute(sa.select(meta.c.value).where(meta.c.key == key)).one_or_none()
        return default if row is None else row.value

    def _prepare(self) -> None:
        """Create what is missing, unless newer software has been here."""
        with self._transaction() as connection:
            schema_version.create(connection, checkfirst=True)
            found = connection.scalar(sa.select(sa.func.max(schema_version.c.version)))
            if found is not None and found > SCHEMA_VERSION:
                raise StoreError(
                    self._where,
                    f"journal schema {found} was written by newer software, this one knows {SCHEMA_VERSION}",
                    "Upgrade healthsvc, or move the journal away to begin a fresh one",
                )
            TABLES.create_all(connection)
            if found is None:
                connection.execute(schema_version.insert().values(version=SCHEMA_VERSION))

    @contextmanager
    def _transaction(self) -> Iterator[sa.Connection]:
        """A connection whose work is kept whole or not at all."""
        try:
            with self._engine.begin() as connection:
                yield connection
        except DBAPIError as failure:
            raise StoreError(
                self._where,
                str(failure.orig),
                "Check that the database is reachable, writable and not full; a restart sets a damaged file aside",
            ) from failure

    def _set_aside_if_damaged(self) -> None:
        """Look at the whole SQLite file once, before anything trusts it."""
        path = Path(self._engine.url.database or "")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as failure:
            raise store_error(path.parent, failure) from failure
        try:
            with self._engine.connect() as connection:
                found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
        except OperationalError as failure:  # locked, forbidden, full: says nothing about the file
            raise StoreError(
                self._where, str(failure.orig), "Check that the file is writable, its disk not full, and used by nobody"
            ) from failure
        except DBAPIError as failure:
            found = str(failure.orig)
        if found == "ok":
            return
        self.close()
        for part in (path, path.with_name(f"{path.name}-wal"), path.with_name(f"{path.name}-shm")):
            if part.exists():
                set_aside(
                    part, str(found), "A fresh journal begins: firing alerts are raised anew, old incidents are lost"
                )


def _tune_sqlite(connection: Any, record: Any) -> None:
    """Readers never wait for the writer (WAL), and a writer waits a little rather than fail."""
    cursor = connection.cursor()
    cursor.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
    cursor.execute("PRAGMA journal_mode = WAL")
    cursor.close()
