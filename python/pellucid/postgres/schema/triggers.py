"""The triggers that note changes for `watch`: a table of changes, and who writes into it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pellucid.errors import TransactionError
from pellucid.postgres.schema import citus
from pellucid.postgres.schema.layout import Layout
from pellucid.postgres.schema.races import again
from pellucid.postgres.schema.text import formed, quoted
from pellucid.postgres.session import Session

if TYPE_CHECKING:
    from pellucid.postgres.protocols import Connection
    from pellucid.postgres.schema.catalog import Catalog

RELATIONS = """
CREATE TABLE {schema}.changes (n bigserial PRIMARY KEY, at xid8 NOT NULL DEFAULT pg_current_xact_id(),
    time timestamptz NOT NULL DEFAULT now(), tbl int NOT NULL, name bytea NOT NULL, kind text NOT NULL,
    k bytea, s bytea, v bytea);
ALTER TABLE {schema}.changes ALTER COLUMN v SET STORAGE EXTERNAL;
CREATE INDEX changes_at ON {schema}.changes (at);
CREATE TABLE {schema}.watched (one bool PRIMARY KEY CHECK (one), oldest xid8 NOT NULL);
INSERT INTO {schema}.watched VALUES (true, pg_snapshot_xmin(pg_current_snapshot()));
"""
KEPT = "1 day"
FORGET = """
WITH old AS (SELECT max(at) AS at FROM {schema}.changes WHERE time < now() - interval '{kept}'
    AND at < pg_snapshot_xmin(pg_current_snapshot())),
gone AS (DELETE FROM {schema}.changes WHERE at <= (SELECT at FROM old))
UPDATE {schema}.watched SET oldest = ((SELECT at FROM old)::text::bigint + 1)::text::xid8
WHERE (SELECT at FROM old) IS NOT NULL
"""
# The owner of the table writes into it, so that a client needs no right of its own. No name is in the text
# of a function but the schema's, in quotes.
ROW_FUNCTION = """
BEGIN
    IF TG_TABLE_SCHEMA <> {literal} THEN
        RAISE EXCEPTION 'the triggers of pellucid are for its own tables';
    END IF;
    IF TG_OP = 'DELETE' THEN
        INSERT INTO {schema}.changes (tbl, name, kind, k, s) SELECT id, name, 'delete', OLD.k, OLD.s
            FROM {schema}.catalog WHERE id = TG_ARGV[0]::int;
    ELSE
        INSERT INTO {schema}.changes (tbl, name, kind, k, s, v) SELECT id, name, 'put', NEW.k, NEW.s, NEW.v
            FROM {schema}.catalog WHERE id = TG_ARGV[0]::int;
    END IF;
    PERFORM pg_notify('pellucid', '');
    RETURN NULL;
END
"""
TABLE_FUNCTION = """
BEGIN
    IF TG_TABLE_SCHEMA <> {literal} THEN
        RAISE EXCEPTION 'the triggers of pellucid are for its own tables';
    END IF;
    IF TG_OP = 'INSERT' THEN
        INSERT INTO {schema}.changes (tbl, name, kind) VALUES (NEW.id, NEW.name, 'create');
    ELSIF NEW.name IS NULL THEN
        INSERT INTO {schema}.changes (tbl, name, kind) VALUES (NEW.id, OLD.name, 'drop');
    ELSE
        INSERT INTO {schema}.changes (tbl, name, kind, v) VALUES (NEW.id, OLD.name, 'rename', NEW.name);
    END IF;
    PERFORM pg_notify('pellucid', '');
    RETURN NULL;
END
"""
FUNCTION = """
CREATE FUNCTION {schema}.{name}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog AS {body};
"""
TABLE_TRIGGERS = """
CREATE TRIGGER pellucid_made AFTER INSERT ON {schema}.catalog FOR EACH ROW
    EXECUTE FUNCTION {schema}.note_table();
CREATE TRIGGER pellucid_named AFTER UPDATE ON {schema}.catalog FOR EACH ROW
    WHEN (OLD.name IS DISTINCT FROM NEW.name) EXECUTE FUNCTION {schema}.note_table();
"""
ROW_TRIGGERS = """
CREATE TRIGGER pellucid_written AFTER INSERT OR DELETE ON {rows} FOR EACH ROW
    EXECUTE FUNCTION {schema}.note_row({id});
CREATE TRIGGER pellucid_changed AFTER UPDATE ON {rows} FOR EACH ROW
    WHEN (OLD.ver IS DISTINCT FROM NEW.ver) EXECUTE FUNCTION {schema}.note_row({id});
"""


def is_watched(session: Session, schema: str) -> bool:
    """Return whether a watch was ever asked for."""
    name = (quoted(schema) + b".changes").decode()
    return bool(session.rows(b"SELECT to_regclass($1) IS NOT NULL", [name])[0][0])


def add_triggers(session: Session, schema: str, layout: Layout) -> None:
    """Let a table note its changes."""
    rows = quoted(schema, layout.relation).decode()
    text = ROW_TRIGGERS.format(schema=quoted(schema).decode(), rows=rows, id=layout.id)
    session.script(text.encode())


def note_table(session: Session, schema: str, layout: Layout) -> None:
    """Let a table that was just created note its changes, if a watch was ever asked for."""
    if is_watched(session, schema):
        add_triggers(session, schema, layout)


def start(connection: Connection, catalog: Catalog) -> None:
    """Let all tables note their changes, unless they do."""
    schema, name = connection.place.schema, quoted(connection.place.schema)

    def create(session: Session) -> None:
        session.execute(b"BEGIN")
        # No table is created, and none changes its layout, until all have their triggers.
        session.execute(formed("LOCK TABLE {schema}.catalog IN SHARE ROW EXCLUSIVE MODE", schema=name))
        if not is_watched(session, schema):
            session.script(formed(RELATIONS, schema=name))
            for function, text in ((b"note_row", ROW_FUNCTION), (b"note_table", TABLE_FUNCTION)):
                literal = b"'" + schema.replace("'", "''").encode() + b"'"
                body = formed(text, schema=name, literal=literal).replace(b"'", b"''")
                body = b"'" + body + b"'"
                session.script(formed(FUNCTION, schema=name, name=function, body=body))
            session.script(formed(TABLE_TRIGGERS, schema=name))
            for table in catalog.names(session):
                layout = catalog.named(session, table)
                if layout is not None:
                    add_triggers(session, schema, layout)
        session.execute(b"COMMIT")

    with connection.pool.session() as session:
        citus.refuse_watch(session)
        if is_watched(session, schema):
            return
        if connection.running() is not None:
            raise TransactionError(
                "the first watch() of a database creates triggers; call it outside of a transaction"
            )
        try:
            again(session, lambda: create(session))
        finally:
            session.roll_back()


def forget(session: Session, schema: str) -> None:
    """Delete changes that are older than a day."""
    if is_watched(session, schema):
        session.execute(formed(FORGET, schema=quoted(schema), kept=KEPT.encode()))
