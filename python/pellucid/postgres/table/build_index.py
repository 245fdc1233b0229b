"""Build and drop the indexes of a table on a server, while other clients write.

An index is registered in one transaction that also gives the table's relation another name. From then on
a client that does not know the index cannot write, so every row that is written has its entry. Then the
entries of the rows that were there before are made, in batches, by the order of keys; the place that was
reached is stored with each batch. So if the builder is killed, any client that creates the index once
more goes on from there. At last PostgreSQL builds its own index, and the index is ready.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Callable, Iterator
from typing import Any

from pellucid._native import ServerIndexCodes, server_index_error
from pellucid.errors import Busy, DatabaseError, Error
from pellucid.postgres import errors
from pellucid.postgres.protocols import IndexEntries, Tables
from pellucid.postgres.schema import citus, keys
from pellucid.postgres.schema.layout import IndexInfo, Layout
from pellucid.postgres.schema.races import with_own_id
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.schema.text import formed, quoted
from pellucid.postgres.session import Lost, Session
from pellucid.postgres.table.index_entries import NOT_UNIQUE, key_of
from pellucid.postgres.table.records import Records

BATCH_COUNT = 500
LOCK_SECONDS = 1
LOCK_CLASS = 0x70656C6C
PAUSE_SECONDS = 0.05

REGISTER = (
    "INSERT INTO {indexes} (id, tbl, name, definition, is_unique, has_each, state) "
    "SELECT coalesce(max(id), 0) + $6::int, $1, $2, $3, $4, $5, 'building' FROM {indexes} RETURNING id"
)
ENTRIES = "CREATE TABLE {entries} (k bytea NOT NULL, p bytea NOT NULL, s bytea, PRIMARY KEY (k, p))"
Progress = Callable[[int, int], Any]


class Builder:
    """The build of one index, or its end."""

    def __init__(self, tables: Tables, records: Records, entries: IndexEntries, name: str) -> None:
        self.tables = tables
        self.records = records
        self.binding = records.binding
        self.connection = records.connection
        self.entries = entries
        self.name = name
        self.schema = self.connection.place.schema
        self.indexes = quoted(self.schema, "indexes")
        self.catalog = tables.catalog
        self.catalog_table = quoted(self.schema, "catalog")

    # Where statements run

    @contextlib.contextmanager
    def session(self) -> Iterator[Session]:
        """The connection for the block: the transaction's, or one of the builder's own."""
        running = self.connection.running()
        if running is not None:
            yield running.ready()
            return
        session = self.connection.pool.take()
        try:
            yield session
        except Lost as lost:
            raise errors.of_lost(lost.args[0], self.connection.place, was_sent=True) from lost.args[0]
        finally:
            self.connection.pool.give(session)

    def changed(self, session: Session, work: Callable[[Layout], None]) -> Layout:
        """Change the layout of the table in one transaction: `work`, and another name for its relation."""
        if self.connection.running() is not None:
            # The server changes no relation that an open cursor of the same transaction reads.
            session.execute(b"CLOSE ALL")
            return self._renamed(session, work)
        until = time.monotonic() + self.connection.timeout
        while True:
            session.script(b"BEGIN; SET LOCAL lock_timeout = '%ds'" % LOCK_SECONDS)
            try:
                layout = self._renamed(session, work)
                session.execute(b"COMMIT")
                return layout
            except Busy as error:
                # A long transaction has the table: others may go on meanwhile, so the lock is given up.
                if errors.sqlstate(error.__cause__) not in errors.LATE or time.monotonic() > until:
                    raise
                time.sleep(PAUSE_SECONDS)
            finally:
                session.roll_back()

    def _renamed(self, session: Session, work: Callable[[Layout], None]) -> Layout:
        number = self.binding.for_writing().layout.id
        catalog = self.catalog
        session.rows(
            formed("SELECT FROM {catalog} WHERE id = $1 FOR UPDATE", catalog=self.catalog_table), [number]
        )
        layout = catalog.numbered(session, number)
        if layout is None:
            raise DatabaseError(f"table {self.binding.name!r} was dropped meanwhile")
        new = f"t{layout.id}_{layout.generation + 1}"
        rename = "ALTER TABLE {rows} RENAME TO {new}"
        session.execute(formed(rename, rows=quoted(self.schema, layout.relation), new=quoted(new)))
        session.execute(
            formed(
                "UPDATE {catalog} SET generation = generation + 1 WHERE id = $1", catalog=self.catalog_table
            ),
            [number],
        )
        work(layout)
        found = catalog.numbered(session, number)
        assert found is not None
        return found

    def known(self, layout: Layout) -> Statements:
        """Make the layout the one that this client knows."""
        self.tables.note(layout)
        return self.tables.statements(layout)

    def found(self, layout: Layout) -> IndexInfo | None:
        """Return what the catalog says of the index."""
        return next((index for index in layout.indexes if index.name == self.name), None)

    # Building

    def build(self, definition: str, is_unique: bool, progress: Progress | None) -> None:
        """Create the index, or go on with it."""
        codes = ServerIndexCodes(self.name, definition)
        layout = self.binding.for_writing().layout
        citus.check_index(self.binding.name, self.name, layout, has_each=codes.has_each, is_unique=is_unique)
        with self.session() as session:
            layout = self._registered(session, definition, is_unique, codes.has_each)
            while (index := self.found(layout)) is not None and index.state != "ready":
                try:
                    self._go_on(session, index.id, progress)
                except errors.LayoutChanged:
                    # Another client has created or dropped an index of the table.
                    if self.connection.running() is not None:
                        raise
                layout = self._layout(session)
            self.known(layout)

    def _layout(self, session: Session) -> Layout:
        layout = self.catalog.numbered(session, self.binding.for_writing().layout.id)
        if layout is None:
            raise DatabaseError(f"table {self.binding.name!r} was dropped meanwhile")
        return layout

    def _go_on(self, session: Session, number: int, progress: Progress | None) -> None:
        """Make the entries that are missing, and make the index ready, unless another client has done so."""
        with self._alone(session, number):
            layout = self._layout(session)
            index = self.found(layout)
            if index is not None and index.id == number and index.state != "ready":
                self._filled(session, self.known(layout), index, progress)
                self._published(session, index)

    def _registered(self, session: Session, definition: str, is_unique: bool, has_each: bool) -> Layout:
        layout = self._layout(session)
        index = self.found(layout)
        if index is not None:
            self._check_same(index, definition, is_unique)
            return layout

        def register(layout: Layout) -> None:
            other = self.found(layout)
            if other is not None:
                self._check_same(other, definition, is_unique)
                return
            rows = quoted(self.schema, f"t{layout.id}_{layout.generation + 1}")
            insert = formed(REGISTER, indexes=self.indexes)
            given = [layout.id, self.name.encode(), definition.encode(), is_unique, has_each]
            made = with_own_id(session, lambda step: session.rows(insert, [*given, step]))
            number = made[0][0]
            if has_each:
                entries = quoted(self.schema, f"e{number}")
                session.execute(formed(ENTRIES, entries=entries))
                citus.distribute_entries(session, layout, entries, rows)
                return
            add = f"ALTER TABLE {{rows}} ADD COLUMN i{number} bytea, ADD COLUMN s{number} bytea"
            session.execute(formed(add, rows=rows))

        return self.changed(session, register)

    def _check_same(self, index: IndexInfo, definition: str, is_unique: bool) -> None:
        if (index.definition, index.is_unique) != (definition, is_unique):
            raise server_index_error(
                "exists",
                self.binding.name,
                self.name,
                [],
                (index.definition, index.is_unique),
                (definition, is_unique),
            )

    @contextlib.contextmanager
    def _alone(self, session: Session, number: int) -> Iterator[None]:
        """Keep other builders of the same index out for the block."""
        if self.connection.running() is not None:
            yield
            return
        if not self.connection.place.prepares:
            # Behind a pooler a lock lasts for a transaction, and this connection is in none.
            with self.connection.pool.session() as other:
                other.execute(b"BEGIN")
                self._lock(other, b"pg_try_advisory_xact_lock", number)
                # The portal of that statement keeps a snapshot, for which a concurrent build would wait.
                other.script(b"SELECT")
                yield
                other.execute(b"ROLLBACK")
            return
        self._lock(session, b"pg_try_advisory_lock", number)
        try:
            yield
        finally:
            given = [LOCK_CLASS, self._lock_number(number)]
            if not session.is_broken:
                session.rows(b"SELECT pg_advisory_unlock($1::int, $2::int)", given)

    def _lock_number(self, number: int) -> int:
        """Return the number of an index's lock: all schemas of a server's database share these numbers."""
        return zlib.crc32(f"{number} {self.schema}".encode()) - (1 << 31)

    def _lock(self, session: Session, function: bytes, number: int) -> None:
        """Take the lock of an index, or raise where another builder has it."""
        asked = b"SELECT " + function + b"($1::int, $2::int)"
        if not session.rows(asked, [LOCK_CLASS, self._lock_number(number)])[0][0]:
            raise Busy(
                f"index {self.name!r} of table {self.binding.name!r} is being built by another client; "
                "wait until that is done, or end it"
            )

    def _filled(self, session: Session, sql: Statements, index: IndexInfo, progress: Progress | None) -> None:
        place = session.rows(
            formed("SELECT place FROM {indexes} WHERE id = $1", indexes=self.indexes), [index.id]
        )
        reached: bytes = place[0][0] or b""
        total = int(session.rows(sql.count)[0][0])
        done = 0
        while True:
            page = session.rows(sql.after(BATCH_COUNT), [reached])
            if not page:
                break
            self.records.learn(page)
            entered = []
            for k, s, value, version in page:
                key = key_of(k, s)
                entries = self.entries.of_row(sql, key, value)[sql.layout.indexes.index(index)]
                entered.append((k, version, [(keys.stored(code), spelling) for code, spelling in entries]))
            reached = page[-1][0]
            is_long = any(len(code) > keys.SHORT_SIZE_MAX for _, _, own in entered for code, _ in own)
            statements = [*sql.fill(index, entered), sql.note_place(index, reached)]
            session.batch([*statements, sql.note_long(index)] if is_long else statements)
            done += len(page)
            if progress is not None:
                progress(done, max(total, done))
        if progress is not None and not done:
            progress(total, total)

    def _published(self, session: Session, index: IndexInfo) -> None:
        sql = self.known(self._layout(session))
        is_inside = self.connection.running() is not None
        try:
            if is_inside:
                session.execute(b"SAVEPOINT pellucid_build")
            else:
                # What a killed builder has left is not valid.
                session.execute(sql.drop_own(index, concurrently=True))
            session.execute(sql.create_own(index, concurrently=not is_inside))
            # Without statistics of the new column the server would not know what the index is good for.
            session.execute(sql.analyze(index))
        except Error as error:
            if errors.sqlstate(error.__cause__) != NOT_UNIQUE:
                raise
            if is_inside:
                session.execute(b"ROLLBACK TO SAVEPOINT pellucid_build")
            refused = self._duplicate(session, sql, index)
            self._removed(session, index)
            raise refused or error from error.__cause__
        ready = formed("UPDATE {indexes} SET state = 'ready' WHERE id = $1", indexes=self.indexes)

        def finish(_layout: Layout) -> None:
            session.execute(ready, [index.id])

        self.known(self.changed(session, finish))

    def _duplicate(self, session: Session, sql: Statements, index: IndexInfo) -> Exception | None:
        """Return the exception for two rows that have one value."""
        codes = ServerIndexCodes(index.name, index.definition)
        found = session.rows(sql.duplicates(index))
        if len(found) < 2:
            return None
        (k, s, value, _), (other, other_s, *_rest) = found[:2]
        place = sql.layout.indexes.index(index)
        first = self.entries.of_row(sql, key_of(k, s), value)[place]
        second = {code for code, _ in self.entries.of_row(sql, key_of(other, other_s), found[1][2])[place]}
        entry = next((entry for entry in first if entry[0] in second), None)
        if entry is None:
            return None
        error: Exception = codes.not_unique(
            self.binding.name, entry, key_of(other, other_s), key_of(k, s), False, None
        )
        return error

    def rebuild(self, progress: Progress | None) -> None:
        """Make the entries anew, row by row; those of all other rows can be found meanwhile."""
        with self.session() as session:
            index = self._wanted(session)
            with self._alone(session, index.id):
                session.execute(
                    formed("UPDATE {indexes} SET place = NULL WHERE id = $1", indexes=self.indexes),
                    [index.id],
                )
                sql = self.known(self._layout(session))
                self._filled(session, sql, index, progress)
                if index.has_each:
                    session.execute(*sql.swept_beside(index))
            if index.state != "ready":
                self._published(session, index)

    def _wanted(self, session: Session) -> IndexInfo:
        layout = self._layout(session)
        index = self.found(layout)
        if index is None:
            others = sorted(other.name for other in layout.indexes)
            raise server_index_error("missing", self.binding.name, self.name, others)
        return index

    # Dropping

    def drop(self) -> None:
        """Remove the index."""
        with self.session() as session:
            self._removed(session, self._wanted(session))

    def _removed(self, session: Session, index: IndexInfo) -> None:
        def remove(layout: Layout) -> None:
            rows = quoted(self.schema, f"t{layout.id}_{layout.generation + 1}")
            if index.has_each:
                drop = formed("DROP TABLE IF EXISTS {entries}", entries=quoted(self.schema, f"e{index.id}"))
            else:
                columns = f"DROP COLUMN IF EXISTS i{index.id}, DROP COLUMN IF EXISTS s{index.id}"
                drop = formed("ALTER TABLE {rows} " + columns, rows=rows)
            session.execute(drop)
            session.execute(formed("DELETE FROM {indexes} WHERE id = $1", indexes=self.indexes), [index.id])

        self.known(self.changed(session, remove))
