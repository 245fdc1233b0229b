"""A table on a server: the verbs of `pellucid.Table`, over the parts that the table holds."""

from __future__ import annotations

import collections.abc
import io
import weakref
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta
from typing import Any

from pellucid._native import IndexInfo, _no_attribute, server_query, server_view
from pellucid.classes import check_fields
from pellucid.errors import Error, StaleTable
from pellucid.look import show, verbs
from pellucid.postgres import maintenance
from pellucid.postgres.attempts import repeated
from pellucid.postgres.protocols import Connection, IndexEntries, RowStore, Tables
from pellucid.postgres.query.scan import ALL, Range, RowIterator
from pellucid.postgres.schema import keys
from pellucid.postgres.schema.layout import ANY, CreateOptions
from pellucid.postgres.table.counting import Increment, steps_of
from pellucid.postgres.table.edit import EditContext
from pellucid.postgres.table.index import Index, Indexes
from pellucid.postgres.table.index_entries import ServerIndexEntries
from pellucid.postgres.table.load import Loader
from pellucid.postgres.table.overflow import Overflow
from pellucid.postgres.table.range import TableRange, range_of
from pellucid.postgres.table.records import Records, code_of
from pellucid.postgres.table.rows import ServerRowStore
from pellucid.postgres.table.sequence import Sequences
from pellucid.postgres.table.value_file import ValueReader, buffer_of, writer_of

NO_DEFAULT = object()
Progress = Callable[[int, int], Any]


class Table(collections.abc.MutableMapping[Any, Any]):
    """A table on a server, with the verbs of `pellucid.Table`."""

    def __init__(
        self,
        connection: Connection,
        tables: Tables,
        name: str,
        *,
        stays_with_name: bool = False,
        options: CreateOptions = ANY,
        **opened: Any,
    ) -> None:
        records = Records(
            connection, tables, name, stays_with_name=stays_with_name, options=options, **opened
        )
        sequence = Sequences(tables, records.binding, records)
        entries = ServerIndexEntries(connection, records)
        # A weak reference, so that a table is freed when its last handle goes; then a row makes another.
        records.own_handle = weakref.ref(self)
        records.overflow = Overflow(records.binding)
        rows = ServerRowStore(connection, records, entries, sequence)
        records.rows = rows
        self._connection: Connection = connection
        self._tables: Tables = tables
        self._records = records
        self._binding = records.binding
        self._rows: RowStore = rows
        self._entries: IndexEntries = entries
        self._sequence = sequence
        self._loader = Loader(connection, records, rows, entries, sequence)
        self._indexes = Indexes(tables, records, entries)
        self._plain: Table | None = None

    @property
    def name(self) -> str:
        """The table's name, as far as this client knows."""
        return self._binding.name

    def __repr__(self) -> str:
        try:
            self._binding.ask_one_state(lambda sql: (sql.any, ()))
            pairs = show.first_pairs(self)
        except StaleTable:
            return f"<pellucid.Table {self.name!r}, dropped>"
        except Error as error:
            return f"<pellucid.Table {self.name!r}, {error.__class__.__name__}>"
        # A server takes a second to count ten million rows.
        count = len(pairs)
        rows = f"{count} row{'' if count == 1 else 's'}" if count <= show.TABLE_ROWS else "many rows"
        return show.text_of_pairs(pairs, f"<pellucid.Table {self.name!r}, {rows}>")

    def __getattr__(self, name: str) -> Any:
        raise _no_attribute(self, "table", name)

    def _untyped(self) -> Table:
        """Return the same table without the class of its rows."""
        binding = self._binding
        if self._plain is None:
            self._plain = Table(
                self._connection,
                self._tables,
                self.name,
                stays_with_name=binding.stays_with_name,
                options=binding.options,
            )
        self._plain._binding.follow(binding)
        return self._plain

    def __reduce__(self) -> Any:
        raise TypeError("a table on a server is not pickled; open its database in the other process")

    @property
    def sql_name(self) -> str:
        """The name of the view that has key and value of each row as jsonb, for a statement of your own.

        The first write creates it. Raises `TypeError` if the table was not created with `queryable=True`.
        """
        sql = self._binding.statements()
        if sql is None and self._binding.options.is_queryable:
            sql = self._binding.for_writing()
        if sql is None or not sql.layout.is_queryable:
            raise TypeError(
                f"table {self.name!r} has no JSON that other programs could read: create it with "
                f"db.table({self.name!r}, queryable=True)"
            )
        return sql.view.decode()

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

        self._connection.check_open()
        if self._connection.is_snapshot:
            raise TypeError("a snapshot does not change; watch the database")
        within = range_of(self._records, start, stop, prefix)
        return Watch(self._connection, self._tables, self._binding, within, since, timeout, lambda: [self])

    # One row

    def __contains__(self, key: object) -> bool:
        code = code_of(self._connection, key)
        if code is None:
            return False
        return bool(self._binding.ask(lambda sql: (sql.has, (keys.stored(code),))))

    def __getitem__(self, key: Any) -> Any:
        found = self._rows.get(key)
        if found is None:
            raise KeyError(key)
        return found[0]

    def get(self, key: Any, default: Any = None, /) -> Any:
        """Return the value of a key, or `default`."""
        found = self._rows.get(key)
        return default if found is None else found[0]

    def __setitem__(self, key: Any, value: Any) -> None:
        self._rows.put(key, value)

    def __delitem__(self, key: Any) -> None:
        if not self._rows.delete(key):
            raise KeyError(key)

    def pop(self, key: Any, default: Any = NO_DEFAULT, /) -> Any:
        """Remove a key and return its value: plain objects, which are stored no more."""
        popped = self._rows.pop(key)
        if popped is not None:
            return popped[1]
        if default is NO_DEFAULT:
            raise KeyError(key)
        return default

    def popitem(self) -> tuple[Any, Any]:
        """Remove the last key and return it with its value. Raises `KeyError` if there is none."""
        popped = self._rows.pop_last()
        if popped is None:
            raise KeyError(f"popitem(): table {self.name!r} is empty")
        return popped

    def setdefault(self, key: Any, default: Any = None, /) -> Any:
        """Return the value of a key; where it has none, store `default` first."""
        return self._rows.setdefault(key, default)

    def increment(self, key: Any, path: Any, by: Any = 1, *, default: Any = None) -> Any:
        """Add to the number at a path of a record, and return the sum; nothing is lost meanwhile.

        A missing row or field raises `KeyError`, unless `default` says what it counts as.
        """
        self._connection.check_writable()
        if self._records.row_class is None:
            return Increment(self._records, self._rows, key, path, by).run(default)
        names = [step for step in steps_of(path)[:1] if isinstance(step, str)]
        check_fields(self._records.row_class, names, f"increment() of table {self.name!r}")

        def count() -> Any:
            total = self._untyped().increment(key, path, by, default=default)
            # What makes no instance of the class any more is refused, and one that could not be stored.
            self._records.encode(key, self[key])
            return total

        return repeated(self._connection, count)

    def compare_and_set(self, key: Any, expected: Any, value: Any) -> bool:
        """Store a value if that of the key equals `expected`; return whether it did."""
        return self._rows.compare_and_set(key, expected, value)

    def put_if_absent(self, key: Any, value: Any) -> bool:
        """Store a value if the key has none; return whether it did."""
        return self._rows.put_if_absent(key, value)

    def get_or_create(self, key: Any, function: Callable[[], Any]) -> Any:
        """Return the value of a key; where it has none, store and return what `function` returns."""
        found = self._rows.get(key)
        if found is not None:
            return found[0]
        # Refused before the function runs.
        self._connection.check_writable()
        self._records.encode_key(key)
        return self._rows.setdefault(key, function())

    def claim(
        self,
        where: Any,
        set: Any,
        *,
        order_by: Any = None,
        lease: float | timedelta = 60.0,
        timeout: float | timedelta | None = 0.0,
    ) -> Any:
        """Claim the first row for which a condition is true; return a `Claim`, or None if there is none."""
        from pellucid.claims import claim
        from pellucid.seconds import seconds_of

        self._connection.check_writable()
        seconds = None if timeout is None else seconds_of(timeout, "timeout")
        cls = self._records.row_class
        return claim(self, where, set, order_by, seconds_of(lease, "lease"), seconds, cls)

    def put(self, key: Any, value: Any, *, expire: Any = None) -> None:
        """Store a value under a key, for some seconds or a timedelta."""
        from pellucid.expiry import put

        self._connection.check_writable()
        put(self, key, value, expire, self._records.row_class)

    def expire(self) -> int:
        """Delete the rows whose time is over, and return how many there were."""
        from pellucid.expiry import expire_rows

        self._connection.check_writable()
        return expire_rows(self)

    def _run(self, function: Callable[[], Any]) -> Any:
        return repeated(self._connection, function)

    @property
    def _is_in_transaction(self) -> bool:
        return self._connection.running() is not None

    def append(self, value: Any) -> int:
        """Store a value under the next number, and return that. A number is never given twice."""
        return self._loader.append(value)

    def edit(self, key: Any) -> EditContext:
        """Return a context manager for many changes of one value, as one transaction."""
        return EditContext(self, self._records, key)

    def buffer(self, key: Any, path: Any = None) -> memoryview:
        """Return the bytes of a value or field: bytes, text in UTF-8, or the elements of an array.

        Raises `KeyError` if there is none, and `TypeError` for what has no bytes.
        """
        table = self
        if self._records.row_class:
            table = self._untyped()
        return buffer_of(table[key], key, path)

    def open(self, key: Any, mode: str = "rb", path: Any = None) -> Any:
        """Return a file that reads what `buffer` shows; with "wb", one that writes the value at its end."""
        if mode == "rb":
            return io.BufferedReader(ValueReader(self.buffer(key, path)))
        return writer_of(self, self._records, key, mode, path)

    # Many rows

    def update(self, other: Any = (), /, **more: Any) -> None:
        """Store the items of a mapping or of pairs, all or none."""
        self._connection.check_writable()
        with self._connection.transaction():
            self._rows.put_many(pairs_of(other))
            self._rows.put_many(more.items())

    def extend(self, values: Iterable[Any]) -> int:
        """Store values under the next numbers, all or none, and return how many there were."""
        return self._loader.extend(values)

    def clear(self) -> None:
        """Remove all rows, as one transaction."""
        self._connection.check_writable()
        with self._connection.transaction():
            self._rows.clear()

    def __len__(self) -> int:
        return self._range(ALL).count()

    def __bool__(self) -> bool:
        return bool(self._binding.ask_one_state(lambda sql: (sql.any, ())))

    def __iter__(self) -> Iterator[Any]:
        return self._range(ALL).iterate("keys", False)

    def __reversed__(self) -> Iterator[Any]:
        return self._range(ALL).iterate("keys", True)

    def _range(self, within: Range) -> TableRange:
        return TableRange(self._records, self._rows, within)

    def _view(self, shows: str, start: Any, stop: Any, prefix: Any, reverse: bool) -> Any:
        within = range_of(self._records, start, stop, prefix)
        return server_view(self, self._range(within), shows, reverse)

    def keys(self, *, start: Any = None, stop: Any = None, prefix: Any = None, reverse: bool = False) -> Any:
        """Return a live view of the keys in a range."""
        return self._view("keys", start, stop, prefix, reverse)

    def values(
        self, *, start: Any = None, stop: Any = None, prefix: Any = None, reverse: bool = False
    ) -> Any:
        """Return a live view of the values in a range."""
        return self._view("values", start, stop, prefix, reverse)

    def items(self, *, start: Any = None, stop: Any = None, prefix: Any = None, reverse: bool = False) -> Any:
        """Return a live view of the keys and values in a range."""
        return self._view("items", start, stop, prefix, reverse)

    def range(
        self, start: Any = None, stop: Any = None, *, prefix: Any = None, reverse: bool = False
    ) -> RowIterator:
        """Return the values between two keys, as they are now."""
        within = range_of(self._records, start, stop, prefix)
        return self._range(within).iterate("values", reverse)

    def first(self) -> tuple[Any, Any] | None:
        """Return the first key and its value; None if there is none."""
        return self._end(last=False)

    def last(self) -> tuple[Any, Any] | None:
        """Return the last key and its value; None if there is none."""
        return self._end(last=True)

    def _end(self, *, last: bool) -> tuple[Any, Any] | None:
        rows = self._binding.ask_one_state(lambda sql: (sql.end(last=last), ()))
        if not rows:
            return None
        if self._records.learn(rows):
            # Long keys with the same beginning are in the order of their hashes.
            found: tuple[Any, Any] | None = next(self._range(ALL).iterate("items", last), None)
            return found
        return self._records.items(rows, self._connection.validity())[0]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Table) and self._connection is other._connection and self.name == other.name:
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

    def unreadable(self) -> list[tuple[Any, Exception]]:
        """Return the keys of the rows that cannot be read, each with the exception that says why."""
        return maintenance.unreadable(self._records)

    def conform(self) -> list[tuple[Any, Exception]]:
        """Return the keys of the rows that do not fit the class of the table, each with the exception."""
        if self._records.row_class is None:
            raise TypeError(
                f"conform() compares the rows with a class, and table {self.name!r} was opened without "
                "type=; open it with the class"
            )
        return maintenance.unreadable(self._records, validates=True)

    # Calls of a copy

    def _load(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        self._loader.load(pairs)

    def _next_int(self) -> int | None:
        return self._sequence.next_int()

    def _raise_next_int(self, number: int) -> None:
        self._sequence.raise_next_int(number)

    # Indexes

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
        self._indexes.create(name, parts, unique, where, progress)

    def drop_index(self, name: str) -> None:
        """Remove an index; raises `NoSuchIndex` if there is none of this name."""
        self._indexes.drop(name)

    def rebuild_index(self, name: str, *, progress: Progress | None = None) -> None:
        """Make all entries of an index anew from the rows."""
        self._indexes.rebuild(name, progress)

    def indexes(self) -> list[IndexInfo]:
        """Return the indexes by name, each as an `IndexInfo`."""
        return self._indexes.described()

    def index(self, name: str) -> Index:
        """Return the index of this name; raises `NoSuchIndex` if there is none."""
        return self._indexes.named(self, name)

    # What is in there: the same functions as those of a file

    head = verbs.head
    tail = verbs.tail
    sample = verbs.sample
    fields = verbs.fields
    describe = verbs.describe
    value_counts = verbs.value_counts
    _repr_html_ = verbs._repr_html_
    _ipython_key_completions_ = verbs._ipython_key_completions_

    # Queries: `pellucid.Query` is the same as that of a file

    def where(self, *conditions: Any, **fields: Any) -> Any:
        """Return the rows of which all these conditions are true."""
        return server_query(self._records).where(*conditions, **fields)

    def find(self, *arguments: Any, **fields: Any) -> Any:
        """Return the rows whose fields equal these values."""
        return server_query(self._records).find(*arguments, **fields)

    def filter(self, function: Any) -> Any:
        """Return the rows for which a Python function returns something true."""
        return server_query(self._records).filter(function)

    def order_by(self, *expressions: Any, **keywords: Any) -> Any:
        """Return all rows in the order of these expressions."""
        return server_query(self._records).order_by(*expressions, **keywords)

    def limit(self, count: Any) -> Any:
        """Return the first `count` rows, at most."""
        return server_query(self._records).limit(count)

    def offset(self, count: Any) -> Any:
        """Return the rows without the first `count`."""
        return server_query(self._records).offset(count)

    def select(self, *expressions: Any, **named: Any) -> Any:
        """Return dicts of these expressions in place of rows."""
        return server_query(self._records).select(*expressions, **named)

    def group_by(self, *expressions: Any, **named: Any) -> Any:
        """Return the rows in groups."""
        return server_query(self._records).group_by(*expressions, **named)

    def agg(self, *arguments: Any, **aggregates: Any) -> Any:
        """Return aggregates over all rows, in a dict."""
        return server_query(self._records).agg(*arguments, **aggregates)

    def sum(self, path: Any) -> Any:
        """Return the sum of the numbers at a field path."""
        return server_query(self._records).sum(path)

    def min(self, path: Any) -> Any:
        """Return the least value at a field path."""
        return server_query(self._records).min(path)

    def max(self, path: Any) -> Any:
        """Return the greatest value at a field path."""
        return server_query(self._records).max(path)

    def mean(self, path: Any) -> Any:
        """Return the mean of the numbers at a field path."""
        return server_query(self._records).mean(path)

    def count(self, path: Any = None) -> int:
        """Return how many rows have a field path; without one, how many rows there are."""
        return int(server_query(self._records).count(path))

    def column(self, path: Any) -> Any:
        """Return a list of the values at a field path."""
        return server_query(self._records).column(path)

    def to_list(self) -> Any:
        """Return all rows as a list."""
        return server_query(self._records).to_list()

    def to_dicts(self) -> Any:
        """Return all rows as plain dicts, or whatever their values are."""
        return server_query(self._records).to_dicts()

    def to_arrow(self) -> Any:
        """Return all rows as Arrow columns."""
        return server_query(self._records).to_arrow()

    def to_numpy(self, path: Any) -> Any:
        """Return the values at a field path as an array of NumPy."""
        return server_query(self._records).to_numpy(path)

    def to_polars(self) -> Any:
        """Return all rows as a DataFrame of polars."""
        return server_query(self._records).to_polars()

    def to_pandas(self) -> Any:
        """Return all rows as a DataFrame of pandas."""
        return server_query(self._records).to_pandas()


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
