"""Write the SQL of queries: predicates over the columns of keys and of indexes.

The native module translates conditions (`crates/query/src/server.rs`) into predicates, which come here
as tuples of a word and what belongs to it. They name an index by its place in a list. Codes are
parameters, and the other names in a statement are made of numbers, so nothing that a user has typed is
in its text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

from pellucid.postgres.keys import stored

Range = tuple[bytes | None, bytes | None]
Predicate = tuple[Any, ...]


@dataclasses.dataclass(frozen=True)
class Column:
    """Where the entries of an index are: in columns of the rows, or in a relation of their own."""

    id: int
    # The quoted relation with the entries, if a row may have several.
    relation: str = ""

    def where(self, test: Callable[[str, str], str]) -> str:
        """Return the condition on rows that `test` makes for the columns of a code and its spelling."""
        if not self.relation:
            return test(f"i{self.id}", f"s{self.id}")
        return f"k IN (SELECT k FROM {self.relation} WHERE {test('p', 's')})"


class Where:
    """A WHERE clause, and its parameters."""

    def __init__(self, columns: Sequence[Column], given: Sequence[Any] = ()) -> None:
        self.columns = columns
        self.given = list(given)

    def clause(self, predicates: Sequence[Predicate], *others: str) -> str:
        """Return the clause for predicates that must all hold; empty without any."""
        parts = [*map(self.predicate, predicates), *others]
        return " WHERE " + " AND ".join(parts) if parts else ""

    def predicate(self, predicate: Predicate) -> str:
        """Return the SQL of one predicate."""
        word, *rest = predicate
        if word == "keys":
            return self.equal("k", rest[0])
        if word == "key_ranges":
            return self.within("k", rest[0])
        if word == "points":
            place, codes = rest
            return self.columns[place].where(lambda code, _spelling: self.equal(code, codes))
        if word == "ranges":
            place, ranges, ordered = rest
            return self.columns[place].where(
                lambda code, spelling: self.ordered(code, spelling, ranges, ordered)
            )
        if word == "any":
            branches = [" AND ".join(map(self.predicate, branch)) for branch in rest[0]]
            return _any(branches)
        raise ValueError(f"{word!r} is no predicate that this version knows")

    def equal(self, column: str, codes: Sequence[bytes]) -> str:
        """Return the condition that a column has one of these codes."""
        if len(codes) == 1:
            return f"{column} = {self.parameter(stored(codes[0]))}"
        return f"{column} = ANY({self.parameter([stored(code) for code in codes])}::bytea[])"

    def within(self, column: str, ranges: Sequence[Range]) -> str:
        """Return the condition that the code in a column lies in one of these ranges."""
        return _any([self.between(column, *edges) for edges in ranges])

    def ordered(self, code: str, spelling: str, ranges: Sequence[Range], ordered: int) -> str:
        """As `within`, without the complex numbers among the parts that `ordered` has a bit for."""
        where = self.within(code, ranges)
        # A spelling begins with a byte that has a bit for each part that is complex.
        return (
            f"{where} AND ({spelling} IS NULL OR get_byte({spelling}, 0) & {ordered:d} = 0)"
            if ordered
            else where
        )

    def between(self, column: str, low: bytes | None, high: bytes | None) -> str:
        """Return the condition that a column has a code from `low` on, below `high`."""
        parts = [] if low is None else [f"{column} >= {self.parameter(low)}"]
        if high is not None:
            parts.append(f"{column} < {self.parameter(high)}")
        return " AND ".join(parts) or f"{column} IS NOT NULL"

    def parameter(self, value: Any) -> str:
        """Return the place of a parameter, and keep its value."""
        self.given.append(value)
        return f"${len(self.given)}"


def _any(branches: Sequence[str]) -> str:
    if not branches:
        return "false"
    return (
        branches[0] if len(branches) == 1 else "(" + " OR ".join(f"({branch})" for branch in branches) + ")"
    )


def order_of(columns: Sequence[Column], order: tuple[int, bool] | None) -> str:
    """Return the ORDER BY clause for the order of an index (its place, whether from its end), or of keys.

    Rows with the same entry come in the order of their keys, from the end too.
    """
    if order is None:
        return " ORDER BY k"
    place, is_reverse = order
    return f" ORDER BY i{columns[place].id}{' DESC' if is_reverse else ''}, k"


def part_of(offset: int, limit: int | None) -> str:
    """Return the LIMIT and OFFSET clauses."""
    text = "" if limit is None else f" LIMIT {limit:d}"
    return text + (f" OFFSET {offset:d}" if offset else "")
