"""A table on a server: the verbs of a mapping, each one statement where that is possible."""

from __future__ import annotations

import collections.abc
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from pellucid.errors import Busy, CorruptRecord, Error, StaleTable
from pellucid.postgres.query.scan import ALL, Pages, Range, RowIterator
from pellucid.postgres.query.verbs import Finding
from pellucid.postgres.schema.statements import Statements, big_int
from pellucid.postgres.session import Rows, Statement
from pellucid.postgres.table import keys
from pellucid.postgres.table.append import Appending
from pellucid.postgres.table.binding import LAYOUT_ATTEMPTS
from pellucid.postgres.table.edit import EditContext
from pellucid.postgres.table.index import Indexed, Indexing
from pellucid.postgres.table.value_file import Reaching

NO_DEFAULT = object()
Row = tuple[Any, ...]


class Mapping(Finding, Indexed, Reaching, collections.abc.MutableMapping[Any, Any]):
    """The verbs of a table, for a table and for a database, which is a mapping over its table "default"."""

    def _table(self) -> Table:
        raise NotImplementedError

    def __len__(self) -> int:
        return self._table()._count(ALL)

    def __bool__(self) -> bool:
        return self._table()._has_rows()

    def __contains__(self, key: object) -> bool:
        table = self._table()
        code = table._code(key)
        if code is None:
            table._source._check_open()
            return False
        return bool(table._ask(lambda sql: (sql.has, (keys.stored(code),))))

    def __getitem__(self, key: Any) -> Any:
        found = self._table()._looked_up(key)
        if found is None:
            raise KeyError(key)
        return found[0]

    def get(self, key: Any, default: Any = None, /) -> Any:
        """Return the value of a key, or `default`."""
        found = self._table()._looked_up(key)
        return default if found is None else found[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._table()._put(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self._table()._removed(key):
            raise KeyError(key)

    def pop(self, key: Any, default: Any = NO_DEFAULT, /) -> Any:
        """Remove a key and return its value: plain objects, which are stored no more."""
        table = self._table()
        popped = table._popped(lambda: table._found_row(key))
        if popped is not None:
            return popped[1]
        if default is NO_DEFAULT:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[Any, Any]:
        """Remove the last key and return it with its value. Raises `KeyError` if there is none."""
        table = self._table()
        popped = table._popped(table._last_row)
        if popped is None:
            raise KeyError(f"popitem(): table {table.name!r} is empty")
        return popped

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        """Return the value of a key; where it has none, store `default` first."""
        return self._table()._added(key, default)

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Store the items of a mapping or of pairs, all or none."""
        self._table()._update(other, more)

    def clear(self) -> None:
        """Remove all rows, as one transaction."""
        self._table()._clear()

    def append(self, value: Any) -> int:
        """Store a value under the next number, and return that. A number is never given twice."""
        return self._table()._append(value)

    def extend(self, values: Iterable[Any]) -> int:
        """Store values under the next numbers, all or none, and return how many there were."""
        return self._table()._extend(values)

    def edit(self, key: Any) -> EditContext:
        """Return a context manager for many changes of one value, as one transaction."""
        return EditContext(self._table(), key)

    def __iter__(self) -> Iterator[Any]:
        return self._table()._iterate("keys", ALL, False)

    def __reversed__(self) -> Iterator[Any]:
        return self._table()._iterate("keys", ALL, True)

    def keys(self, *, start: Any = None, stop: Any = None, prefix: Any = None, reverse: bool = False) -> Any:
        """Return a live view of the keys in a range."""
        table = self._table()
        return table._view("keys", table._range(start, stop, prefix), reverse)

    def values(
        self, *, start: Any = None, stop: Any = None, prefix: Any = None, reverse: bool = False
    ) -> Any:
        """Return a live view of the values in a range."""
        table = self._table()
        return table._view("values", table._range(start, stop, prefix), reverse)

    def items(self, *, start: Any = None, stop: Any = None, prefix: Any = None, reverse: bool = False) -> Any:
        """Return a live view of the keys and values in a range."""
        table = self._table()
        return table._view("items", table._range(start, stop, prefix), reverse)

    def range(
        self, start: Any = None, stop: Any = None, *, prefix: Any = None, reverse: bool = False
    ) -> RowIterator:
        """Return the values between two keys, as they are now."""
        table = self._table()
        return table._iterate("values", table._range(start, stop, prefix), reverse)

    def first(self) -> tuple[Any, Any] | None:
        """Return the first key and its value; None if there is none."""
        return self._table()._end(last=False)

    def last(self) -> tuple[Any, Any] | None:
        """Return the last key and its value; None if there is none."""
        return self._table()._end(last=True)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Mapping) and self._table()._is_same_as(other._table()):
            return True
        if not isinstance(other, collections.abc.Mapping):
            return NotImplemented
        if len(other) != len(self):
            return False
        return all(key in other and other[key] == value for key, value in self.items())

    __hash__ = None  # type: ignore[assignment]

    def __or__(self, other: Any) -> dict[Any, Any]:
        if not isinstance(other, collections.abc.Mapping):
            return NotImplemented
        return {**self, **other}

    def __ror__(self, other: Any) -> dict[Any, Any]:
        if not isinstance(other, collections.abc.Mapping):
            return NotImplemented
        return {**other, **self}

    def __ior__(self, other: Any) -> Any:
        self.update(other)
        return self


class Table(Mapping, Appending, Indexing):
    """A table on a server, with the verbs of `pellucid.Table`."""

    def __repr__(self) -> str:
        try:
            count = len(self)
        except StaleTable:
            return f"<pellucid.Table {self.name!r}, dropped>"
        except Error as error:
            return f"<pellucid.Table {self.name!r}, {type(error).__name__}>"
        return f"<pellucid.Table {self.name!r}, {count} row{'' if count == 1 else 's'}>"

    def _table(self) -> Table:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("a table on a server is not pickled; open its database in the other process")

    @property
    def sql_name(self) -> str:
        """The name of the view that has key and value of each row as jsonb, for a statement of your own.

        The first write creates it. Raises `TypeError` if the table was not created with `queryable=True`.
        """
        sql = self._statements()
        if sql is None and self._making.is_queryable:
            sql = self._for_writing()
        if sql is None or not sql.layout.is_queryable:
            raise TypeError(
                f"table {self.name!r} has no JSON that other programs could read: create it with "
                f"db.table({self.name!r}, queryable=True)"
            )
        return sql.view.decode()

    def _is_same_as(self, other: Table) -> bool:
        return self._source is other._source and self.name == other.name

    def watch(
        self,
        *,
        start: Any = None,
        stop: Any = None,
        prefix: Any = None,
        since: int | None = None,
        timeout: float | None = None,
    ) -> Any:
        """Return the changes of this table, or of some of its keys, in order."""
        from pellucid.postgres.query.watch import Watch

        database: Any = self._source
        database._check_open()
        if database._is_snapshot:
            raise TypeError("a snapshot does not change; watch the database")
        return Watch(database, self, self._range(start, stop, prefix), since, timeout)

    # Reading

    def _pages(self) -> Iterator[Rows]:
        """Yield all rows, as they were when this began, in pages."""
        pages = Pages(self, ALL, False)
        yield pages.first()
        yield from pages

    def _corrupt(self, key: Any, fault: str) -> CorruptRecord:
        return CorruptRecord(f"the record of key {key!r} of table {self.name!r} is damaged: {fault}")

    def _get_within(self, key: Any, within: Range) -> tuple[Any] | None:
        code = self._code(key)
        if code is None or not within.holds(code):
            return None
        return self._looked_up(key)

    def _range(self, start: Any, stop: Any, prefix: Any) -> Range:
        if start is None and stop is None and prefix is None:
            return ALL
        return Range(*self._bounds(start, stop, prefix))

    def _count(self, within: Range) -> int:
        if within.is_long:
            return sum(1 for _ in self._iterate("keys", within, False))

        def count(sql: Statements) -> Statement:
            place = self._common_place(sql, within.low, within.high)
            self._check_one_state(sql, place)
            return sql.count_range(within.low, within.high, place) if within is not ALL else (sql.count, ())

        rows = self._ask(count)
        return int(rows[0][0]) if rows else 0

    def _iterate(self, shows: str, within: Range, reverse: bool) -> RowIterator:
        return RowIterator(self, shows, within, reverse)

    def _has_rows(self) -> bool:
        def ask(sql: Statements) -> Statement:
            self._check_one_state(sql)
            return sql.any, ()

        return bool(self._ask(ask))

    def _end(self, *, last: bool) -> tuple[Any, Any] | None:
        def ask(sql: Statements) -> Statement:
            self._check_one_state(sql)
            return sql.end(last=last), ()

        rows = self._ask(ask)
        if not rows:
            return None
        if self._known(rows):
            # Long keys with the same beginning are in the order of their hashes.
            found: tuple[Any, Any] | None = next(self._iterate("items", ALL, last), None)
            return found
        item: tuple[Any, Any] = self._items(rows, self._source._gate())[0]
        return item

    # Writing

    def _put(self, key: Any, value: Any) -> None:
        self._check_writable()
        code, spelling = self._key(key)
        data, large = self._encoded(key, value)
        self._note_own_key(code, spelling)
        self._store(code, spelling, data, large)

    def _added(self, key: Any, default: Any) -> Any:
        self._check_writable()
        code, spelling = self._key(key)
        found = self._looked_up(key)
        if found is not None:
            return found[0]
        data, large = self._encoded(key, default)
        k, s = keys.stored_with(code, spelling)
        big = True if large else None
        for _ in range(LAYOUT_ATTEMPTS):
            made = self._change(
                lambda sql: [*self._put_large(sql, k, large), (sql.add, (k, s, data, big))], creates=True
            )
            assert made is not None
            self._note_own_key(code, spelling)
            if made[-1]:
                return self._value((k, s, data, made[-1][0][0]), self._source._gate())
            self._forget_large(k, [number for number, _ in large])
            found = self._looked_up(key)
            if found is not None:
                return found[0]
        raise Busy(f"other clients have stored and deleted key {key!r} {LAYOUT_ATTEMPTS} times meanwhile")

    def _removed(self, key: Any) -> bool:
        """Delete a row; return whether there was one."""
        self._check_writable()
        code = self._code(key)
        if code is None:
            return False
        k = keys.stored(code)
        rows = self._change(lambda sql: [(sql.delete, (k,))])
        if not rows or not rows[0]:
            return False
        self._clean_up(rows[0])
        return True

    def _clean_up(self, deleted: Rows) -> None:
        """Delete the large values of a row that was deleted."""
        k, spelling, data, _, big = deleted[0]
        self._note_own_key(k, spelling)
        if big:
            self._known([(k, spelling, data, 0)])
            self._forget_large(k, self._large_ids_of(data))

    def _popped(self, find: Callable[[], tuple[Any, Row] | None]) -> tuple[Any, Any] | None:
        """Delete the row that `find` gives with its key, and return key and value; None if there is none.

        The value is made before the row is deleted, and a row that cannot be read stays.
        """
        self._check_writable()
        for _ in range(LAYOUT_ATTEMPTS):
            found = find()
            if found is None:
                return None
            key, row = found
            value = self._last_value(row, self._source._gate())
            k, version = keys.stored(self._whole_code(row)), big_int(row[3])
            rows = self._deleted(k, version)
            if rows and rows[0]:
                self._clean_up(rows[0])
                return key, value
        raise Busy(
            f"other clients have changed a row of table {self.name!r} {LAYOUT_ATTEMPTS} times meanwhile"
        )

    def _deleted(self, key: bytes, version: Any) -> list[Rows] | None:
        return self._change(lambda sql: [(sql.delete_version, (key, version))])

    def _found_row(self, key: Any) -> tuple[Any, Row] | None:
        code = self._code(key)
        found = None if code is None else self._fetched(code)
        if code is None or found is None:
            return None
        return key, (*keys.stored_with(code, None), *found)

    def _last_row(self) -> tuple[Any, Row] | None:
        rows = self._ask(lambda sql: (sql.end(last=True), ()))
        if not rows:
            return None
        if self._known(rows):
            # Long keys with the same beginning are in the order of their hashes.
            return self._found_row(next(self._iterate("keys", ALL, True)))
        return self._keys(rows)[0], rows[0]

    def _update(self, other: Any, more: dict[str, Any]) -> None:
        self._check_writable()
        with self._within():
            self._store_many(pairs_of(other))
            self._store_many(more.items())

    def _clear(self) -> None:
        self._check_writable()
        with self._within():
            self._change(lambda sql: [(sql.clear, ()), (sql.clear_large, ())])


def pairs_of(other: Any) -> Iterator[tuple[Any, Any]]:
    """Yield what `dict.update` would store."""
    if isinstance(other, collections.abc.Mapping):
        yield from other.items()
        return
    if hasattr(other, "keys"):
        for key in other.keys():  # noqa: SIM118 - as dict.update does, whose argument need not be a mapping
            yield key, other[key]
        return
    for number, pair in enumerate(other):
        try:
            parts = list(pair)
        except TypeError:
            raise TypeError(
                f"update() element {number} has to be a pair of key and value, not {type(pair).__name__}"
            ) from None
        if len(parts) != 2:
            raise ValueError(f"update() element {number} has length {len(parts)}; 2 is required")
        yield parts[0], parts[1]
