"""The indexes of a table on a server, and the handle that finds rows by one of them."""

from __future__ import annotations

import functools
import itertools
import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pellucid._native import IndexInfo as Description
from pellucid._native import (
    ServerIndexCodes,
    server_index_definition,
    server_index_error,
    server_keys,
)
from pellucid.errors import CorruptRecord, Error
from pellucid.postgres.protocols import IndexEntries, Tables
from pellucid.postgres.query.reader import ServerReader
from pellucid.postgres.query.scan import ALL, Range
from pellucid.postgres.query.sql import Column, Where
from pellucid.postgres.schema import keys
from pellucid.postgres.schema.layout import IndexInfo
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.session import Rows, Statement
from pellucid.postgres.table.build_index import Builder, Progress
from pellucid.postgres.table.index_entries import key_of
from pellucid.postgres.table.records import Records

if TYPE_CHECKING:
    from pellucid.postgres.table.table import Table

NAME_SIZE_MAX = 255
CODES_KEPT = 256


class Indexes:
    """The indexes of one table."""

    def __init__(self, tables: Tables, records: Records, entries: IndexEntries) -> None:
        self._tables = tables
        self._records = records
        self._binding = records.binding
        self._entries = entries

    def _builder(self, name: str) -> Builder:
        return Builder(self._tables, self._records, self._entries, name)

    def create(self, name: Any, parts: Any, unique: Any, where: Any, progress: Progress | None) -> None:
        """Create an index."""
        if not isinstance(unique, bool):
            raise TypeError(f"unique= is True or False, not {type(unique).__name__}")
        checked_progress(progress)
        name, definition = server_index_definition(name, parts, where)
        checked_name(name)
        self._records.connection.check_writable()
        self._builder(name).build(definition, unique, progress)

    def drop(self, name: str) -> None:
        """Remove an index."""
        self._records.connection.check_writable()
        self._builder(checked_name(name)).drop()

    def rebuild(self, name: str, progress: Progress | None) -> None:
        """Make all entries of an index anew from the rows."""
        self._records.connection.check_writable()
        self._builder(checked_name(name)).rebuild(checked_progress(progress))

    def described(self) -> list[Description]:
        """Return the indexes by name, each as an `IndexInfo`."""
        sql = self._binding.fresh()
        found = sorted(sql.layout.indexes, key=lambda index: index.name) if sql is not None else []
        return [self._description(index) for index in found]

    def _description(self, index: IndexInfo) -> Description:
        rows = self._binding.ask(lambda sql: (sql.count_entries(index), ()))
        codes = ServerIndexCodes(index.name, index.definition)
        return codes.described(index.is_unique, index.state != "ready", rows[0][0] if rows else 0)

    def named(self, table: Table, name: str) -> Index:
        """Return the index of this name; raises `NoSuchIndex` if there is none."""
        index = Index(table, self._records, self._entries, checked_name(name))
        index.info()
        return index


def codes_of(info: IndexInfo) -> ServerIndexCodes:
    """Return what makes the codes of an index."""
    return _codes_of(info.name, info.definition)


@functools.lru_cache(CODES_KEPT)
def _codes_of(name: str, definition: str) -> ServerIndexCodes:
    return ServerIndexCodes(name, definition)


def checked_name(name: Any) -> str:
    """Return the name of an index. Raises `TypeError` and `ValueError` for what cannot be one."""
    if not isinstance(name, str):
        raise TypeError(f"name has to be a str, the name of an index, not {type(name).__name__}")
    size = len(name.encode("utf-8", "surrogatepass"))
    if not 1 <= size <= NAME_SIZE_MAX:
        raise ValueError(
            f"the name of an index has 1 to {NAME_SIZE_MAX} bytes, and this one has {size} bytes"
        )
    return name


def checked_progress(progress: Any) -> Progress | None:
    """Return the function that is told of progress. Raises `TypeError` for what cannot be called."""
    if progress is not None and not callable(progress):
        kind = type(progress).__name__
        raise TypeError(f"progress has to be a function of (rows done, rows), not {kind}")
    return progress  # type: ignore[no-any-return]


def in_quotes(name: str) -> str:
    """Return a name in double quotes."""
    return json.dumps(name, ensure_ascii=False)


class Index:
    """An index of a table on a server: rows by what is in them, with the verbs of `pellucid.Index`."""

    def __init__(self, table: Table, records: Records, entries: IndexEntries, name: str) -> None:
        self._table = table
        self._records = records
        self._binding = records.binding
        self._entries = entries
        self._name = name

    @property
    def name(self) -> str:
        """The index's name."""
        return self._name

    @property
    def table(self) -> Table:
        """The table that the index belongs to."""
        return self._table

    def __repr__(self) -> str:
        try:
            info = self.info()
        except Error as error:
            return f"<pellucid.Index, {type(error).__name__}>"
        unique = "unique, " if info.is_unique else ""
        whose = f"{in_quotes(self._name)} of table {in_quotes(self._binding.name)}"
        return f"<pellucid.Index {whose}, {unique}over {info.definition}>"

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        info = self._ready()[0]
        rows = self._binding.ask(lambda sql: (sql.count_entries(info), ()))
        return int(rows[0][0]) if rows else 0

    def __getitem__(self, value: Any) -> Any:
        raise TypeError(
            f"index {self._name!r} gives no rows by []: several may have one value; get({value!r}) is "
            f"the first of them, or None, get_all({value!r}) all"
        )

    def get(self, value: Any, default: Any = None, /) -> Any:
        """Return the first row with this value, in the order of the index; `default` if there is none."""
        codes = [keys.stored(code) for code in self._equal(value)[1]]
        if not codes:
            return default

        def ask(sql: Statements) -> Statement:
            info = next((index for index in sql.layout.indexes if index.name == self._name), None)
            return sql.first_entered(info or self._missing(), len(codes)), codes

        page = self._binding.ask_one_state(ask)
        if not page:
            return default
        self._records.learn(page)
        return self._records.values(page, self._records.validity())[0]

    def get_all(self, value: Any, /, *, reverse: bool = False) -> Iterator[Any]:
        """Return all rows with this value, in the order of their keys."""
        return self._rows(self._equal(value), reverse=_flag(reverse), is_by_key=True)

    def __contains__(self, value: Any) -> bool:
        return self.count(value) > 0

    def count(self, value: Any) -> int:
        """Return how many rows have this value."""
        return self._counted(self._equal(value))

    def range(self, start: Any = None, stop: Any = None, *, reverse: bool = False) -> Iterator[Any]:
        """Return the rows from `start` up to `stop`, which is excluded, in the order of the index."""
        return self._rows(self._between(start, stop), reverse=_flag(reverse))

    def prefix(self, prefix: Any, *, reverse: bool = False) -> Iterator[Any]:
        """Return the rows whose text begins with a prefix, or those with these first parts."""
        _, codes = self._ready()
        return self._rows(("ranges", Range(*codes.prefix(prefix))), reverse=_flag(reverse))

    def values(self, *, reverse: bool = False) -> Iterator[Any]:
        """Return all rows with an entry, in the order of the index."""
        return self._rows(("ranges", ALL), reverse=_flag(reverse))

    def first(self) -> Any:
        """Return the first row in the order of the index; None if the index is empty."""
        return next(iter(self._rows(("ranges", ALL), limit=1)), None)

    def last(self) -> Any:
        """Return the last row in the order of the index; None if the index is empty."""
        return next(iter(self._rows(("ranges", ALL), limit=1, reverse=True)), None)

    def keys(
        self, start: Any = None, stop: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Return pairs of value and row key, without reading rows."""
        info, codes = self._ready()
        asked = self._between(start, stop)
        reader = self._reader()
        arranged = Arranged(self._entries, reader, info, asked, _flag(reverse), is_by_key=False)
        reader.entries(self._entries_statement(reader, info, asked, reverse))
        return self._pairs(arranged, codes)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self.keys()

    # What is asked of the server

    def info(self) -> IndexInfo:
        """Return what the catalog says of the index. Raises `NoSuchIndex` if there is none of its name."""
        found = self._binding.index(self._name)
        if found is not None:
            return found
        sql = self._binding.statements()
        others = sorted(index.name for index in sql.layout.indexes) if sql is not None else []
        raise server_index_error("missing", self._binding.name, self._name, others)

    def _ready(self) -> tuple[IndexInfo, ServerIndexCodes]:
        info = self.info()
        if info.state != "ready":
            info = next(
                (
                    index
                    for index in (self._binding.fresh() or self._missing()).layout.indexes
                    if index.name == self._name
                ),
                info,
            )
        if info.state != "ready":
            raise server_index_error("building", self._binding.name, self._name, [])
        return info, codes_of(info)

    def _missing(self) -> Any:
        raise server_index_error("missing", self._binding.name, self._name, [])

    def _equal(self, value: Any) -> tuple[str, Any]:
        return "points", list(self._ready()[1].codes_of(value))

    def _between(self, start: Any, stop: Any) -> tuple[str, Any]:
        _, codes = self._ready()
        for bound in (start, stop):
            self._refuse_one_part(codes, bound)
        return "ranges", Range(*codes.between(start, stop))

    def _refuse_one_part(self, codes: ServerIndexCodes, asked: Any) -> None:
        """Refuse a tuple of one value where the index has one part and no value is a tuple."""
        if not isinstance(asked, tuple) or len(asked) != 1 or codes.part_count != 1:
            return
        if self.count(asked[0]) and not self._counted(("ranges", Range(*codes.prefix(())))):
            behind = "" if asked[0] is None else f", range({asked[0]!r}) those from there on"
            raise TypeError(
                f"index {self._name!r} has one part, and no value that is a tuple; get_all({asked[0]!r}) "
                f"gives all rows that have {asked[0]!r}{behind}"
            )

    def _reader(self) -> ServerReader:
        sql = self._binding.statements()
        return ServerReader(self._records, sql) if sql is not None else self._missing()

    def _predicate(self, reader: ServerReader, info: IndexInfo, asked: tuple[str, Any]) -> tuple[Any, ...]:
        place = next((place for place, own in enumerate(reader.ready_indexes) if own.id == info.id), None)
        if place is None:
            self._missing()
        word, codes = asked
        return (word, place, codes) if word == "points" else (word, place, [(codes.low, codes.high)], 0)

    def _counted(self, asked: tuple[str, Any]) -> int:
        if asked[0] == "points" and not asked[1]:
            return 0
        if asked[0] == "ranges" and asked[1].is_long:
            return sum(1 for _ in self._rows(asked))
        while True:
            info, _ = self._ready()
            reader = self._reader()
            try:
                return reader.count([self._predicate(reader, info, asked)], None)
            except Exception as error:
                reader.recover(error)

    def _rows(
        self,
        asked: tuple[str, Any],
        *,
        limit: int | None = None,
        reverse: bool = False,
        is_by_key: bool = False,
    ) -> Iterator[Any]:
        if asked[0] == "points" and not asked[1]:
            return iter(())
        while True:
            info, _ = self._ready()
            reader = self._reader()
            arranged = Arranged(self._entries, reader, info, asked, reverse, is_by_key)
            try:
                reader.entries(self._rows_statement(reader, info, asked, limit, reverse, is_by_key), limit)
                if limit is None or not arranged.has_long(reader.first_page):
                    return self._shown(arranged)
                # The server has chosen by codes that are too long to be in order.
                return itertools.islice(self._rows(asked, reverse=reverse, is_by_key=is_by_key), limit)
            except Exception as error:
                reader.recover(error)

    def _rows_statement(
        self,
        reader: ServerReader,
        info: IndexInfo,
        asked: tuple[str, Any],
        limit: int | None,
        reverse: bool,
        is_by_key: bool,
    ) -> tuple[bytes, list[Any]]:
        rows = reader.sql.rows.decode()
        where = Where([Column(info.id)])
        test = _test(where, info, asked)
        way = " DESC" if reverse else ""
        code = "e.p" if info.has_each else f"i{info.id}"
        order = f" ORDER BY t.k{way}" if is_by_key else f" ORDER BY {code}{way}, t.k{way}"
        source = f"{rows} AS t"
        if info.has_each:
            source += f" JOIN {reader.sql.entries(info).decode()} AS e ON e.k = t.k"
        part = "" if limit is None else f" LIMIT {limit:d}"
        text = f"SELECT t.k, t.s, t.v, t.ver, {code} FROM {source} WHERE {test}{order}{part}"
        return text.encode(), where.given

    def _entries_statement(
        self, reader: ServerReader, info: IndexInfo, asked: tuple[str, Any], reverse: bool
    ) -> tuple[bytes, list[Any]]:
        rows = reader.sql.rows.decode()
        where = Where([Column(info.id)])
        test = _test(where, info, asked)
        way = " DESC" if reverse else ""
        code, spelling = ("e.p", "e.s") if info.has_each else (f"i{info.id}", f"s{info.id}")
        source = f"{rows} AS t"
        if info.has_each:
            source += f" JOIN {reader.sql.entries(info).decode()} AS e ON e.k = t.k"
        # The columns of an entry stand where those of a row do; its own are after them. A code that is
        # stored shortened is derived from its row again.
        value = f"CASE WHEN octet_length({code}) = {keys.LONG_SIZE} THEN t.v ELSE '\\x00000000'::bytea END"
        columns = f"t.k, t.s, {value}, 0::bigint, {code}, {spelling}"
        text = f"SELECT {columns} FROM {source} WHERE {test} ORDER BY {code}{way}, t.k{way}"
        return text.encode(), where.given

    def _shown(self, arranged: Arranged) -> Iterator[Any]:
        validity = self._records.validity()
        for page in arranged.pages():
            for value in self._records.values(page, validity):
                yield value
                arranged.reader.check()

    def _pairs(self, arranged: Arranged, codes: ServerIndexCodes) -> Iterator[tuple[Any, Any]]:
        for page in arranged.pages():
            for row, key in zip(page, server_keys(page), strict=True):
                yield codes.value(arranged.code(row), row[5]), key
                arranged.reader.check()


class Arranged:
    """The rows that a statement gives, in the order of the index: long codes are stored shortened.

    The server has those with the same beginning next to each other, in the order of their hashes, and lets in
    what begins as a long bound does. A row has the stored code as its fifth column.
    """

    def __init__(
        self,
        entries: IndexEntries,
        reader: ServerReader,
        info: IndexInfo,
        asked: tuple[str, Any],
        reverse: bool,
        is_by_key: bool,
    ) -> None:
        self._entries = entries
        self.reader = reader
        self._place = next(n for n, own in enumerate(reader.sql.layout.indexes) if own.id == info.id)
        self._within = asked[1] if asked[0] == "ranges" else ALL
        self._reverse = reverse
        self._is_by_key = is_by_key

    def pages(self) -> Iterator[Rows]:
        """Yield the rows in pages."""
        held: Rows = []
        while (page := self.reader.page()) is not None or held:
            rows, held = held + (page or []), []
            if self.has_long(rows):
                runs = [list(run) for _, run in itertools.groupby(rows, self._run)]
                # The last run may go on in the next page.
                held = runs.pop() if page is not None else []
                rows = [row for run in runs for row in self._sorted(run)]
            if self._within.is_long:
                rows = [row for row in rows if self._within.holds(self.code(row))]
            yield rows

    def has_long(self, rows: Rows) -> bool:
        """Return whether the key or the code of a row is stored shortened."""
        return any(keys.is_long(row[0]) or keys.is_long(row[4]) for row in rows)

    def code(self, row: tuple[Any, ...]) -> bytes:
        """Return the whole code of an entry; of a row that is damaged, what is stored."""
        code: bytes = row[4]
        if not keys.is_long(code):
            return code
        try:
            entries = self._entries.of_row(self.reader.sql, key_of(row[0], row[1]), row[2])
        except CorruptRecord:
            return code
        return next((own for own, _ in entries[self._place] if keys.stored(own) == code), code)

    def _run(self, row: tuple[Any, ...]) -> tuple[bytes, bytes]:
        """Return what the rows have in common that may not be in order."""
        beginning = row[0][: keys.SHORT_SIZE_MAX]
        if self._is_by_key:
            return b"", beginning
        return (row[4][: keys.SHORT_SIZE_MAX], b"") if keys.is_long(row[4]) else (row[4], beginning)

    def _sorted(self, run: Rows) -> Rows:
        def order(row: tuple[Any, ...]) -> tuple[bytes, bytes]:
            return b"" if self._is_by_key else self.code(row), self.reader.whole_key(row)

        return sorted(run, key=order, reverse=self._reverse) if len(run) > 1 else run


def _test(where: Where, info: IndexInfo, asked: tuple[str, Any]) -> str:
    """Return the condition on the entries that were asked for."""
    code = "e.p" if info.has_each else f"i{info.id}"
    word, codes = asked
    if word == "points":
        return where.equal(code, codes)
    return where.between(code, codes.low, codes.high)


def _flag(reverse: Any) -> bool:
    if not isinstance(reverse, bool):
        raise TypeError(f"reverse= is True or False, not {type(reverse).__name__}")
    return reverse
