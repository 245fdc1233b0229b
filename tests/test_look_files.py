"""What is shown of tables in a file, in a prompt and in a notebook, whatever the backend is."""

from __future__ import annotations

import dataclasses
import io
import math
import pickle
import pprint
import pydoc
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pellucid
import pytest

ASKED = ("_repr_html_", "_ipython_key_completions_")


@pytest.fixture
def table() -> Any:
    return pellucid.open(":memory:").table("t")


# Records: a field always wins


@pytest.mark.parametrize("name", ASKED)
def test_what_a_notebook_asks_a_record_for_is_its_field_if_it_has_one(name: str, table: Any) -> None:
    table[1] = {"a": 1}
    assert callable(getattr(table[1], name))
    table[1][name] = "mine"
    assert getattr(table[1], name) == "mine"
    assert table[1] == {"a": 1, name: "mine"}
    setattr(table[1], name, "again")
    assert table[1][name] == "again"
    assert pellucid.view(pellucid.dumps({name: 5}))[name] == 5
    delattr(table[1], name)
    assert table[1] == {"a": 1}
    assert callable(getattr(table[1], name))


def test_no_other_name_of_a_record_is_served(table: Any) -> None:
    table[1] = {"a": 1}
    for name in ("_repr_mimebundle_", "_ipython_display_", "_repr_json_", "head", "insert"):
        assert not hasattr(table[1], name)
    assert not set(ASKED) & set(dir(table[1]))
    assert table[1]._ipython_key_completions_() == ["a"]


def test_where_ipython_runs_its_registry_shows_records() -> None:
    # A process of its own, with what pellucid asks of IPython.
    program = """if True:
        import sys, types
        seen = {}
        formatter = types.SimpleNamespace(for_type=seen.__setitem__)
        display = types.SimpleNamespace(formatters={"text/html": formatter})
        shell = types.SimpleNamespace(display_formatter=display)
        sys.modules["IPython"] = types.SimpleNamespace(get_ipython=lambda: shell)
        import functools
        generics = types.SimpleNamespace(complete_object=functools.singledispatch(lambda thing, names: names))
        sys.modules["IPython.utils.generics"] = generics
        import pellucid
        table = pellucid.open(":memory:").table("t")
        print(*generics.complete_object(table, ["head", "insert", "height", "items"]))
        record = pellucid.view(pellucid.dumps({"_repr_html_": "mine", "a": "<b>"}))
        print(seen[pellucid.Record](record))
        print(record._repr_html_)
    """
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    completed, html, field = done.stdout.splitlines()
    assert completed == "head items"
    assert "&lt;b&gt;" in html
    assert field == "mine"


def test_an_ipython_without_a_shell_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from pellucid.look import notebook

    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: None))
    notebook.register()


# Text


def test_pprint_breaks_the_lines_of_records_and_lists(table: Any) -> None:
    value = {"name": "Ann Lee" * 4, "at": {"city": "Bath" * 5, "zip": ["B" * 30, "C" * 30]}, "n": [1] * 40}
    table[1] = value
    assert pprint.pformat(table[1]) == pprint.pformat(value)
    assert pprint.pformat([table[1].at, table[1].n]) == pprint.pformat([value["at"], value["n"]])
    assert pprint.pformat(table[1], sort_dicts=False, width=40) == pprint.pformat(
        value, sort_dicts=False, width=40
    )
    assert pprint.pformat({"a": 1}) == "{'a': 1}"


def test_a_large_value_is_shown_by_its_size(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "a.pel") as db:
        table = db.table("t")
        table[1] = {"big": "x" * 5_000_000, "list": [b"y" * 5_000_000], "short": 1}
        assert "5000000" in repr(table)
        assert "stored apart" in table[1]._repr_html_()
        assert "5000000" in table._repr_html_()
        assert "5000000" in table[1]._repr_html_()
        assert "5000000" in repr(table.head())
        assert [field["types"] for field in table.fields(exact=True)] == ["str", "list", "bytes", "int"]


def test_wide_rows_are_cut(table: Any) -> None:
    table.extend({f"field {number}": number for number in range(10_000)} for _ in range(3))
    text = repr(table)
    assert len(text) < 2000
    assert "other fields: field" in text
    assert len(table._repr_html_()) < 10_000
    assert len(table[0]._repr_html_()) < 20_000
    assert "and 9,900 more" in table[0]._repr_html_()


def test_deep_and_long_values_are_cut(table: Any) -> None:
    deep: Any = 1
    for _ in range(25):
        deep = {"in": [deep]}
    table[1] = {"deep": deep, "long": list(range(100_000)), "tuple": tuple(range(9)), "empty": {}}
    assert len(repr(table.head())) < 500
    assert len(table._repr_html_()) < 2000


class Odd:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


def test_a_value_whose_repr_fails_is_named_by_its_class(table: Any) -> None:
    from pellucid.look import text

    assert text.cell(Odd()) == "<Odd, RuntimeError>"
    assert text.cell([Odd()]) == "[<Odd, RuntimeError>]"
    assert text.cell(math.pi, 6) == "3.141\u2026"
    assert text.cell("\u65e5\u672c\u8a9e", 5) == "\u65e5\u672c\u2026"
    assert text.cell((1,)) == "(1,)"


@dataclasses.dataclass
class Broken:
    a: int

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError("no field")


def test_a_row_whose_fields_cannot_be_had_is_named_by_its_class() -> None:
    db = pellucid.open(":memory:")
    db.table("t")[1] = {"a": 5}
    rows = db.table("t", type=Broken).head()
    assert "<Broken, RuntimeError>" in repr(rows)
    assert "&lt;Broken, RuntimeError&gt;" in rows._repr_html_()


def test_a_value_that_cannot_be_read_is_shown_by_its_error(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "a.pel", pickle="allow") as db:
        db.table("t")[1] = {"a": 1, "it": io.BytesIO(b"x")}
    with pellucid.open(tmp_path / "a.pel") as db:
        assert "<PickleDenied>" in repr(db.table("t"))
        assert "&lt;PickleDenied&gt;" in db.table("t")._repr_html_()
        assert [field["types"] for field in db.table("t").fields()] == ["int", "pickle"]


def test_a_closed_or_dropped_table_has_a_repr(tmp_path: Path) -> None:
    with pellucid.open(tmp_path / "a.pel") as db:
        table, gone = db.table("t"), db.table("gone")
        table[1], gone[1] = {"a": 1}, {"secret": 1}
        db.drop_table("gone")
        db.table("gone")[1] = {"other": 1}
        assert "StaleTable" in repr(gone)
        assert "other" not in repr(gone)
        assert "StaleTable" in gone._repr_html_()
    assert repr(table).endswith("closed>")
    for thing in (table, db):
        assert "closed" in thing._repr_html_()


def test_help_and_dir_of_a_class_have_no_words_that_are_only_hints() -> None:
    for cls in (pellucid.Table, pellucid.Database, pellucid.Snapshot):
        assert "insert" not in dir(cls)
        assert {"values", "head", "__getitem__"} <= set(dir(cls))
        text = pydoc.plain(pydoc.render_doc(cls))
        assert "insert_many" not in text
        assert "head(" in text
        with pytest.raises(AttributeError, match='has no attribute "insert"; table'):
            _ = cls.insert  # type: ignore[attr-defined]
        assert isinstance(cls, type)
        assert pickle.loads(pickle.dumps(cls)) is cls


def test_a_list_of_rows_is_a_list(table: Any) -> None:
    table.extend([{"n": 1}, {"n": 2}])
    rows = table.head()
    assert isinstance(rows, list)
    assert rows + rows == [{"n": 1}, {"n": 2}] * 2
    del rows[0]
    # The keys would be those of other rows.
    assert repr(rows) == "n\n2"
    rows = table.head()
    assert repr(rows) == "key  n\n  0  1\n  1  2"
    rows.reverse()
    assert repr(rows) == "n\n2\n1"
    assert type(rows[:1]) is list


# Fields of many rows


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("look") / "many.pel"
    with pellucid.open(path) as db:
        db.table("t").extend(many_rows())
    with pellucid.open(path, "r") as db:
        yield db.table("t")


MANY = 120_000


def many_rows() -> Any:
    for number in range(MANY):
        row: dict[str, Any] = {"id": number, "group": number % 7, "half": number / 2}
        row["name"] = f"n{number % 3000}"
        row["at"] = {"x": number % 100}
        if number % 40_000 == 39_999:
            row["rare"] = number
            row["at"]["deep"] = {"rarest": "here"}
        yield row


@pytest.mark.parametrize("exact", [False, True])
def test_a_path_that_few_of_many_rows_have_is_listed(exact: bool, many: Any) -> None:
    fields = {field["path"]: field for field in many.fields(exact=exact)}
    assert set(fields) == {
        "id", "group", "half", "name", "at", "at.x", "rare", "at.deep", "at.deep.rarest"
    }  # fmt: skip
    assert (fields["rare"]["rows"], fields["at.deep.rarest"]["rows"]) == (3, 3)
    assert fields["at.deep.rarest"]["example"] == "here"
    assert fields["rare"]["share"] == 2.5e-05
    assert fields["id"]["rows"] == MANY


def test_exact_fields_of_many_rows_have_all_their_values(many: Any) -> None:
    fields = {field["path"]: field for field in many.fields(exact=True)}
    assert (fields["id"]["min"], fields["id"]["max"]) == (0, MANY - 1)
    assert fields["group"]["distinct"] == 7
    for path, distinct in (("id", MANY), ("half", MANY), ("name", 3000)):
        assert fields[path]["distinct"] == pytest.approx(distinct, rel=0.03)


def test_fields_of_a_sample_say_so_and_estimate(many: Any) -> None:
    found = many.fields()
    assert "rows by chance; fields(exact=True) reads all" in found.note
    assert found.note in repr(found)
    assert found.note in found._repr_html_()
    fields = {field["path"]: field for field in found}
    assert fields["group"]["distinct"] == 7
    assert fields["id"]["distinct"] == pytest.approx(MANY, rel=0.2)
    assert fields["name"]["distinct"] == pytest.approx(3000, rel=0.2)
    assert 0 <= fields["id"]["min"] < MANY // 100


def test_threads_do_not_change_exact_fields(many: Any) -> None:
    found = {}
    for count in (1, 2, 5):
        pellucid.set_threads(count)
        try:
            found[count] = sorted(many.fields(exact=True), key=lambda field: field["path"])
        finally:
            pellucid.set_threads(None)
    for field in (field for fields in found.values() for field in fields):
        field["example"] = None
    assert found[1] == found[2] == found[5]


def test_rows_with_more_paths_than_are_listed_say_so(table: Any) -> None:
    table.extend({f"k{row}_{number}": number for number in range(400)} for row in range(40))
    found = table.fields()
    assert len(found) == 9_999
    assert "there are more paths" in found.note


@pytest.mark.parametrize("word", ["append", "increment", "put_if_absent", "get_or_create", "claim", "run"])
def test_a_verb_that_a_snapshot_lacks_says_that_it_does_not_change(word: str) -> None:
    snapshot = pellucid.open(":memory:").snapshot()
    with pytest.raises(AttributeError, match="a snapshot does not change; write through the database"):
        getattr(snapshot, word)
