"""What is in a table? The words that show it, on every backend."""

from __future__ import annotations

import dataclasses
import math
import random
import statistics
from decimal import Decimal
from typing import Any

import pellucid
import pytest
from pellucid import F

Database = pellucid.Database


@pytest.fixture
def people(db: Database) -> Any:
    table = db.table("people")
    table.update(
        ann={"name": "Ann", "age": 30, "at": {"city": "Bath"}},
        bob={"name": "Bob", "age": 20, "at": {"city": "York"}},
        cid={"name": "Cid", "age": 41, "at": {"city": "Bath"}, "tags": ["a", "b"]},
        dan={"name": "Dan"},
    )
    return table


def test_head_and_tail_are_the_rows_at_both_ends_in_the_order_of_keys(people: Any) -> None:
    assert [row.name for row in people.head(2)] == ["Ann", "Bob"]
    assert [row.name for row in people.tail(2)] == ["Cid", "Dan"]
    assert people.head() == people.tail() == people.to_list()
    assert people.head(0) == people.tail(0) == []
    assert people.head(2)[0].at.city == "Bath"


def test_a_database_and_a_snapshot_have_the_words_of_their_default_table(db: Database) -> None:
    db.update({number: {"n": number} for number in range(9)})
    with db.snapshot() as before:
        db[9] = {"n": 9}
        for mapping, last in ((db, 9), (before, 8)):
            assert [row.n for row in mapping.tail(1)] == [last]
            assert [row.n for row in mapping.head(1)] == [0]
            assert len(mapping.sample(100)) == last + 1
            assert [field["path"] for field in mapping.fields()] == ["n"]
            assert mapping.describe()[0]["max"] == last
            assert mapping.value_counts("n", limit=1) == [{"value": 0, "count": 1}]
            assert mapping._ipython_key_completions_() == list(range(last + 1))


def test_a_sample_has_different_rows_and_a_seed_gives_the_same_again(db: Database) -> None:
    table = db.table("t")
    table.extend({"n": number} for number in range(300))
    chosen = [row.n for row in table.sample(20, seed=5)]
    assert len(set(chosen)) == 20
    assert chosen == sorted(chosen) == [row.n for row in table.sample(20, seed=5)]
    assert any([row.n for row in table.sample(20)] != chosen for _ in range(3))
    assert [row.n for row in table.sample(1000)] == list(range(300))


def test_a_sample_is_of_all_rows(db: Database) -> None:
    table = db.table("t")
    table.extend({"n": number} for number in range(50))
    seen = {row.n for seed in range(100) for row in table.sample(5, seed=seed)}
    assert seen == set(range(50))


@pytest.mark.parametrize("word", ["head", "tail", "sample"])
def test_a_count_of_rows_is_an_int_from_0_on(word: str, people: Any) -> None:
    with pytest.raises(ValueError, match=rf"{word}\(\) takes a count from 0 on, not -1"):
        getattr(people, word)(-1)
    for wrong in (1.5, "2", True, None):
        with pytest.raises(TypeError, match=rf"{word}\(\) takes a count, an int, not"):
            getattr(people, word)(wrong)
    assert len(getattr(people, word)(2**70)) == 4


def test_an_empty_table_has_nothing_to_show(db: Database) -> None:
    for table in (db, db.table("none")):
        assert table.head() == table.tail() == table.sample() == table.sample(3, seed=1) == []
        assert table.fields() == table.fields(exact=True) == table.describe() == []
        assert table.value_counts("x") == []
        assert repr(table.head()) == repr(table.fields()) == "[]"
        assert "<table" in table._repr_html_()


def test_value_counts_has_the_most_frequent_value_first(people: Any) -> None:
    assert people.value_counts("at.city") == [
        {"value": "Bath", "count": 2},
        {"value": "York", "count": 1},
        {"value": None, "count": 1},
    ]
    assert people.value_counts(("at", "city"), limit=1) == [{"value": "Bath", "count": 2}]
    assert people.value_counts(F.age >= 20)[0] == {"value": True, "count": 3}


def by_path(fields: Any) -> dict[str, dict[str, Any]]:
    return {field["path"]: field for field in fields}


@pytest.mark.parametrize("exact", [False, True])
def test_fields_lists_each_path_with_its_types_and_how_often_it_is_there(people: Any, exact: bool) -> None:
    found = people.fields(exact=exact)
    assert [field["path"] for field in found] == ["name", "age", "at", "at.city", "tags", "tags[*]"]
    fields = by_path(found)
    assert fields["age"] == {
        "path": "age",
        "types": "int",
        "share": 0.75,
        "rows": 3,
        "distinct": 3,
        "min": 20,
        "max": 41,
        "example": 30,
    }
    assert (fields["at.city"]["distinct"], fields["at.city"]["min"]) == (2, "Bath")
    assert (fields["at"]["types"], fields["at"]["distinct"], fields["at"]["example"]) == ("dict", None, None)
    assert (fields["tags"]["rows"], fields["tags"]["example"]) == (1, ["a", "b"])
    assert (fields["tags[*]"]["rows"], fields["tags[*]"]["max"]) == (1, "b")


def test_fields_names_what_is_no_dict_and_what_is_no_name(db: Database) -> None:
    table = db.table("t")
    table.update({1: 5, 2: {"two words": 1, 7: "x", (1, 2): None, "and": True}})
    fields = by_path(table.fields())
    assert set(fields) == {"record()", "`two words`", "record()[7]", "record()[(1, 2)]", "`and`"}
    assert fields["record()"]["types"] in ("int, dict", "dict, int")
    # Each is an expression that finds the value.
    assert table.where(pellucid.parse("`and`")).count() == 1
    for path in ("`two words`", "record()[7]", "`and`"):
        assert table.count(pellucid.parse(path)) == 1, path


def test_fields_of_mixed_types_have_the_ends_of_the_most_frequent_one(db: Database) -> None:
    table = db.table("t")
    values: list[Any] = [3, 1.5, True, None, "x", Decimal("2.5"), math.nan, "y", b"z", 7]
    table.extend({"v": value} for value in values)
    [field] = table.fields()
    assert set(field["types"].split(", ")) == {"int", "float", "bool", "None", "str", "Decimal", "bytes"}
    assert (field["min"], field["max"]) == (True, 7)
    assert field["distinct"] == 9
    assert field["rows"] == 10


def test_fields_of_random_rows_are_those_that_a_loop_finds(db: Database) -> None:
    chance = random.Random(3)

    def value(depth: int) -> Any:
        kind = chance.randrange(8 if depth < 3 else 5)
        if kind == 0:
            return chance.randrange(100)
        if kind == 1:
            return chance.random()
        if kind == 2:
            return chance.choice("abcdef") * 20
        if kind in (3, 4):
            return chance.choice([None, True, 2**70])
        if kind == 5:
            return [value(depth + 1) for _ in range(chance.randrange(4))]
        return {chance.choice("abcdefgh"): value(depth + 1) for _ in range(chance.randrange(5))}

    rows = [{chance.choice("abcdefgh"): value(0) for _ in range(6)} for _ in range(200)]
    expected: dict[str, list[tuple[int, Any]]] = {}

    def walk(number: int, path: str, found: Any) -> None:
        if path:
            expected.setdefault(path, []).append((number, found))
        if isinstance(found, dict):
            for name, part in found.items():
                walk(number, f"{path}.{name}" if path else name, part)
        elif isinstance(found, list):
            for part in found:
                walk(number, f"{path}[*]", part)

    for number, row in enumerate(rows):
        walk(number, "", row)
    table = db.table("t")
    table.extend(rows)
    for exact in (False, True):
        fields = by_path(table.fields(exact=exact))
        assert set(fields) == set(expected)
        for path, field in fields.items():
            values = [part for _, part in expected[path]]
            assert field["rows"] == len({number for number, _ in expected[path]}), path
            assert set(field["types"].split(", ")) == {
                "None" if part is None else type(part).__name__ for part in values
            }
            scalars = [part for part in values if not isinstance(part, (list, dict, type(None)))]
            assert field["distinct"] == (len(set(scalars)) if scalars else None), path


def test_fields_of_a_class_are_those_of_its_rows(db: Database) -> None:
    @dataclasses.dataclass
    class Person:
        name: str
        age: int

    table = db.table("people", type=Person)
    table["ann"] = Person("Ann", 30)
    assert [field["path"] for field in table.fields()] == ["name", "age"]
    assert "Ann" in repr(table)
    assert "Ann" in repr(table.head())
    assert "Ann" in table._repr_html_()
    # A row that is no instance of the class is shown, too.
    db.table("people")["bob"] = {"nick": "Bobby"}
    assert "Bobby" in repr(table)


def test_fields_takes_a_bool(people: Any) -> None:
    with pytest.raises(TypeError, match="exact=True or exact=False, not str"):
        people.fields(exact="all")


def test_describe_has_the_figures_of_numbers(db: Database) -> None:
    chance = random.Random(4)
    values = [chance.uniform(-5, 50) for _ in range(101)]
    table = db.table("t")
    table.extend({"v": value, "name": "x", "ok": True, "at": {"n": 1}} for value in values)
    table.extend([{"v": math.nan}, {"v": None}, {"v": "text"}, {"v": -math.inf}, {"v": 2**2000}])
    [figures, nested] = table.describe()
    assert (figures["path"], figures["count"], nested["path"]) == ("v", 101, "at.n")
    assert (figures["min"], figures["max"]) == (min(values), max(values))
    assert figures["mean"] == pytest.approx(statistics.fmean(values))
    assert figures["std"] == pytest.approx(statistics.stdev(values))
    quartiles = statistics.quantiles(values, n=4, method="inclusive")
    assert [figures["25%"], figures["50%"], figures["75%"]] == pytest.approx(quartiles)
    assert (nested["std"], nested["mean"]) == (0.0, 1.0)


@pytest.mark.parametrize("values", [[1e200, -1e200], [1e308, 1e308], [-1e308, 1e308], [10**308, -(10**308)]])
def test_describe_has_the_figures_of_the_largest_numbers(db: Database, values: list[float]) -> None:
    db.extend({"n": value} for value in values)
    [figures] = db.describe()
    mean = values[0] / 2 + values[1] / 2
    assert figures["mean"] == figures["50%"] == mean
    assert figures["25%"] == min(values) / 2 + mean / 2
    assert (figures["min"], figures["max"]) == (min(values), max(values))
    assert figures["std"] == pytest.approx(abs(values[0] / 2 - values[1] / 2) * 2**0.5)


def test_describe_takes_what_overflows_in_between(db: Database) -> None:
    db.update(
        {1: {"f": 1e300, "n": 2**63 - 1}, 2: {"f": -1.7e308, "n": -(2**63)}, 3: {"f": 1.7e308, "n": 2.5}}
    )
    db.update({4: {"d": Decimal("1e300"), "big": 2**70}, 5: {"d": Decimal("-1e300"), "big": 1e300}})
    found = {figures["path"]: figures for figures in db.describe()}
    assert (found["f"]["min"], found["f"]["max"]) == (-1.7e308, 1.7e308)
    assert found["f"]["std"] == pytest.approx(1.7e308)
    assert (found["n"]["min"], found["n"]["max"], found["n"]["50%"]) == (-(2**63), 2**63 - 1, 2.5)
    assert found["n"]["mean"] == 0.5
    assert (found["d"]["count"], found["big"]["min"], found["big"]["max"]) == (2, 2**70, 1e300)


def test_describe_takes_decimals_and_ints_of_any_size(db: Database) -> None:
    db.update({1: {"d": Decimal("1.5"), "n": 2**70}, 2: {"d": Decimal("NaN"), "n": 1}, 3: {"d": Decimal(3)}})
    found = {figures["path"]: figures for figures in db.describe()}
    assert (found["d"]["count"], found["d"]["mean"], found["d"]["max"]) == (2, 2.25, 3)
    assert (found["n"]["min"], found["n"]["max"]) == (1, 2**70)


@pytest.mark.parametrize(
    ("values", "mean", "deviation"),
    [
        ([1e200, -1e200], 0.0, math.sqrt(2) * 1e200),
        ([1e308, 1e308], 1e308, 0.0),
        ([1.7e308, -1.7e308], 0.0, math.inf),
        ([2**1000, 0], 2.0**999, math.sqrt(0.5) * 2.0**1000),
    ],
)
def test_describe_takes_numbers_whose_squares_are_no_float(
    values: list[float], mean: float, deviation: float, db: Database
) -> None:
    db.extend({"n": value} for value in values)
    [found] = db.describe()
    assert (found["count"], found["min"], found["max"]) == (2, min(values), max(values))
    assert (found["mean"], found["50%"]) == (pytest.approx(mean), pytest.approx(mean))
    assert found["std"] == pytest.approx(deviation)
    assert found["25%"] == pytest.approx(found["min"] / 4 * 3 + found["max"] / 4)


def test_one_number_has_no_standard_deviation(db: Database) -> None:
    db[1] = {"n": 5}
    assert db.describe() == [
        {"path": "n", "count": 1, "mean": 5, "std": None, "min": 5, "25%": 5, "50%": 5, "75%": 5, "max": 5}
    ]


def test_repr_of_a_table_shows_its_first_rows(people: Any) -> None:
    head, names, *rows = repr(people).split("\n")
    assert head.endswith("4 rows>")
    assert names.split() == ["key", "name", "age", "at", "tags"]
    assert rows[0].split(maxsplit=3) == ["'ann'", "Ann", "30", "{'city': 'Bath'}"]
    assert rows[3].split() == ["'dan'", "Dan"]
    people.extend({"n": number} for number in range(20))
    assert repr(people).endswith("\u2026")


def test_names_that_begin_alike_have_columns_of_their_own(db: Database) -> None:
    db[1] = {"x" * 50 + "1": 11, "x" * 50 + "2": 22}
    db[2] = {7: 33, "7": 44}
    assert all(str(number) in db._repr_html_() + repr(db.head()) for number in (11, 22, 33, 44))
    assert repr(db.head(1)).split()[-2:] == ["11", "22"]


def test_a_text_is_no_wider_than_the_terminal(people: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    people["wide"] = {f"field {number}": "x" * 200 for number in range(60)}
    for columns in (30, 80, 200):
        monkeypatch.setenv("COLUMNS", str(columns))
        for text in (repr(people).partition("\n")[2], repr(people.tail(2)), repr(people.fields())):
            assert max(map(len, text.split("\n"))) <= columns


def test_keys_are_completed(people: Any) -> None:
    assert people._ipython_key_completions_() == ["ann", "bob", "cid", "dan"]


def test_html_shows_rows_and_tables(db: Database, people: Any) -> None:
    assert people._repr_html_().count("<tr>") == 5
    assert people.where(F.age > 25)._repr_html_().count("<tr>") == 3
    assert people.select("name")._repr_html_().count("<td>") == 4
    assert "<td>Bath</td><td>2</td>" in people.group_by("at.city")._repr_html_()
    assert "<td>people</td><td>4</td>" in db._repr_html_()
    with db.snapshot() as before:
        assert "<td>people</td><td>4</td>" in before._repr_html_()
    assert "<td>age</td><td>30</td>" in people["ann"]._repr_html_()
    assert people["cid"].tags._repr_html_().count("<tr>") == 2
    assert people.head(2)._repr_html_().count("<tr>") == 3


def test_html_of_a_stranger_is_escaped(db: Database) -> None:
    hostile = '<img src=x onerror="alert(1)">\x1b]0;x\x07\u202e&'
    table = db.table("<b>")
    table[hostile] = {hostile: hostile, "in": {hostile: [hostile]}, "list": [hostile]}
    things = [db, table, table.where(F["in"].exists()), table.where(F[hostile] == hostile), table[hostile]]
    things += [table[hostile].list, table.head(), table.group_by(F[hostile]), table.fields()]
    for thing in things:
        text = thing._repr_html_()
        assert "<img" not in text
        assert "<b>" not in text
        assert not set("\x1b\x07\u202e") & set(text)
        assert "onerror=&quot;" in text or thing is db
    for thing in (table, table.head(), table.fields(), table.value_counts(F[hostile])):
        assert not set("\x1b\x07\u202e") & set(repr(thing))


WRONG = {
    "insert": r"table\[key\] = value stores a row",
    "insert_many": r"extend\(rows\) appends rows",
    "upsert": r"table\[key\] = value stores a row or replaces it",
    "search": r"where\(F.city == \"Bath\"\)",
    "delete": r"del table\[key\] deletes a row",
    "rename": r"rename_table\(",
    "to_csv": r"pellucid.export_to\(table",
    "read_csv": r"pellucid.import_from\(",
    "commit": "each write is a commit of its own",
    "groupby": r"group_by\(\"city\"\)",
    "columns": r"fields\(\) lists the fields",
    "shape": r"len\(table\)",
    "loc": r"table\[key\] is the row",
    "exists": "`key in table`",
    "sql": "DuckDB",
    "cursor": r"cursor\(row\)",
}


@pytest.mark.parametrize("word", WRONG)
def test_a_name_of_other_libraries_gets_a_hint(word: str, db: Database) -> None:
    for thing in (db, db.table("people"), db.snapshot()):
        assert not hasattr(thing, word)
        assert word not in dir(thing)
        with pytest.raises(AttributeError, match=WRONG[word]):
            getattr(thing, word)


def test_a_name_that_no_library_has_is_an_attribute_error(db: Database) -> None:
    for thing in (db, db.table("people")):
        with pytest.raises(AttributeError, match="qwertz"):
            _ = thing.qwertz
