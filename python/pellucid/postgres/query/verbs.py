"""The queries of a table on a server, and what they change.

`where`, `order_by` and their like give the same `pellucid.Query` as those of an embedded table. What an
index can answer is answered by the server; the native module filters, sorts and computes the rest.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from pellucid._native import server_query
from pellucid.postgres.query.reader import Reading
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.table import keys
from pellucid.postgres.table.binding import Standing

DELETED_COUNT = 1000


class Finding:
    """The verbs of queries, for a table and for a database."""

    def _table(self) -> Any:
        raise NotImplementedError

    def where(self, *conditions: Any, **fields: Any) -> Any:
        """Return the rows of which all these conditions are true."""
        return server_query(self._table()).where(*conditions, **fields)

    def find(self, *arguments: Any, **fields: Any) -> Any:
        """Return the rows whose fields equal these values."""
        return server_query(self._table()).find(*arguments, **fields)

    def filter(self, function: Any) -> Any:
        """Return the rows for which a Python function returns something true."""
        return server_query(self._table()).filter(function)

    def order_by(self, *expressions: Any, **keywords: Any) -> Any:
        """Return all rows in the order of these expressions."""
        return server_query(self._table()).order_by(*expressions, **keywords)

    def limit(self, count: Any) -> Any:
        """Return the first `count` rows, at most."""
        return server_query(self._table()).limit(count)

    def offset(self, count: Any) -> Any:
        """Return the rows without the first `count`."""
        return server_query(self._table()).offset(count)

    def select(self, *expressions: Any, **named: Any) -> Any:
        """Return dicts of these expressions in place of rows."""
        return server_query(self._table()).select(*expressions, **named)

    def group_by(self, *expressions: Any, **named: Any) -> Any:
        """Return the rows in groups."""
        return server_query(self._table()).group_by(*expressions, **named)

    def agg(self, *arguments: Any, **aggregates: Any) -> Any:
        """Return aggregates over all rows, in a dict."""
        return server_query(self._table()).agg(*arguments, **aggregates)

    def sum(self, path: Any) -> Any:
        """Return the sum of the numbers at a field path."""
        return server_query(self._table()).sum(path)

    def min(self, path: Any) -> Any:
        """Return the least value at a field path."""
        return server_query(self._table()).min(path)

    def max(self, path: Any) -> Any:
        """Return the greatest value at a field path."""
        return server_query(self._table()).max(path)

    def mean(self, path: Any) -> Any:
        """Return the mean of the numbers at a field path."""
        return server_query(self._table()).mean(path)

    def count(self, path: Any = None) -> int:
        """Return how many rows have a field path; without one, how many rows there are."""
        return int(server_query(self._table()).count(path))

    def column(self, path: Any) -> Any:
        """Return a list of the values at a field path."""
        return server_query(self._table()).column(path)

    def to_list(self) -> Any:
        """Return all rows as a list."""
        return server_query(self._table()).to_list()

    def to_dicts(self) -> Any:
        """Return all rows as plain dicts, or whatever their values are."""
        return server_query(self._table()).to_dicts()

    def to_arrow(self) -> Any:
        """Return all rows as Arrow columns."""
        return server_query(self._table()).to_arrow()

    def to_numpy(self, path: Any) -> Any:
        """Return the values at a field path as an array of NumPy."""
        return server_query(self._table()).to_numpy(path)

    def to_polars(self) -> Any:
        """Return all rows as a DataFrame of polars."""
        return server_query(self._table()).to_polars()

    def to_pandas(self) -> Any:
        """Return all rows as a DataFrame of pandas."""
        return server_query(self._table()).to_pandas()


class Querying(Standing):
    """What a table does for queries."""

    # Calls of the native module

    def _reading(self) -> Reading | None:
        """Return an object that reads the rows of a query; None if there is no table yet."""
        sql = self._statements()
        return None if sql is None else Reading(self, sql)  # type: ignore[arg-type]

    def _update_rows(
        self,
        items: Iterable[tuple[Any, Any]],
        paths: Sequence[tuple[Any, ...]],
        given: Sequence[Any],
        is_given: Sequence[bool],
        computed: Sequence[tuple[Any, ...]],
    ) -> int:
        """Set fields of rows, in the transaction that runs; return in how many a field was set.

        `computed` has, for each row, two values for each path without one: whether the row has it, and it.
        """
        self._check_writable()
        done = 0
        for (_key, record), values in zip(list(items), computed, strict=True):
            rest, is_set = iter(values), False
            for path, value, is_constant in zip(paths, given, is_given, strict=True):
                has_value = is_constant or next(rest)
                new = value if is_constant else next(rest)
                if has_value:
                    holder = record
                    for step in path[:-1]:
                        holder = holder[step]
                    holder[path[-1]] = new
                    is_set = True
            done += is_set
        return done

    def _delete_rows(self, found: Iterable[Any]) -> int:
        """Delete the rows under these keys, in the transaction that runs; return how many there were."""
        self._check_writable()
        codes = [keys.stored(self._key(key)[0]) for key in found]
        done = 0
        for start in range(0, len(codes), DELETED_COUNT):
            some = codes[start : start + DELETED_COUNT]

            def statements(sql: Statements, some: list[bytes] = some) -> list[tuple[bytes, Any]]:
                return [(sql.delete_many, (some,)), (sql.forget_many, (some,))]

            deleted = self._change(statements)
            done += deleted[0][0][0] if deleted else 0
        return done
