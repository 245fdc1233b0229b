"""Read a table of another program, of pickles or JSON, as a read-only table, and convert it.

Rows are read as they are in that table; nothing is stored beside them. Its keys are compared as pellucid
compares keys: text by code points, whatever the collation of the column.
"""

from __future__ import annotations

import collections.abc
import datetime
import decimal
import io
import itertools
import json
import struct
import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pellucid
from pellucid import pickles, plain_pickles
from pellucid.errors import Busy, DatabaseError, Error, UnreadableValue, UnsupportedValue
from pellucid.postgres import errors, settings
from pellucid.postgres.database import Database
from pellucid.postgres.pool import Pool
from pellucid.postgres.query.scan import BEGIN, PAGE_SIZE
from pellucid.postgres.schema.text import quoted
from pellucid.postgres.session import Lost, Rows, Session
from pellucid.postgres.url import parse

CODECS = ("pickle", "json", "jsonb")
FIRST_COUNT = 100
PAGE_COUNT_MAX = 2000
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
# The types of key columns: what such keys are in Python, and as what PostgreSQL gets them.
KINDS: dict[str, tuple[tuple[type, ...], str]] = {
    "int2": ((int,), "bigint"),
    "int4": ((int,), "bigint"),
    "int8": ((int,), "bigint"),
    "numeric": ((int, decimal.Decimal), "numeric"),
    "text": ((str,), "text"),
    "varchar": ((str,), "text"),
    "bytea": ((bytes,), "bytea"),
    "uuid": ((uuid.UUID,), "uuid"),
    "date": ((datetime.date,), "date"),
    "timestamp": ((datetime.datetime,), "timestamp"),
    "timestamptz": ((datetime.datetime,), "timestamptz"),
}
VALUE_KINDS = {"pickle": ("bytea",), "json": ("json", "jsonb", "text", "varchar"), "jsonb": ("jsonb", "json")}
# `$1` is the number of a relation: its columns with their types; the columns of its unique indexes.
COLUMNS = b"""
SELECT a.attname::text, t.typname::text FROM pg_attribute AS a JOIN pg_type AS t ON t.oid = a.atttypid
WHERE a.attrelid = $1::bigint::oid AND a.attnum > 0 AND NOT a.attisdropped
"""
UNIQUE = b"""
SELECT array_agg(a.attname::text), bool_and(a.attnotnull) FROM pg_index AS i JOIN pg_attribute AS a
ON a.attrelid = i.indrelid AND a.attnum = ANY(i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = $1::bigint::oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL
AND i.indexprs IS NULL GROUP BY i.indexrelid
"""
PASSES_MAX = 20
# What bytes that are no pickle, and text that is no JSON, make their readers raise.
DAMAGES = (
    ValueError,
    EOFError,
    LookupError,
    TypeError,
    AttributeError,
    ImportError,
    RecursionError,
    struct.error,
)
MISSING = object()


def adopt(
    table: str,
    *,
    database: Database | str,
    key: str | Sequence[str],
    value: str,
    codec: str = "pickle",
    pickle: Any = None,
    timeout: float = 10.0,
) -> Adopted:
    """Open an existing table of pickles or JSON as a read-only table.

    `table` is its name, or "schema.name". `database` is the URL of its server, or an open database there.
    `key` is the column of the key, or a list of columns, which become a tuple; they need a primary key or a
    unique index. `value` is the column of the values, and `codec` what they are: "pickle" in bytea, "json" in
    text or json, or "jsonb". `pickle` says which globals the pickles may use beyond plain values: "allow", or
    a list. Raises `ValueError` for a table that has not these columns.
    """
    if codec not in CODECS:
        raise ValueError(f"codec={codec!r} is unknown; use 'pickle', 'json' or 'jsonb'")
    if isinstance(database, str):
        place = parse(database, timeout)
        connections = Pool(place, timeout, settings.of_connection(place, "c", "process", timeout))
    else:
        database._connection.check_open()
        connections = database._connection.pool
    names = (key,) if isinstance(key, str) else tuple(key)
    if pickle is not None and pickle not in ("deny", "allow"):
        pickle = tuple(pickle)
        pickles.check_globals(pickle)
    try:
        return Adopted(connections, table, names, value, codec, pickle, is_own=isinstance(database, str))
    except BaseException:
        if isinstance(database, str):
            connections.close()
        raise


class Adopted(collections.abc.Mapping[Any, Any]):
    """A table of another program, as a read-only mapping; `adopt` makes it.

    Values that are dicts and lists are records, which cannot be changed.
    """

    def __init__(
        self,
        connections: Pool,
        table: str,
        key: tuple[str, ...],
        value: str,
        codec: str,
        pickle: Any,
        *,
        is_own: bool,
    ) -> None:
        self.name = table
        self._connections = connections
        self._is_own = is_own
        self._codec = codec
        self._policy = () if pickle in (None, "deny") else pickle
        with connections.session() as session:
            self._rows, kinds = self._described(session, table, (*key, value))
            self._check_unique(session, key)
        *key_kinds, value_kind = kinds
        for column, kind in zip(key, key_kinds, strict=True):
            if kind not in KINDS:
                raise ValueError(f"column {column!r} of {table!r} is {kind}; keys are {', '.join(KINDS)}")
        if value_kind not in VALUE_KINDS[codec]:
            wanted = " or ".join(VALUE_KINDS[codec])
            raise ValueError(f"column {value!r} of {table!r} is {value_kind}; codec={codec!r} reads {wanted}")
        self._kinds = key_kinds
        self._value = quoted(value).decode() + ("" if codec == "pickle" else "::text")
        self._columns = [
            quoted(name).decode() + (' COLLATE "C"' if kind in ("text", "varchar") else "")
            for name, kind in zip(key, key_kinds, strict=True)
        ]
        # Without the collation, the index of the column finds a key.
        self._plain = [quoted(name).decode() for name in key]

    def _described(self, session: Session, table: str, columns: tuple[str, ...]) -> tuple[str, list[str]]:
        name = quoted(*table.split(".", 1)).decode()
        found = session.rows(b"SELECT to_regclass($1)::oid::bigint", [name])
        if found[0][0] is None:
            raise ValueError(f"{session.place.shown} has no table {table!r} that this role can see")
        self._oid = int(found[0][0])
        kinds: dict[str, str] = dict(session.rows(COLUMNS, [self._oid]))
        for column in columns:
            if column not in kinds:
                raise ValueError(f"table {table!r} has no column {column!r}; it has {', '.join(kinds)}")
        return name, [kinds[column] for column in columns]

    def _check_unique(self, session: Session, key: tuple[str, ...]) -> None:
        found = session.rows(UNIQUE, [self._oid])
        if not any(set(names) == set(key) and is_filled for names, is_filled in found):
            raise ValueError(
                f"table {self.name!r} has no primary key or unique index over {', '.join(key)} without NULL, "
                "so a key could mean several rows"
            )

    def __repr__(self) -> str:
        return f"<pellucid.postgres.Adopted {self.name!r} of {self._connections.place.shown}, {self._codec}>"

    def __enter__(self) -> Adopted:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connections that `adopt` has made; those of a database stay."""
        if self._is_own:
            self._connections.close()

    # Reading

    def __len__(self) -> int:
        return int(self._read(f"SELECT count(*) FROM {self._rows}")[0][0])

    def __contains__(self, key: object) -> bool:
        given = self._given(key)
        return given is not None and bool(self._read(f"SELECT FROM {self._rows}{self._equal()}", given))

    def __getitem__(self, key: Any) -> Any:
        return shown(self._object(key))

    def _object(self, key: Any) -> Any:
        given = self._given(key)
        text = f"SELECT {self._value} FROM {self._rows}{self._equal()}"
        found = self._read(text, given) if given is not None else []
        if not found:
            raise KeyError(key)
        return self._decoded(found[0][0], key)

    def __iter__(self) -> Iterator[Any]:
        for key, _ in self._walk(None, None, False, with_values=False):
            yield key

    def items(  # type: ignore[override]
        self, *, start: Any = None, stop: Any = None, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Return the keys and values in a range, in the order of the keys."""
        self._check_bounds(start, stop)
        return ((key, shown(value)) for key, value in self._walk(start, stop, reverse))

    def keys(  # type: ignore[override]
        self, *, start: Any = None, stop: Any = None, reverse: bool = False
    ) -> Iterator[Any]:
        """Return the keys in a range, in order."""
        self._check_bounds(start, stop)
        return (key for key, _ in self._walk(start, stop, reverse, with_values=False))

    def values(  # type: ignore[override]
        self, *, start: Any = None, stop: Any = None, reverse: bool = False
    ) -> Iterator[Any]:
        """Return the values in a range, in the order of their keys."""
        return (value for _, value in self.items(start=start, stop=stop, reverse=reverse))

    def range(self, start: Any = None, stop: Any = None, *, reverse: bool = False) -> Iterator[Any]:
        """Return the values between two keys, in the order of the keys."""
        return self.values(start=start, stop=stop, reverse=reverse)

    def filter(self, function: Callable[[Any], object]) -> Iterator[Any]:
        """Return the values for which a Python function returns something true; it reads all rows."""
        return (value for value in self.values() if function(value))

    def where(self, *conditions: Any) -> Iterator[Any]:
        """Return the values of which all these conditions are true; it reads all rows."""
        return self._scanned(lambda rows: rows.where(*conditions))

    def find(self, **fields: Any) -> Iterator[Any]:
        """Return the values whose fields equal these; it reads all rows."""
        return self._scanned(lambda rows: rows.find(**fields))

    def _scanned(self, query: Callable[[Any], Any]) -> Iterator[Any]:
        rows = self._walk(None, None, False)
        with pellucid.open(":memory:", pickle="allow") as scratch:
            while page := list(itertools.islice(rows, PAGE_COUNT_MAX)):
                objects = dict(page)
                scratch.clear()
                scratch.update(objects)
                for row in query(scratch).select(key=pellucid.KEY):
                    yield shown(objects[row["key"]])

    # What is asked of the server

    def _read(self, text: str, given: Sequence[Any] = ()) -> Rows:
        for attempt in range(2):
            session = self._connections.take()
            try:
                return self._answered(session, text, given)
            except Lost as lost:
                if attempt:
                    raise errors.of_lost(lost.args[0], session.place, was_sent=False) from lost.args[0]
            finally:
                self._connections.give(session)
        raise AssertionError

    def _answered(self, session: Session, text: str, given: Sequence[Any] = ()) -> Rows:
        try:
            return session.rows(text.encode(), given)
        except errors.LayoutChanged as error:
            raise DatabaseError(f"table {self.name!r} was dropped or changed meanwhile: {error}") from error

    def _places(self, first: int) -> list[str]:
        return [f"${number}::{KINDS[kind][1]}" for number, kind in enumerate(self._kinds, first)]

    def _equal(self) -> str:
        pairs = zip(self._plain, self._places(1), strict=True)
        return " WHERE " + " AND ".join(f"{column} = {place}" for column, place in pairs)

    def _given(self, key: Any) -> list[Any] | None:
        """Return the parameters for a key; None for one that cannot be in the table."""
        parts = (key,) if len(self._kinds) == 1 else key
        if not isinstance(parts, tuple) or len(parts) != len(self._kinds):
            return None
        pairs = zip(parts, self._kinds, strict=True)
        return list(parts) if all(may_be(part, kind) for part, kind in pairs) else None

    def _check_bounds(self, *bounds: Any) -> None:
        for bound in bounds:
            if bound is not None and self._given(bound) is None:
                raise TypeError(f"{bound!r} cannot be compared with the keys of {self.name!r}: {self._kinds}")

    def _walk(
        self,
        start: Any,
        stop: Any,
        reverse: bool,
        *,
        with_values: bool = True,
        session: Session | None = None,
    ) -> Iterator[tuple[Any, Any]]:
        """Yield keys and values in order, of one state of the table."""
        text, given = self._scan(start, stop, reverse, with_values)
        own = self._connections.take() if session is None else session
        try:
            if session is None:
                own.execute(BEGIN)
            own.execute(f"DECLARE pellucid NO SCROLL CURSOR FOR {text}".encode(), given)
            count = FIRST_COUNT
            while page := own.rows(b"FETCH %d FROM pellucid" % count):
                width = len(self._kinds)
                size = sum(len(row[width] or b"") for row in page)
                count = max(1, min(2 * count, PAGE_COUNT_MAX, PAGE_SIZE * len(page) // max(1, size)))
                for row in page:
                    key = row[0] if width == 1 else tuple(row[:width])
                    yield key, self._decoded(row[width], key) if with_values else None
            own.execute(b"CLOSE pellucid")
        except Lost as lost:
            raise errors.of_lost(lost.args[0], own.place, was_sent=False) from lost.args[0]
        finally:
            if session is None:
                try:
                    own.roll_back()
                finally:
                    self._connections.give(own)

    def _scan(self, start: Any, stop: Any, reverse: bool, with_values: bool) -> tuple[str, list[Any]]:
        given: list[Any] = []
        conditions = []
        for bound, sign in ((start, ">="), (stop, "<")):
            if bound is not None:
                places = ", ".join(self._places(len(given) + 1))
                conditions.append(f"({', '.join(self._columns)}) {sign} ({places})")
                given += self._given(bound) or []
        way = " DESC" if reverse else ""
        order = ", ".join(column + way for column in self._columns)
        where = " WHERE " + " AND ".join(conditions) if conditions else ""
        columns = ", ".join([*self._plain, self._value if with_values else "NULL"])
        return f"SELECT {columns} FROM {self._rows}{where} ORDER BY {order}", given

    def _decoded(self, stored: Any, key: Any) -> Any:
        if stored is None:
            return None
        try:
            if self._codec != "pickle":
                return json.loads(stored)
            return plain_pickles.decode_foreign(io.BytesIO(stored), self._policy)
        except Error as error:
            error.args = (f"table {self.name!r}, key {key!r}: {error}",)
            raise
        except DAMAGES as error:
            raise UnreadableValue(f"table {self.name!r}, key {key!r}: {error}") from error


def may_be(part: Any, kind: str) -> bool:
    """Return whether a value may be in a key column of this type."""
    wanted, _ = KINDS[kind]
    if isinstance(part, bool) or not isinstance(part, wanted):
        return False
    if isinstance(part, str):
        return "\0" not in part and not any("\ud800" <= character <= "\udfff" for character in part)
    if isinstance(part, int):
        return kind == "numeric" or INT64_MIN <= part <= INT64_MAX
    if isinstance(part, datetime.datetime):
        return kind != "date" and (part.tzinfo is not None) == (kind == "timestamptz")
    return True


def shown(value: Any) -> Any:
    """Return a value as a record, which cannot be changed; one that no record can hold, as it is."""
    if not isinstance(value, dict | list):
        return value
    try:
        return pellucid.view(pellucid.dumps(value))
    except UnsupportedValue:
        return value


def migrate(
    source: Adopted,
    target: Any,
    *,
    resume: bool = False,
    batch: int = 1000,
    drop: bool = False,
    progress: Callable[[int, int], object] | None = None,
) -> int:
    """Convert an adopted table to packed records in a table of pellucid, and return the number of rows.

    Other programs may go on writing into the adopted table: it is read again and compared with the target,
    row by row, until a whole pass has found no difference. So the target equals a state of the source.
    `batch` is the number of rows for a transaction. After an error or a kill, the same call with
    `resume=True` goes on, and stores only what differs. A target with rows raises `ValueError` otherwise.

    The adopted table stays as it is. With `drop=True` it is locked against writers for a last comparison,
    and dropped. `progress` is a function of (rows compared, rows). Raises `Busy` if rows change faster than
    they are converted.
    """
    if batch < 1:
        raise ValueError(f"batch= is a number of rows, and at least 1, not {batch}")
    if not resume and target:
        raise ValueError(
            f"table {target.name!r} has rows; pass resume=True to make them those of {source.name!r}, which "
            "deletes others"
        )
    work = _Migration(source, target, batch, progress)
    for _ in range(PASSES_MAX):
        if not work.one_pass(drop=False):
            break
    else:
        raise Busy(
            f"rows of {source.name!r} have changed during each of {PASSES_MAX} passes; end what writes them "
            "there, and call migrate() again with resume=True"
        )
    if drop:
        work.one_pass(drop=True)
    return work.count


class _Migration:
    """The passes of one migration."""

    def __init__(
        self, source: Adopted, target: Any, batch: int, progress: Callable[[int, int], object] | None
    ) -> None:
        self.source = source
        self.target = target
        self.batch = batch
        self.progress = progress
        self.count = 0

    def one_pass(self, *, drop: bool) -> int:
        """Compare all rows, and store those that differ; return how many did."""
        source = self.source
        session = source._connections.take()
        try:
            session.execute(b"BEGIN" if drop else BEGIN)
            rows = source._rows
            if drop:
                session.execute(f"LOCK TABLE {rows} IN ACCESS EXCLUSIVE MODE".encode())
            total = int(session.rows(f"SELECT count(*) FROM {rows}".encode())[0][0])
            changed = self._stored(session, total) + self._deleted(session, total)
            if drop:
                if changed:
                    # What was stored is compared once more before the only other copy goes.
                    changed = self._stored(session, total) + self._deleted(session, total)
                if changed:
                    raise Busy(f"table {self.target.name!r} was changed by others during the last comparison")
                session.execute(f"DROP TABLE {rows}".encode())
                session.execute(b"COMMIT")
            return changed
        except Lost as lost:
            raise errors.of_lost(lost.args[0], session.place, was_sent=drop) from lost.args[0]
        except errors.LayoutChanged as error:
            raise DatabaseError(f"table {source.name!r} was dropped or changed meanwhile: {error}") from error
        finally:
            try:
                session.roll_back()
            finally:
                source._connections.give(session)

    def _stored(self, session: Session, total: int) -> int:
        """Store the rows that differ; return their number."""
        is_empty = not self.target
        changed = self.count = 0
        rows = self.source._walk(None, None, False, session=session)
        while page := list(itertools.islice(rows, self.batch)):
            differing = page if is_empty else [pair for pair in page if not self._has(*pair)]
            if differing:
                self.target.update(differing)
            changed += len(differing)
            self.count += len(page)
            if self.progress is not None:
                self.progress(self.count, total)
        return changed

    def _has(self, key: Any, value: Any) -> bool:
        stored = self.target.get(key, MISSING)
        if stored is MISSING:
            return False
        return pellucid.dumps(stored, pickle="allow") == pellucid.dumps(value, pickle="allow")

    def _deleted(self, session: Session, total: int) -> int:
        """Delete the rows that the source has no more; return their number."""
        if len(self.target) == total:
            return 0
        source = self.source
        text = f"SELECT FROM {source._rows}{source._equal()}"
        gone = []
        for key in self.target:
            given = source._given(key)
            if given is None or not session.rows(text.encode(), given):
                gone.append(key)
        for key in gone:
            self.target.pop(key, None)
        return len(gone)
