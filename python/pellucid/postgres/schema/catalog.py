"""What a database on a server knows about itself: its format, its tables, and their layouts.

    about     the format of the schema, and who may read it
    catalog   the tables; one that was dropped keeps its row without a name, so that no id is used twice
    counters  the next number that append() gives in a table
    indexes   the indexes of the tables
    shapes    the shapes of records, by number

Two clients may create the same schema or table at once: the one that is refused reads what the other has
made.
"""

from __future__ import annotations

import dataclasses
import uuid

from pellucid.errors import DatabaseCorrupt, DatabaseError, NewerFormat, NotADatabase
from pellucid.postgres import errors
from pellucid.postgres.schema import citus, triggers
from pellucid.postgres.schema.layout import CreateOptions, IndexInfo, Layout
from pellucid.postgres.schema.races import again, with_own_id
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.schema.text import formed, quoted
from pellucid.postgres.session import Session

FORMAT = 1

RELATIONS = """
CREATE SCHEMA IF NOT EXISTS {schema};
CREATE TABLE IF NOT EXISTS {schema}.about (one bool PRIMARY KEY CHECK (one), format int NOT NULL,
    oldest_reader int NOT NULL, identity uuid NOT NULL, engine text NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.catalog (id int PRIMARY KEY, name bytea UNIQUE, generation int NOT NULL,
    distribute_by int, queryable bool NOT NULL DEFAULT false);
CREATE TABLE IF NOT EXISTS {schema}.counters (id int PRIMARY KEY, next_int bigint NOT NULL);
CREATE TABLE IF NOT EXISTS {schema}.indexes (id int PRIMARY KEY, tbl int NOT NULL, name bytea NOT NULL,
    definition bytea NOT NULL, is_unique bool NOT NULL, has_each bool NOT NULL, state text NOT NULL,
    place bytea, has_long bool NOT NULL DEFAULT false, UNIQUE (tbl, name));
CREATE TABLE IF NOT EXISTS {schema}.shapes (id int PRIMARY KEY, hash bytea NOT NULL UNIQUE,
    names bytea NOT NULL);
"""
TABLE = """
CREATE TABLE {rows} (k bytea, s bytea, v bytea NOT NULL, ver bigint NOT NULL DEFAULT 1, big bool{part},
    PRIMARY KEY (k{by}));
ALTER TABLE {rows} ALTER COLUMN v SET STORAGE EXTERNAL;
CREATE TABLE {overflow} (k bytea, id bigint, piece int, bytes bytea NOT NULL{part},
    PRIMARY KEY (k, id, piece{by}));
ALTER TABLE {overflow} ALTER COLUMN bytes SET STORAGE EXTERNAL;
"""
# A program that reads the view needs no name of a relation, which changes with the layout. JSON that is not
# compressed is read in half the time.
JSON = """
ALTER TABLE {rows} ADD COLUMN key jsonb, ADD COLUMN value jsonb;
ALTER TABLE {rows} SET (toast_tuple_target = 8160);
CREATE VIEW {view} AS SELECT key, value FROM {rows};
"""


class Catalog:
    """The statements about all tables of a schema."""

    def __init__(self, schema: str) -> None:
        self.schema = schema
        self._quoted = quoted(schema)
        self._statements: dict[int, Statements] = {}
        # Whether the server can distribute tables over several servers.
        self.has_citus = False

    def _sql(self, text: str) -> bytes:
        return formed(text, schema=self._quoted)

    def open(self, session: Session, mode: str) -> str:
        """Check the schema, and create it where the mode says so; return the database's identity."""
        self.has_citus = citus.is_installed(session)
        known = self._about(session)
        if known is None and mode in ("c", "n"):
            again(session, lambda: self._create(session))
            known = self._about(session)
        if known is None:
            raise NotADatabase(
                f"the schema {self.schema!r} of {session.place.shown} has no tables of pellucid; "
                "open it with mode='c' to create them"
            )
        oldest_reader, identity = known
        if oldest_reader > FORMAT:
            raise NewerFormat(
                f"the schema {self.schema!r} of {session.place.shown} has format {oldest_reader}, and this "
                "release "
                f"reads up to {FORMAT}; upgrade pellucid"
            )
        if mode == "n":
            for name in self.names(session):
                self.drop(session, name)
        return identity

    def _about(self, session: Session) -> tuple[int, str] | None:
        found = session.rows(
            b"SELECT to_regclass($1) IS NOT NULL, count(*) FROM pg_class AS c JOIN pg_namespace AS n "
            b"ON n.oid = c.relnamespace WHERE n.nspname = $2",
            [(self._quoted + b".about").decode(), self.schema],
        )
        is_ours, count = found[0]
        if not is_ours:
            if count:
                raise NotADatabase(
                    f"the schema {self.schema!r} of {session.place.shown} belongs to another program: it has "
                    f"{count} relations, and not pellucid's table `about`; name another one with ?schema= "
                    "in the URL"
                )
            return None
        try:
            about = session.rows(self._sql("SELECT oldest_reader, identity FROM {schema}.about"))
        except (errors.LayoutChanged, DatabaseError) as error:
            raise NotADatabase(
                f"the schema {self.schema!r} of {session.place.shown} belongs to another program: its "
                "table `about` "
                f"is not pellucid's ({errors.said(error.__cause__ or error)})"
            ) from error
        if not about:
            return None
        return int(about[0][0]), str(about[0][1])

    def _create(self, session: Session) -> None:
        identity = str(uuid.uuid4())
        # One text of several statements is one transaction.
        session.script(
            self._sql(RELATIONS)
            + self._sql("INSERT INTO {schema}.about VALUES (true, 1, 1, ")
            + f"'{identity}', 'postgresql') ON CONFLICT DO NOTHING;".encode()
        )

    def statements(self, layout: Layout) -> Statements:
        """Return the statements for a layout, the same ones for the same layout."""
        known = self._statements.get(layout.id)
        if known is None or known.layout != layout:
            known = self._statements[layout.id] = Statements(self.schema, layout)
        return known

    def names(self, session: Session) -> list[str]:
        """Return the names of all tables, in order."""
        rows = session.rows(
            self._sql("SELECT name FROM {schema}.catalog WHERE name IS NOT NULL ORDER BY name")
        )
        return [self._text(name, "name of a table") for (name,) in rows]

    def _text(self, stored: bytes, what: str) -> str:
        try:
            return bytes(stored).decode()
        except UnicodeDecodeError:
            raise DatabaseCorrupt(
                f"the {what} in the schema {self.schema!r} is damaged: {bytes(stored)!r} is no UTF-8"
            ) from None

    def named(self, session: Session, name: str) -> Layout | None:
        """Return the layout of the table with this name; None if there is none."""
        return self._found(session, "name = $1", name.encode())

    def numbered(self, session: Session, number: int) -> Layout | None:
        """Return the layout of the table with this id; None if it was dropped."""
        return self._found(session, "id = $1 AND c.name IS NOT NULL", number)

    def _found(self, session: Session, condition: str, value: bytes | int) -> Layout | None:
        rows = session.rows(
            self._sql(
                "SELECT c.id, c.name, c.generation, i.id, i.name, i.definition, i.is_unique, i.has_each, "
                "i.state, i.has_long, c.distribute_by, c.queryable FROM {schema}.catalog AS c "
                "LEFT JOIN {schema}.indexes AS i ON i.tbl = c.id WHERE c." + condition + " ORDER BY i.id"
            ),
            [value],
        )
        if not rows:
            if self.has_citus and not session.is_idle:
                citus.check_catalog_seen(session, self.schema)
            return None
        number, name, generation = rows[0][:3]
        indexes = tuple(
            IndexInfo(
                row[3],
                self._text(row[4], "name of an index"),
                self._text(row[5], "definition of an index"),
                *row[6:10],
            )
            for row in rows
            if row[3] is not None
        )
        layout = Layout(
            number,
            self._text(name, "name of a table"),
            generation,
            indexes,
            rows[0][10] is not None,
            rows[0][11],
            rows[0][10] or 0,
        )
        if (
            self.has_citus
            and not layout.is_distributed
            and citus.is_distributed(session, self.schema, layout)
        ):
            return dataclasses.replace(layout, is_distributed=True)
        return layout

    def create(self, session: Session, name: str, options: CreateOptions, *, is_alone: bool) -> Layout:
        """Create a table, unless another client has just done it; `is_alone`: in a transaction of its own."""
        if not is_alone:
            return self._created(session, name, options)

        def create() -> Layout:
            session.execute(b"BEGIN")
            layout = self._created(session, name, options)
            session.execute(b"COMMIT")
            return layout

        try:
            return again(session, create)
        finally:
            session.roll_back()

    def _created(self, session: Session, name: str, options: CreateOptions) -> Layout:
        insert = self._sql(
            "INSERT INTO {schema}.catalog (id, name, generation, distribute_by, queryable) "
            "SELECT coalesce(max(id), 0) + $4::int, $1, 1, $2::int, $3::bool "
            "FROM {schema}.catalog ON CONFLICT (name) DO NOTHING RETURNING id"
        )
        given = [
            name.encode(),
            options.distribute_by or 0 if options.is_distributed else None,
            bool(options.is_queryable),
        ]
        made = with_own_id(session, lambda step: session.rows(insert, [*given, step]))
        if not made:
            found = self.named(session, name)
            if found is None:
                raise DatabaseError(
                    f"another client has created and dropped table {name!r} meanwhile; try again"
                )
            return found
        layout = Layout(
            made[0][0],
            name,
            1,
            is_distributed=bool(options.is_distributed),
            is_queryable=bool(options.is_queryable),
            distribute_by=options.distribute_by or 0,
        )
        sql = self.statements(layout)
        session.script(formed(TABLE, rows=sql.rows, overflow=sql.overflow, **citus.column_parts(options)))
        if options.is_queryable:
            session.script(formed(JSON, rows=sql.rows, view=sql.view))
        citus.distribute_table(session, sql)
        session.execute(self._sql("INSERT INTO {schema}.counters VALUES ($1, 0)"), [layout.id])
        triggers.note_table(session, self.schema, layout)
        return layout

    def drop(self, session: Session, name: str) -> Layout | None:
        """Drop a table, in the transaction that runs, and return it; None if there is none."""
        layout = self.named(session, name)
        if layout is None:
            return None
        sql = self.statements(layout)
        each = [quoted(self.schema, f"e{index.id}") for index in layout.indexes if index.has_each]
        session.batch(
            [
                (self._sql("UPDATE {schema}.catalog SET name = NULL WHERE id = $1"), [layout.id]),
                (self._sql("DELETE FROM {schema}.counters WHERE id = $1"), [layout.id]),
                *([(formed("DROP VIEW {view}", view=sql.view), [])] if layout.is_queryable else []),
                (formed("DROP TABLE {rows}, {overflow}", rows=sql.rows, overflow=sql.overflow), []),
                *((formed("DROP TABLE IF EXISTS {entries}", entries=entries), []) for entries in each),
            ]
        )
        return layout

    def rename(self, session: Session, layout: Layout, new_name: str) -> Layout:
        """Give a table another name, which no other table has."""
        session.execute(
            self._sql("UPDATE {schema}.catalog SET name = $2 WHERE id = $1"), [layout.id, new_name.encode()]
        )
        return dataclasses.replace(layout, name=new_name)

    def next_ints(self, session: Session, layout: Layout, least: int, count: int) -> int | None:
        """Take `count` numbers from `least` on; return the first one, or None if there is no counter here."""
        found = session.rows(
            self._sql(
                "UPDATE {schema}.counters SET next_int = greatest(next_int, $2) + $3 WHERE id = $1 "
                "AND greatest(next_int, $2) <= 9223372036854775807 - $3 RETURNING next_int"
            ),
            [layout.id, least, count],
        )
        return int(found[0][0]) - count if found else None
