"""The journal: what must survive a restart and is no telemetry - the memory of alerting, and incidents."""

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import Any

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError, OperationalError

from healthsvc.fleet import DAY_S, Incident
from healthsvc.store.atomic import set_aside
from healthsvc.store.errors import StoreError, store_error
from healthsvc.store.journal_tables import FROM_VERSION_2, SCHEMA_VERSION, TABLES, alerts, incidents, schema_version

BUSY_TIMEOUT_MS = 5000
INCIDENTS_KEPT_S = 90 * DAY_S  # after they were cleared


def sqlite_url(directory: Path) -> sa.URL:
    """Where the journal of a state directory lies, unless a database server is given."""
    return sa.URL.create("sqlite", database=str(Path(directory) / "journal.sqlite"))


class Journal:
    """Alert state and incidents in a database; each save is one transaction.

    Opening creates what is missing. A damaged SQLite file is set aside with a warning and a fresh journal begun.
    A journal of the version before is converted. Raises StoreError if the database refuses, or if its tables are those
    of yet another version. Close it, or use it as a context.
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

    def save_alerts(self, payloads: Mapping[str, Any]) -> None:
        """Replace all: after a kill there is the old set or the new one, never a mixture. key -> what JSON can say."""
        with self._transaction() as connection:
            connection.execute(alerts.delete())
            if payloads:
                connection.execute(alerts.insert(), [{"key": k, "payload": p} for k, p in payloads.items()])

    def load_alerts(self) -> dict[str, Any]:
        """key -> payload, in order of key: the empty key, if there is one, comes first."""
        with self._transaction() as connection:
            rows = connection.execute(sa.select(alerts).order_by(alerts.c.key))
            return {row.key: row.payload for row in rows}

    def save_incidents(self, changed: Sequence[Incident]) -> None:
        """Add incidents, or replace those of the same id. Of the others, those are dropped that had been cleared for
        INCIDENTS_KEPT_S when the newest of `changed` was last true."""
        if not changed:
            return
        now_s = max(max(incident.onset_s, incident.last_true_s) for incident in changed)
        with self._transaction() as connection:
            gone = incidents.delete().where(incidents.c.id == sa.bindparam("gone"))
            connection.execute(gone, [{"gone": incident.id} for incident in changed])
            connection.execute(incidents.delete().where(incidents.c.cleared_s < now_s - INCIDENTS_KEPT_S))
            connection.execute(incidents.insert(), [asdict(incident) for incident in changed])

    def load_incidents(self) -> tuple[Incident, ...]:
        """All incidents, in order of onset."""
        return self._incidents(sa.true())

    def standing(self, not_after_s: float = math.inf) -> tuple[Incident, ...]:
        """Incidents that were not cleared, in order of onset, but none that was still true after `not_after_s`: a
        replay of the past does not know those."""
        return self._incidents((incidents.c.state != "cleared") & (incidents.c.last_true_s <= not_after_s))

    def _incidents(self, which: sa.ColumnElement[bool]) -> tuple[Incident, ...]:
        with self._transaction() as connection:
            asked = sa.select(incidents).where(which).order_by(incidents.c.onset_s, incidents.c.id)
            rows = connection.execute(asked).mappings()
            return tuple(Incident(**{**row, "members": tuple(row["members"])}) for row in rows)

    def _prepare(self) -> None:
        """Create what is missing, unless software with other tables has been here."""
        with self._transaction() as connection:
            schema_version.create(connection, checkfirst=True)
            found = connection.scalar(sa.select(sa.func.max(schema_version.c.version)))
            if found == 2:
                for statement in FROM_VERSION_2:
                    connection.execute(sa.text(statement))
                connection.execute(schema_version.update().values(version=SCHEMA_VERSION))
                found = SCHEMA_VERSION
            if found not in (None, SCHEMA_VERSION):
                raise StoreError(
                    self._where,
                    f"journal schema {found} was written by another version of healthsvc, this one knows "
                    f"{SCHEMA_VERSION}",
                    "Run the version that wrote it, or move the journal away to begin a fresh one",
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
