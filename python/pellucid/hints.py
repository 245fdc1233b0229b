"""Says in lines of `explain()` why a query finds nothing, or goes through no index.

There is a hint for each of these: a table that does not exist; a field that no record has, at any depth; a
comparison with a type that no record has in that field; a computed value that is missing in every row; a
condition that no index serves, and an index that lacks rows. Rows are walked over until each of these is
ruled out. `crates/python/src/query/hints.rs` knows the query and walks over its rows.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Collection, Iterable, Iterator
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

if TYPE_CHECKING:
    from pellucid import Expression, Table

CONTAINERS = frozenset({"list", "tuple", "set", "dict"})
# Values of these kinds may equal values of other kinds.
UNCERTAIN = frozenset({"complex", "other"})
NUMBERS = frozenset({"bool", "int", "float", "Decimal"})
ZONED = "datetime of a ZoneInfo"
MOMENTS = frozenset({"date", "naive datetime", "aware datetime", "timedelta"})

DONE = {"+": "added", "-": "subtracted", "*": "multiplied", "/": "divided", "%": "divided"}
FUNCTIONS = ("length", "lower", "upper", "abs", "year", "month", "day")
COMPARISONS = ("==", "!=", "<", "<=", ">", ">=")
EQUALITIES = ("==", "isin", "is_none")
# The forms of conditions that compare their first part, or the other one, with values.
COMPARING = (*COMPARISONS, "between", "isin", "is_none", "startswith")
OPPOSITES = {"<": operator.ge, "<=": operator.gt, ">": operator.le, ">=": operator.lt}

# An expression, the name of its form, and its parts.
Form = tuple["Expression", str, list["Expression"]]
# Expressions, and the kinds of the first of them that answer the question; None: any kind does.
Question = tuple[list["Expression"], Collection[str] | None]
# Whether the question was answered. If not, the kinds that were found: those of a single expression, or of
# several expressions those of all but the first, in the rows that have them.
Answer = tuple[bool, list[list[str]]]


class _Facts(Protocol):
    """What the native side knows of a query, its table and its expressions."""

    SCAN_ROW_COUNT: int
    ISIN_COUNT_MAX: int
    is_scan: bool
    table: Table[Any]
    conditions: list[Expression]
    order: list[Expression]
    chosen: list[Expression]

    def has_table(self) -> bool: ...
    def table_names(self) -> list[str]: ...
    def indexes(self) -> list[tuple[str, list[Expression], Expression | None, int, bool]]: ...
    def form(self, expression: Expression, /) -> tuple[str, list[Expression]]: ...
    def steps(self, expression: Expression, /) -> list[tuple[str | None, Expression]]: ...
    def literals(self, expression: Expression, /) -> tuple[int, set[str]]: ...
    def branches(self, expression: Expression, /) -> bool: ...
    def is_method(self, name: str, /) -> bool: ...
    def kinds(self, questions: list[Question], /) -> list[Answer] | None: ...
    def names(self, expression: Expression | None, /) -> set[str]: ...
    def serves(
        self,
        parts: list[Expression],
        where: Expression | None,
        has_all: bool,
        conditions: list[Expression],
        /,
    ) -> bool: ...


class _Check(NamedTuple):
    """What is asked about the rows, and the hint that follows from the answers."""

    questions: list[Question]
    hint: Callable[[list[Answer]], str | None]


def of(facts: _Facts) -> list[str]:
    """The hints on a query, a line each."""
    name = facts.table.name
    if not facts.has_table():
        hints = [
            f"there is no table {quoted(name)}{did_you_mean(get_close_matches(name, facts.table_names(), 1))}"
        ]
    else:
        checks = list(_RowHints(facts).checks())
        answers = facts.kinds([question for check in checks for question in check.questions])
        if answers is None:  # of an empty table nothing is said
            return []
        rest = iter(answers)
        found = [check.hint([next(rest) for _ in check.questions]) for check in checks]
        hints = [*filter(None, found), *_IndexHints(facts).hints()]
    return [f"note: {hint}" for hint in hints]


def quoted(text: str) -> str:
    """The text in double quotes."""
    return json.dumps(text, ensure_ascii=False)


def did_you_mean(close: list[str]) -> str:
    """The close match, if there is one, as a question."""
    return f"; did you mean {quoted(close[0])}?" if close else ""


def one_of(kinds: Iterable[str]) -> str:
    """The kinds, each with its article."""
    return " or ".join(f"an {kind}" if kind.startswith("a") else f"a {kind}" for kind in sorted(kinds))


def raises(what: str) -> str:
    """Why an operation that gives values elsewhere gives none."""
    return f"Python raises for each {what} there, as for a division by zero"


def family(kind: str) -> str:
    """The name of the kinds that compare with this one."""
    return "number" if kind in NUMBERS else "aware datetime" if kind == ZONED else kind


def may_compute(sign: str, one: str, other: str) -> bool:
    """Whether an operation on values of these kinds may give a result, at least for some values."""
    both = {one, other}
    if both <= NUMBERS - {"Decimal"} or both <= NUMBERS - {"float"}:
        return True
    number = NUMBERS - {"Decimal"}
    if sign == "+":
        return "timedelta" in both and both <= MOMENTS
    if sign == "-":
        return one in MOMENTS and other == "timedelta"
    if sign == "*":
        return "timedelta" in both and len(both & number) == 1
    return one == "timedelta" and (other == "timedelta" or (sign == "/" and other in number))


class _RowHints:
    """Hints that follow from what the rows have."""

    def __init__(self, facts: _Facts) -> None:
        self.facts, self.name = facts, quoted(facts.table.name)

    def checks(self) -> Iterator[_Check]:
        facts = self.facts
        forms = [(node, *facts.form(node)) for node in facts.order]
        turned = [
            (node, parts[0]) for node, word, parts in forms if word == "negative" and facts.steps(parts[0])
        ]
        roots = (*facts.conditions, *facts.order, *facts.chosen)
        every = [form for root in roots for form in self.within(root)]
        yield from self.once(every, self.field)
        compared = (asked for node in facts.conditions for asked in self.compared(node))
        for field, kinds in {
            (str(field), *sorted(kinds)): (field, kinds) for field, kinds in compared
        }.values():
            yield self.kinds(field, kinds)
        for _, field in turned:
            yield self.kinds(field, {"number", "timedelta"}, is_order=True)
        rest = (form for form in every if not any(form[0].same_as(other) for other, _ in turned))
        yield from self.once(rest, self.computed)

    def within(self, node: Expression) -> Iterator[Form]:
        """All parts of an expression, the innermost first."""
        word, parts = self.facts.form(node)
        for part in parts:
            yield from self.within(part)
        yield node, word, parts

    def once(self, nodes: Iterable[Form], check: Callable[[Form], _Check | None]) -> Iterator[_Check]:
        # Of the other nodes, no text is made: it may have millions of values.
        yield from {str(form[0]): found for form in nodes if (found := check(form))}.values()

    def shown(self, field: Expression) -> str:
        steps = self.facts.steps(field)
        return steps[0][0] or str(field) if len(steps) == 1 else str(field)

    def field(self, form: Form) -> _Check | None:
        if form[1] != "field":
            return None
        steps = self.facts.steps(form[0])

        def hint(answers: list[Answer]) -> str | None:
            missing = [number for number, (is_met, _) in enumerate(answers) if not is_met]
            if not missing:
                return None
            (name, place), above = steps[missing[0]], steps[missing[0] - 1][1] if missing[0] else None
            says = f"no record in {self.name} has {quoted(self.shown(place))}"
            if name is None:
                return says
            names = self.facts.names(above)
            if not names and above is None:  # no row is a dict
                return None
            parts = name.split("__")
            if len(parts) > 1 and all(parts):
                path = ".".join(parts)
                return f'{says}; a field in another is F.{path} in where(), "{path}" as a path'
            if above is not None and self.facts.is_method(name):
                return f"{says}; to call it applies the function: F.{self.shown(place)}()"
            for count in range(len(steps), missing[0] + 1, -1):
                dotted = ".".join(step or "" for step, _ in steps[missing[0] : count])
                if dotted in names:
                    outer = "F" if above is None else f"F.{above}"
                    return f"{says}; there is a name with a dot: {outer}[{quoted(dotted)}]"
            close = get_close_matches(name, names, 1)
            return says + did_you_mean([word if above is None else str(above[word]) for word in close])

        return _Check([([place], None) for _, place in steps], hint) if steps else None

    def compared(self, node: Expression) -> Iterator[tuple[Expression, set[str]]]:
        """The fields that a condition compares, and the kinds of values that it looks for in each."""
        word, parts = self.facts.form(node)
        if word in ("and", "or", "not"):
            for part in parts:
                yield from self.compared(part)
        elif word in COMPARISONS:
            yield from self.wanted(parts[0], parts[1:])
            yield from self.wanted(parts[1], parts[:1])
        elif word in ("between", "startswith", "endswith"):
            yield from self.wanted(parts[0], parts[1:])
        elif word == "isin":
            yield from self.wanted(parts[0], [node])
        elif word == "contains":
            yield from self.wanted(parts[0], parts[1:], CONTAINERS)
        elif word == "matches" and self.facts.steps(parts[0]):
            yield parts[0], {"str"}

    def wanted(
        self, field: Expression, values: list[Expression], beside: Collection[str] = ()
    ) -> Iterator[tuple[Expression, set[str]]]:
        kinds = {family(kind) for value in values for kind in self.facts.literals(value)[1]}
        # None is often looked for among other values.
        if kinds and not kinds & (UNCERTAIN | {"None"}) and self.facts.steps(field):
            yield field, kinds.union(beside)

    def kinds(self, field: Expression, wanted: set[str], is_order: bool = False) -> _Check:
        def hint(answers: list[Answer]) -> str | None:
            [(is_met, met)] = answers
            found = {family(kind) for [kind] in met} - {"None"}
            if is_met or not found:
                return None
            place = self.shown(field)
            if is_order:
                return (
                    f"no record in {self.name} has a number in {quoted(place)}, of which -{place} is made; "
                    f"{place} descending is F.{place}.desc()"
                )
            # In other libraries, this means any of the values.
            advice = f"; where(F.{place}.isin([...])) finds any of several values"
            return (
                f"no record in {self.name} has {one_of(wanted)} in {quoted(place)}, as the condition asks; "
                f"what they have there is {one_of(found)}{advice if wanted <= CONTAINERS - {'dict'} else ''}"
            )

        kinds = UNCERTAIN | wanted | (NUMBERS if "number" in wanted else set())
        if "aware datetime" in wanted:
            kinds |= {ZONED}
        return _Check([([field], kinds)], hint)

    def computed(self, form: Form) -> _Check | None:
        node, word, parts = form
        if word not in (*DONE, *FUNCTIONS, "negative"):
            return None

        def reason(kinds: list[str]) -> str:
            if word in DONE:
                if may_compute(word, *kinds):
                    return raises(f"{kinds[0]} {word} {kinds[1]}")
                return f"{kinds[0]} and {kinds[1]} cannot be {DONE[word]}"
            if word in ("negative", "abs") and kinds[0] in ("Decimal", "timedelta"):
                return raises(f"-{kinds[0]}" if word == "negative" else f"abs({kinds[0]})")
            return f"{kinds[0]} has no {'negative' if word == 'negative' else f'{word}()'}"

        def hint(answers: list[Answer]) -> str | None:
            [(is_met, met)] = answers
            if is_met or not met or any("other" in kinds for kinds in met):
                return None
            reasons = ", ".join(map(reason, met[:3]))
            return f"{node!r} is missing in all records of {self.name}: {reasons}"

        return _Check([([node, *parts], None)], hint)


class _Index(NamedTuple):
    """An index of the table."""

    name: str
    parts: list[Expression]
    where: Expression | None
    entries: int
    is_ready: bool

    def has(self, part: Expression) -> bool:
        return any(own.same_as(part) for own in self.parts)


class _IndexHints:
    """Hints on indexes that almost serve a query, and why they do not."""

    def __init__(self, facts: _Facts) -> None:
        self.facts, self.form, self.conditions = facts, facts.form, facts.conditions
        indexes = [_Index(quoted(known[0]), *known[1:]) for known in facts.indexes()]
        self.ready = [index for index in indexes if index.is_ready]
        self.building = [index for index in indexes if not index.is_ready]

    def hints(self) -> Iterator[str]:
        if not self.ready and not self.building:
            return
        for node in self.conditions:
            yield from self.on_condition(node)
        for index in self.building:
            # It is not known yet whether all rows will have an entry.
            for has_all, condition in [(False, ""), (True, " if each row has all its parts")]:
                if self.serves(index, has_all=has_all):
                    yield (
                        f"index {index.name} would serve{condition}, and is still being built; until then no "
                        "query uses it"
                    )
                    break
        row_count = len(self.facts.table)
        for index in self.ready:
            if self.serves(index, has_all=index.entries == row_count):
                if self.facts.is_scan and row_count < self.facts.SCAN_ROW_COUNT:
                    yield (
                        f"index {index.name} would serve, but to scan fewer than {self.facts.SCAN_ROW_COUNT} "
                        "rows takes less"
                    )
            elif self.facts.is_scan:
                yield from self.lacking(index, row_count) or self.partial(index)

    def serves(self, index: _Index, has_all: bool = False) -> bool:
        return self.facts.serves(index.parts, index.where, has_all, self.conditions)

    def bounds(self, part: Expression, node: Expression) -> bool:
        """Whether a condition compares this expression with values that an index can have."""
        return self.form(node)[0] in COMPARING and self.facts.serves([part], None, False, [node])

    def operand(self, node: Expression) -> Expression:
        """What a condition compares with values."""
        _, parts = self.form(node)
        return parts[1] if self.form(parts[0])[0] == "literal" else parts[0]

    def index_of(self, part: Expression) -> _Index | None:
        return next((index for index in self.ready if index.has(part)), None)

    def on_condition(self, node: Expression) -> Iterator[str]:
        word, parts = self.form(node)
        if self.facts.is_scan and (hint := self.negated(node)):
            yield hint
        elif word in ("and", "or", "not"):
            for part in parts:
                yield from self.on_condition(part)
        elif word in ("contains", "endswith", "matches"):
            yield from self.never_served(word, parts[0])
        elif word == "isin" and (count := self.facts.literals(node)[0]) > self.facts.ISIN_COUNT_MAX:
            if index := self.index_of(parts[0]):
                yield (
                    f"isin() of {count} values goes through no index, not through {index.name}: "
                    f"{self.facts.ISIN_COUNT_MAX} are looked up at most; several queries of fewer values go "
                    "through it"
                )
        elif self.facts.is_scan and word in COMPARING:
            yield from self.computed_otherwise(node)

    def never_served(self, word: str, field: Expression) -> Iterator[str]:
        if not (steps := self.facts.steps(field)):
            return
        if word == "contains" and (index := self.index_of(field.each())):
            path = steps[0][0] if len(steps) == 1 else field
            yield (
                "contains() goes through no index, since it looks into strings, too; "
                f"F.{path}.each() == ... goes through {index.name}"
            )
        elif index := self.index_of(field):
            yield (
                f"{word}() goes through no index, not through {index.name}, which serves "
                "== < <= > >= between isin startswith"
            )

    def negated(self, node: Expression) -> str | None:
        """The hint on `!=` or `~` before a condition that an index would serve."""
        word, parts = self.form(node)
        if word not in ("!=", "not"):
            return None
        inner = parts[0] == parts[1] if word == "!=" else parts[0]
        found = [(index, part) for index in self.ready for part in index.parts if self.bounds(part, inner)]
        if not found:
            return None
        index, part = found[0]
        opposite = None if self.facts.branches(part) else self.opposite(inner, part)
        instead = "" if opposite is None else f"; {opposite!r}, which is not, goes through it"
        lacks = "without any such value" if self.facts.branches(part) else "without such a value"
        return (
            f"{'!=' if word == '!=' else '~'} goes through no index, not through {index.name}: "
            f"it is true of rows {lacks}, too{instead}"
        )

    def opposite(self, node: Expression, part: Expression) -> Expression | None:
        """The comparison that is true where this one is false, for values that compare."""
        word, parts = self.form(node)
        if word == "==":
            less, more = parts[0] < parts[1], parts[0] > parts[1]
            # None equals itself, and has no order.
            return less | more if self.bounds(part, less) else None
        return OPPOSITES[word](*parts) if word in OPPOSITES else None

    def computed_otherwise(self, node: Expression) -> Iterator[str]:
        """The hint on an operand that is computed from an index's part, or the part from it."""
        asked = self.operand(node)
        if self.index_of(asked) or not self.bounds(asked, node):
            return
        for index in self.ready:
            part = index.parts[0]
            says = f"index {index.name} is over {part!r}, not over {asked!r}; a condition on {part!r}"
            if self.is_made_of(asked, part):
                yield f"{says} alone would go through it, or this one through an index over {asked!r}"
                return
            if self.is_made_of(part, asked):
                yield f"{says} would go through it"
                return

    def is_made_of(self, whole: Expression, part: Expression) -> bool:
        return any(own.same_as(part) or self.is_made_of(own, part) for own in self.form(whole)[1])

    def lacking(self, index: _Index, row_count: int) -> list[str]:
        """The hint on an index without entries for rows that lack a part that no condition names."""
        said = [part for part in index.parts if any(self.bounds(part, node) for node in self.conditions)]
        unsaid = [part for part in index.parts if all(part is not other for other in said)]
        first, where, entries = index.parts[0], index.where, index.entries
        if not said or said[0] is not first or not unsaid:
            return []
        if any(other.parts[0].same_as(first) and self.serves(other) for other in self.ready):
            return []
        if not self.facts.serves(said, where, False, self.conditions):
            return []
        is_counted = where is None and not any(map(self.facts.branches, index.parts))
        rows = f"{row_count - entries} of {row_count} rows" if is_counted else "rows"
        shown = [repr(part) for part in unsaid]
        return [
            f"index {index.name} has no entry for {rows} in which {' or '.join(shown)} is missing or can be "
            f"no key, and the conditions say nothing of that; an index over {first!r} would serve, or a "
            f"comparison of {' and '.join(shown)} as well"
        ]

    def partial(self, index: _Index) -> list[str]:
        """The hint on an index of some rows, if no condition says that the wanted rows are among them."""
        where, table = index.where, self.facts.table
        if where is None or not self.facts.serves(index.parts, None, False, self.conditions):
            return []
        word, parts = self.form(where)
        needed = parts if word == "and" else [where]
        if any(not table.where(node, part).exists() for node in self.conditions for part in needed):
            return []  # the conditions want other rows

        def equals(part: Expression, node: Expression) -> bool:
            is_order = self.form(part)[0] in (*OPPOSITES, "between")
            return (
                is_order
                and self.form(node)[0] in EQUALITIES
                and self.operand(part).same_as(self.operand(node))
            )

        why = (
            "; that it equals a value does not say so, for a complex number may equal one and has no order"
            if any(equals(part, node) for part in needed for node in self.conditions)
            else ""
        )
        return [
            f"index {index.name} has only the rows where {where}, which the conditions do not say; "
            f"where(..., {where!r}) as well would let it serve{why}"
        ]
