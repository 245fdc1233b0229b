"""The indexes of a table on a server, and the handle that finds rows by one of them."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from typing import Any

from pellucid._native import (
    IndexInfo as Description,
)
from pellucid._native import (
    ServerIndexCodes,
    server_index_definition,
    server_index_error,
)
from pellucid.errors import Error
from pellucid.postgres.query.reader import Reading
from pellucid.postgres.query.sql import Column, Where
from pellucid.postgres.query.verbs import Querying
from pellucid.postgres.schema.layout import IndexInfo
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.session import Statement
from pellucid.postgres.table import keys
from pellucid.postgres.table.build_index import Builder, Progress
from pellucid.postgres.table.index_entries import whole
from pellucid.postgres.table.rows import Saving

NAME_SIZE_MAX = 255
CODES_KEPT = 256


class Indexed:
    """The verbs of indexes, for a table and for a database."""

    def _table(self) -> Any:
        raise NotImplementedError

    def create_index(
        self,
        name: str,
        parts: Any,
        *,
        unique: bool = False,
        where: Any = None,
        progress: Progress | None = None,
    ) -> None:
        """Create an index over expressions; other clients go on writing meanwhile."""
        self._table()._create_index(name, parts, unique, where, progress)

    def drop_index(self, name: str) -> None:
        """Remove an index; raises `NoSuchIndex` if there is none of this name."""
        table = self._table()
        table._check_writable()
        Builder(table, checked_name(name)).drop()

    def rebuild_index(self, name: str, *, progress: Progress | None = None) -> None:
        """Make all entries of an index anew from the rows."""
        table = self._table()
        table._check_writable()
        Builder(table, checked_name(name)).rebuild(checked_progress(progress))

    def indexes(self) -> list[Description]:
        """Return the indexes by name, each as an `IndexInfo`."""
        table = self._table()
        sql = table._fresh()
        found = sorted(sql.layout.indexes, key=lambda index: index.name) if sql is not None else []
        return [table._described(index) for index in found]

    def index(self, name: str) -> Index:
        """Return the index of this name; raises `NoSuchIndex` if there is none."""
        table = self._table()
        table._index_named(checked_name(name))
        return Index(table, name)


class Indexing(Querying, Saving):
    """What a table does with indexes."""

    def _create_index(
        self, name: Any, parts: Any, unique: Any, where: Any, progress: Progress | None
    ) -> None:
        if not isinstance(unique, bool):
            raise TypeError(f"unique= is True or False, not {type(unique).__name__}")
        checked_progress(progress)
        name, definition = server_index_definition(name, parts, where)
        checked_name(name)
        self._check_writable()
        Builder(self, name).build(definition, unique, progress)

    def _described(self, index: IndexInfo) -> Description:
        rows = self._ask(lambda sql: (sql.count_entries(index), ()))
        codes = ServerIndexCodes(index.name, index.definition)
        return codes.described(index.is_unique, index.state != "ready", rows[0][0] if rows else 0)

    def _fresh(self) -> Statements | None:
        """Return the statements for the layout as it is now."""
        sql = self._statements()
        source = self._source
        if sql is None or source._running() is not None or source._is_snapshot:
            return sql
        source._layout_anew(sql.layout.id)
        return self._statements()

    def _index_named(self, name: str) -> IndexInfo:
        sql = self._statements()
        for _ in range(2):
            for index in sql.layout.indexes if sql is not None else ():
                if index.name == name:
                    return index
            sql = self._fresh()
        others = sorted(index.name for index in sql.layout.indexes) if sql is not None else []
        raise server_index_error("missing", self.name, name, others)


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


def named(name: str) -> str:
    """Return a name in double quotes."""
    return json.dumps(name, ensure_ascii=False)


class Index:
    """An index of a table on a server: rows by what is in them, with the verbs of `pellucid.Index`."""

    def __init__(self, table: Indexing, name: str) -> None:
        self._table = table
        self._name = name

    @property
    def name(self) -> str:
        """The index's name."""
        return self._name

    @property
    def table(self) -> Indexing:
        """The table that the index belongs to."""
        return self._table

    def __repr__(self) -> str:
        try:
            info = self._table._index_named(self._name)
        except Error as error:
            return f"<pellucid.Index, {type(error).__name__}>"
        unique = "unique, " if info.is_unique else ""
        whose = f"{named(self._name)} of table {named(self._table.name)}"
        return f"<pellucid.Index {whose}, {unique}over {info.definition}>"

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        info = self._ready()[0]
        rows = self._table._ask(lambda sql: (sql.count_entries(info), ()))
        return int(rows[0][0]) if rows else 0

    def __getitem__(self, value: Any) -> Any:
        raise TypeError(
            f"index {self._name!r} gives no rows by []: several may have one value; get({value!r}) is "
            f"the first of them, or None, get_all({value!r}) all"
        )

    def get(self, value: Any, default: Any = None, /) -> Any:
        """Return the first row with this value, in the order of the index; `default` if there is none."""
        table = self._table
        codes = [keys.stored(code) for code in self._equal(value)[1]]
        if not codes:
            return default

        def ask(sql: Statements) -> Statement:
            table._check_one_state(sql)
            info = next((index for index in sql.layout.indexes if index.name == self._name), None)
            return sql.first_entered(info or self._missing(), len(codes)), codes

        page = table._ask(ask)
        if not page:
            return default
        table._known(page)
        return table._values(page, table._source._gate())[0]

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
        return self._rows(("ranges", [codes.prefix(prefix)]), reverse=_flag(reverse))

    def values(self, *, reverse: bool = False) -> Iterator[Any]:
        """Return all rows with an entry, in the order of the index."""
        return self._rows(("ranges", [(None, None)]), reverse=_flag(reverse))

    def first(self) -> Any:
        """Return the first row in the order of the index; None if the index is empty."""
        return next(iter(self._rows(("ranges", [(None, None)]), limit=1)), None)

    def last(self) -> Any:
        """Return the last row in the order of the index; None if the index is empty."""
        return next(iter(self._rows(("ranges", [(None, None)]), limit=1, reverse=True)), None)

    def keys(
        self, start: Any = None, stop: Any = None, *, reverse: bool = False
    ) -> Iterator[tuple[Any, Any]]:
        """Return pairs of value and row key, without reading rows."""
        info, codes = self._ready()
        asked = self._between(start, stop)
        reading = self._reading()
        reading.entries(self._entries_statement(reading, info, asked, _flag(reverse)))
        return self._pairs(reading, codes)

    def __iter__(self) -> Iterator[tuple[Any, Any]]:
        return self.keys()

    # What is asked of the server

    def _ready(self) -> tuple[IndexInfo, ServerIndexCodes]:
        info = self._table._index_named(self._name)
        if info.state != "ready":
            info = next(
                (
                    index
                    for index in (self._table._fresh() or self._missing()).layout.indexes
                    if index.name == self._name
                ),
                info,
            )
        if info.state != "ready":
            raise server_index_error("building", self._table.name, self._name, [])
        return info, codes_of(info)

    def _missing(self) -> Any:
        raise server_index_error("missing", self._table.name, self._name, [])

    def _equal(self, value: Any) -> tuple[str, Any]:
        return "points", list(self._ready()[1].codes_of(value))

    def _between(self, start: Any, stop: Any) -> tuple[str, Any]:
        _, codes = self._ready()
        for bound in (start, stop):
            self._refuse_one_part(codes, bound)
        return "ranges", [codes.between(start, stop)]

    def _refuse_one_part(self, codes: ServerIndexCodes, asked: Any) -> None:
        """Refuse a tuple of one value where the index has one part and no value is a tuple."""
        if not isinstance(asked, tuple) or len(asked) != 1 or codes.part_count != 1:
            return
        if self.count(asked[0]) and not self._counted(("ranges", [codes.prefix(())])):
            behind = "" if asked[0] is None else f", range({asked[0]!r}) those from there on"
            raise TypeError(
                f"index {self._name!r} has one part, and no value that is a tuple; get_all({asked[0]!r}) "
                f"gives all rows that have {asked[0]!r}{behind}"
            )

    def _reading(self) -> Reading:
        reading = self._table._reading()
        return reading if reading is not None else self._missing()

    def _predicate(self, reading: Reading, info: IndexInfo, asked: tuple[str, Any]) -> tuple[Any, ...]:
        place = next((place for place, own in enumerate(reading._indexes) if own.id == info.id), None)
        if place is None:
            self._missing()
        word, codes = asked
        return (word, place, codes) if word == "points" else (word, place, codes, 0)

    def _counted(self, asked: tuple[str, Any]) -> int:
        if asked[0] == "points" and not asked[1]:
            return 0
        while True:
            info, _ = self._ready()
            reading = self._reading()
            try:
                return reading.count([self._predicate(reading, info, asked)], None)
            except Exception as error:
                reading.recover(error)

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
            reading = self._reading()
            try:
                reading.entries(self._rows_statement(reading, info, asked, limit, reverse, is_by_key), limit)
                return self._shown(reading)
            except Exception as error:
                reading.recover(error)

    def _rows_statement(
        self,
        reading: Reading,
        info: IndexInfo,
        asked: tuple[str, Any],
        limit: int | None,
        reverse: bool,
        is_by_key: bool,
    ) -> tuple[bytes, list[Any]]:
        rows = reading._sql.rows.decode()
        where = Where([Column(info.id)])
        test = _test(where, info, asked)
        way = " DESC" if reverse else ""
        code = "e.p" if info.has_each else f"i{info.id}"
        order = f" ORDER BY t.k{way}" if is_by_key else f" ORDER BY {code}{way}, t.k{way}"
        source = f"{rows} AS t"
        if info.has_each:
            source += f" JOIN {reading._sql.entries(info).decode()} AS e ON e.k = t.k"
        part = "" if limit is None else f" LIMIT {limit:d}"
        text = f"SELECT t.k, t.s, t.v, t.ver FROM {source} WHERE {test}{order}{part}"
        return text.encode(), where.given

    def _entries_statement(
        self, reading: Reading, info: IndexInfo, asked: tuple[str, Any], reverse: bool
    ) -> tuple[bytes, list[Any]]:
        rows = reading._sql.rows.decode()
        where = Where([Column(info.id)])
        test = _test(where, info, asked)
        way = " DESC" if reverse else ""
        code, spelling = ("e.p", "e.s") if info.has_each else (f"i{info.id}", f"s{info.id}")
        source = f"{rows} AS t"
        if info.has_each:
            source += f" JOIN {reading._sql.entries(info).decode()} AS e ON e.k = t.k"
        # The columns of an entry stand where those of a row do; its own are after them. A code that is
        # stored shortened is derived from its row again.
        value = f"CASE WHEN octet_length({code}) = {keys.LONG_SIZE} THEN t.v ELSE '\\x00000000'::bytea END"
        columns = f"t.k, t.s, {value}, 0::bigint, {code}, {spelling}"
        text = f"SELECT {columns} FROM {source} WHERE {test} ORDER BY {code}{way}, t.k{way}"
        return text.encode(), where.given

    def _shown(self, reading: Reading) -> Iterator[Any]:
        table = self._table
        gate = table._source._gate()
        while (page := reading.page()) is not None:
            for value in table._values(page, gate):
                yield value
                reading.check()

    def _pairs(self, reading: Reading, codes: ServerIndexCodes) -> Iterator[tuple[Any, Any]]:
        while (page := reading.page()) is not None:
            row_keys = self._table._keys([row[:4] for row in page])
            for row, key in zip(page, row_keys, strict=True):
                yield codes.value(self._whole_code(reading, row), row[5]), key
                reading.check()

    def _whole_code(self, reading: Reading, row: tuple[Any, ...]) -> bytes:
        """Return the code of an entry, which may be stored shortened."""
        code: bytes = row[4]
        if not keys.is_long(code):
            return code
        self._table._known([row[:4]])
        sql = reading._sql
        place = next(n for n, info in enumerate(sql.layout.indexes) if info.name == self.name)
        entries = self._table._entries_of(sql, whole(row[0], row[1]), row[2])[place]
        return next((own for own, _ in entries if keys.stored(own) == code), code)


def _test(where: Where, info: IndexInfo, asked: tuple[str, Any]) -> str:
    """Return the condition on the entries that were asked for."""
    code = "e.p" if info.has_each else f"i{info.id}"
    word, codes = asked
    return (
        where.equal(code, codes) if word == "points" else where.within(code, [_cut(edges) for edges in codes])
    )


def _cut(edges: tuple[bytes | None, bytes | None]) -> tuple[bytes | None, bytes | None]:
    """Return edges that stored codes can be compared with: those of long values let in what begins alike."""
    low, high = edges
    if low is not None:
        low = low[: keys.SHORT_SIZE_MAX]
    if high is not None and len(high) > keys.SHORT_SIZE_MAX:
        high = high[: keys.SHORT_SIZE_MAX] + keys.BEHIND
    return low, high


def _flag(reverse: Any) -> bool:
    if not isinstance(reverse, bool):
        raise TypeError(f"reverse= is True or False, not {type(reverse).__name__}")
    return reverse
