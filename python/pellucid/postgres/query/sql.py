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

from pellucid.postgres.schema.keys import stored

# Codes that are parameters of their own; more are one array.
POINT_PARAMETERS_MAX = 4
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
        if len(codes) <= POINT_PARAMETERS_MAX:
            # An array, of which the plan of a prepared statement knows nothing, may make the server walk over
            # the whole index, in the hope of an early match. A number has two codes, and OR would search for
            # each alone and join what it finds.
            places = [self.parameter(stored(code)) for code in codes]
            if len(places) > 1:
                return f"{column} IN ({', '.join(places)})"
            return f"{column} = {places[0]}" if places else "false"
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


# The numbers of a field of JSON, and NaN where a row has something else that counts: a Decimal, NaN or an
# infinity is a string there, and a row without JSON may have any value. NaN makes the whole sum NaN.
NUMBERS = (
    "CASE WHEN value IS NULL THEN 'NaN'::numeric ELSE CASE jsonb_typeof({field}) "
    "WHEN 'number' THEN ({field})::numeric {others} END END"
)
# A sum passes lists and dicts over. What is least or greatest among them, PostgreSQL does not know.
OTHERS = {"sum": ["string", "boolean"]}
OTHERS["min"] = OTHERS["max"] = ["string", "boolean", "array", "object"]


def quick_aggregates(verb: str, field: str) -> str:
    """As `aggregates`, for fields that are numbers in all rows that have them: others make the cast fail."""
    numbers = f"({field})::numeric"
    total = f"CASE WHEN bool_or(value IS NULL) THEN 'NaN' ELSE sum({numbers})::text END"
    return f"{total}, NULL" if verb == "sum" else f"{verb}({numbers})::text, {total}"


def aggregates(verb: str, field: str) -> str:
    """Return what `exact` needs of a field: the answer, and what tells whether it is one."""
    if verb == "count":
        return f"count({field})::text, CASE WHEN bool_or(value IS NULL) THEN 'NaN' ELSE '0' END"
    others = " ".join(f"WHEN '{kind}' THEN 'NaN'" for kind in OTHERS[verb])
    numbers = NUMBERS.format(field=field, others=others)
    if verb == "sum":
        return f"sum({numbers})::text, NULL"
    return f"{verb}({numbers})::text, sum({numbers})::text"


def exact(verb: str, found: str | None, total: str | None) -> tuple[Any] | None:
    """Return the answer to an aggregate; None where the server cannot know it.

    The server knows ints exactly. A float is written with a point there, and a sum with one has a point, too.
    """
    if any(part is not None and not part.lstrip("-").isdigit() for part in (found, total)):
        return None
    if found is None:
        return (0,) if verb in ("sum", "count") else (None,)
    return (int(found),)
