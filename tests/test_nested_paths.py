"""Do queries find what stands at a path, however the dicts on the way to it differ?

Rows are random: fields lack, stand in another order, or hold a value of another type; lists and dicts with
keys that are no names stand where others have a dict. Each answer is compared with that of a few lines of
Python over the same rows.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import pellucid
import pyarrow
import pytest
from pellucid import KEY, F, count

EACH = object()
Path = tuple[Any, ...]
NAMES = ["a", "b", "c", "d"]
LARGE = ["x" * 40_000, "y" * 100_000]
SCALARS = [0, 1, -1, 77, 300, -70_000, 2**40, 2**70, True, None, 0.5, "", "s", "eight by", "a longer string"]
PATHS: list[Path] = [
    ("a",),
    ("a", "b"),
    ("b", "a", "c"),
    ("a", "b", "c", "d"),
    ("a", 1),
    ("a", -1, "b"),
    ("b", 0, -2),
    ("a", "d", 1, "a"),
    ("a", EACH),
    ("a", EACH, "b"),
    ("b", "a", EACH, "a"),
    ("a", EACH, "b", EACH),
    ("a", EACH, 1),
]


def value(choose: random.Random, depth: int) -> Any:
    """A value, which has parts the more often the nearer it is to the root."""
    if choose.random() > 0.97 - depth / 7:
        return choose.choice(LARGE) if choose.random() < 0.01 else choose.choice(SCALARS)
    kind = choose.random()
    if kind < 0.6:
        names = choose.sample(NAMES, choose.randint(1, len(NAMES)))
        if choose.random() < 0.2:
            names.append(f"other{choose.randrange(400)}")
        return {name: value(choose, depth + 1) for name in names}
    if kind < 0.65:
        return {key: value(choose, depth + 1) for key in choose.sample([0, 1, -1, "a", "b", None], 3)}
    if kind < 0.75:
        return [choose.choice([1, 200, 70_000]) for _ in range(choose.choice([0, 1, 2, 9, 130]))]
    parts = [value(choose, depth + 1) for _ in range(choose.randrange(4))]
    return tuple(parts) if choose.random() < 0.3 else parts


def reach(found: Any, path: Path) -> Iterator[Any]:
    """The values at a path: one or none, with `EACH` any number."""
    if not path:
        yield found
        return
    step, rest = path[0], path[1:]
    if isinstance(found, dict):
        if step in found:
            yield from reach(found[step], rest)
    elif isinstance(found, (list, tuple)):
        if step is EACH:
            for part in found:
                yield from reach(part, rest)
        elif isinstance(step, int) and -len(found) <= step < len(found):
            yield from reach(found[step], rest)


def field(path: Path) -> Any:
    made: Any = F
    for step in path:
        made = made.each() if step is EACH else made[step]
    return made


def shown(path: Path) -> str:
    return str(field(path))


def is_number(found: Any) -> bool:
    return isinstance(found, (int, float))


@pytest.fixture(scope="module", params=["in memory", "in a file", "compressed"])
def stored(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Random rows, and a table of them."""
    choose = random.Random(request.param)
    rows = [value(choose, 0) for _ in range(4_000)]
    place = ":memory:" if request.param == "in memory" else tmp_path_factory.mktemp("nested") / "rows.pel"
    with pellucid.open(place) as db:
        table = db.table("t", compress=True) if request.param == "compressed" else db.table("t")
        table.extend(rows)
        yield rows, table


@pytest.mark.parametrize("path", PATHS, ids=shown)
def test_a_path_leads_to_what_stands_there(stored: tuple[list[Any], Any], path: Path) -> None:
    (rows, table), asked = stored, field(path)
    everything = [list(reach(row, path)) for row in rows]
    flat = [found for several in everything for found in several]
    assert len(flat) >= 5
    if EACH not in path:
        assert table.column(asked) == [several[0] if several else None for several in everything]
        groups = table.group_by(at=asked).agg(n=count())
        texts = Counter(found for found in flat if isinstance(found, str))
        assert {group["at"]: group["n"] for group in groups if isinstance(group["at"], str)} == texts
        between = table.where(asked.between(-80_000, 500)).order_by(asked, KEY)
        inside = [
            (several[0], number)
            for number, several in enumerate(everything)
            if several and is_number(several[0]) and -80_000 <= several[0] <= 500
        ]
        assert list(between.keys()) == [number for _, number in sorted(inside)]
        assert list(between.limit(5).keys()) == [number for _, number in sorted(inside)[:5]]
        strings = table.where(asked.startswith("")).select(at=asked)
        expected = [found for found in flat if isinstance(found, str)]
        assert pyarrow.table(strings).column("at").to_pylist() == expected
    numbers = [found for found in flat if is_number(found)]
    # pellucid rounds a sum with floats once, at its end.
    exact = sum(map(Fraction, numbers)) if any(isinstance(one, float) for one in numbers) else sum(numbers)
    assert table.sum(asked) == (float(exact) if isinstance(exact, Fraction) else exact)
    assert table.where(asked.exists()).count() == sum(map(bool, everything))
    counted(table, asked, everything)
    table.create_index("at", asked)
    try:
        counted(table, asked, everything)
        entries = {(found, key) for found, key in table.index("at") if isinstance(found, str)}
        texts_in = {(found, key) for key, s in enumerate(everything) for found in s if isinstance(found, str)}
        assert entries == texts_in
    finally:
        table.drop_index("at")


def counted(table: Any, asked: Any, everything: list[list[Any]]) -> None:
    for one in SCALARS:
        if one is not None:
            equal = sum(any(is_number(f) == is_number(one) and f == one for f in s) for s in everything)
            assert table.where(asked == one).count() == equal, one
    for bound in (0, 100, 0.25):
        above = sum(any(is_number(found) and found > bound for found in s) for s in everything)
        assert table.where(asked > bound).count() == above, bound
    for text in LARGE:
        assert table.where(asked == text).count() == sum(text in several for several in everything)
