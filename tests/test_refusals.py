"""Does a refusal say what was refused, where, and what to do now?"""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import io
import pathlib
import sys
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pandas
import pellucid
import pytest
from pellucid import F


class Thing:
    def __init__(self, name: str = "a") -> None:
        self.name = name


class Coded(Thing):
    """One whose decode function goes wrong."""


@dataclasses.dataclass
class Person:
    name: str
    age: int = 0


class Movie(typing.TypedDict):
    title: str


class Named(typing.Protocol):
    name: str


def raises(error: type[BaseException]) -> Callable[[object], Thing]:
    def decode(_value: object) -> Thing:
        raise error("the class has changed")

    return decode


@pytest.fixture
def vanished() -> Iterator[types.ModuleType]:
    """A module with a class, which can be taken away."""
    module = types.ModuleType("vanished_module")
    module.Gone = type("Gone", (), {"__module__": "vanished_module"})  # type: ignore[attr-defined]
    sys.modules["vanished_module"] = module
    yield module
    sys.modules.pop("vanished_module", None)


# A stored object that cannot be made


@pytest.mark.parametrize("error", [AttributeError, KeyError])
def test_a_decode_function_that_fails_does_not_make_the_field_absent(
    db: pellucid.Database, error: type[Exception]
) -> None:
    pellucid.register(Coded, lambda thing: thing.name, raises(error))
    db["a"] = {"o": Coded(), "l": [Coded()], "n": 1, "d": {"deep": Coded()}}
    record = db["a"]
    reads: list[tuple[Callable[[], object], str]] = [
        (lambda: getattr(record, "o", None), r'\["o"\] of record'),
        (lambda: hasattr(record, "o"), r'\["o"\] of record'),
        (lambda: record["o"], r'\["o"\] of record'),
        (lambda: record.get("o"), r'\["o"\] of record'),
        (lambda: record.path("o"), r'\["o"\] of record'),
        (lambda: record.d.deep, r'\["d"\]\["deep"\] of record'),
        (lambda: record.l[0], r'\["l"\]\[0\] of record'),
        (record.to_dict, "^record"),
        (lambda: list(record.items()), r'\["o"\] of record'),
        (lambda: db.column("o"), "^record"),
    ]
    for read, place in reads:
        with pytest.raises(pellucid.UnreadableValue, match=place) as told:
            read()
        assert isinstance(told.value.__cause__, error)
        assert "'a' of table \"default\" cannot be read: its decode function" in str(told.value)
        assert f"raised {error.__name__}: " in str(told.value)
    assert (record.n, hasattr(record, "m")) == (1, False)


def test_other_errors_of_a_decode_function_keep_their_class_and_get_the_place(db: pellucid.Database) -> None:
    pellucid.register(Coded, lambda thing: thing.name, raises(ZeroDivisionError))
    db["a"] = {"o": Coded()}
    with pytest.raises(ZeroDivisionError, match="the class has changed") as told:
        _ = db["a"].o
    if sys.version_info >= (3, 11):
        assert told.value.__notes__ == [
            '["o"] of record \'a\' of table "default" cannot be read: its decode function, or what its '
            "pickle calls, raised ZeroDivisionError"
        ]


def test_a_pickle_whose_class_is_gone_does_not_make_the_field_absent(
    path: Path, vanished: types.ModuleType
) -> None:
    with pellucid.open(path, pickle="allow") as db:
        db["a"] = {"o": vanished.Gone(), "n": 1}
        assert hasattr(db["a"], "o")
        del vanished.Gone
        with pytest.raises(pellucid.UnreadableValue, match=r'\["o"\] of record \'a\'.*Gone'):
            getattr(db["a"], "o", None)
        assert db["a"].n == 1


def test_a_denied_pickle_says_where_it_is_and_what_it_wants(path: Path, vanished: types.ModuleType) -> None:
    with pellucid.open(path, pickle="allow") as db:
        db["a"] = {"o": vanished.Gone(), "l": [1, vanished.Gone()], "n": 1}
    with pellucid.open(path) as db:
        with pytest.raises(pellucid.PickleDenied) as told:
            _ = db["a"].o
        assert str(told.value) == (
            '["o"] of record \'a\' of table "default": a stored value is a pickle of '
            '"vanished_module.Gone", and pickles are denied; open with pickle="allow", or with '
            'pickle=["vanished_module.Gone"], if you trust the file\'s author'
        )
        with pytest.raises(pellucid.PickleDenied, match=r'^\["l"\]\[1\] of record \'a\''):
            _ = db["a"].l[1]
        with pytest.raises(pellucid.PickleDenied, match=r"^record 'a' of table"):
            db["a"].to_dict()
    with (
        pellucid.open(path, pickle=["other.Class"]) as db,
        pytest.raises(
            pellucid.PickleDenied, match=r'^\["o"\] of record \'a\' of table "default": a stored pickle wants'
        ),
    ):
        _ = db["a"].o


def test_an_unregistered_type_says_where_it_is(db: pellucid.Database) -> None:
    from pellucid import objects

    pellucid.register(Coded, lambda thing: thing.name, Coded)
    db["a"] = {"o": Coded(), "both": [Coded(), {"x": Coded()}]}
    decode = objects._BY_NAME.pop(f"{Coded.__module__}.Coded")
    try:
        with pytest.raises(
            pellucid.UnregisteredType, match=r'^\["both"\]\[1\]\["x"\] of record \'a\' of table'
        ):
            _ = db["a"].both[1].x
        with pytest.raises(
            pellucid.UnregisteredType, match=r"^record 'a' of table \"default\": a stored object"
        ):
            db["a"].to_dict()
    finally:
        objects._BY_NAME[f"{Coded.__module__}.Coded"] = decode


# A value that cannot be pickled


def test_a_pickle_that_could_not_be_read_back_is_refused_with_its_place(path: Path) -> None:
    with (
        pellucid.open(path, pickle=["test_refusals.Other"]) as db,
        pytest.raises(pellucid.PickleDenied) as told,
    ):
        db["a"] = {"deep": [1, Thing()]}
    message = str(told.value)
    assert message.startswith(
        "the value for key 'a' of table \"default\" at ['deep'][1], of type test_refusals.Thing, "
    )
    assert "its pickle wants 'test_refusals.Thing'" in message
    assert "stored pickle" not in message
    assert "add it to pickle=[...]" in message


@pytest.mark.parametrize("value", [lambda: 1, (n for n in [1])])
def test_what_cannot_be_pickled_is_unsupported_with_its_place_and_cause(value: Any) -> None:
    db = pellucid.open(":memory:", pickle="allow")
    with pytest.raises(
        pellucid.UnsupportedValue,
        match=r"^the value for key 'a' .* at \['x'\]\[0\], of type .*cannot be pickled: ",
    ) as told:
        db["a"] = {"x": [value]}
    assert told.value.__cause__ is not None


@pytest.mark.parametrize(
    ("value", "advice"),
    [
        (lambda: 1, "store the function's name"),
        (print, "store the function's name"),
        ([].append, "store the function's name"),
        (Thing, "store the class's name"),
        (typing, "store the module's name"),
        (io.StringIO("x"), r"store what the file holds, value.read\(\)"),
        ((n for n in [1]), r"store list\(value\)"),
        (iter([1]), r"store list\(value\)"),
        (..., "store None"),
        (NotImplemented, "store None"),
    ],
)
def test_what_is_code_or_runs_gets_advice_that_works(db: pellucid.Database, value: Any, advice: str) -> None:
    with pytest.raises(pellucid.UnsupportedValue, match=advice) as told:
        db["a"] = {"n": value}
    assert "register" not in str(told.value)
    assert "pickle" not in str(told.value)


def test_the_missing_value_of_pandas_is_none(db: pellucid.Database) -> None:
    db["a"] = {"n": pandas.NA}
    assert db["a"].n is None
    # Such a table gives back what it was given.
    with pytest.raises(pellucid.UnsupportedValue, match=r"stands for no value; store None$"):
        db.table("objects", type=object)["a"] = pandas.NA


# Lists


def test_a_value_refused_by_a_list_is_told_with_its_place(db: pellucid.Database) -> None:
    db["l"] = []
    db["r"] = {"tags": ["a"]}
    refused: list[tuple[Callable[[], object], str]] = [
        (
            lambda: db["l"].append(Thing()),
            "the value to append to record 'l' of table \"default\" is of type",
        ),
        (lambda: db["l"].extend([1, Thing()]), "value 1 (from 0) to append to record 'l' of table"),
        (lambda: db["r"].tags.append(Thing()), "the value to append to [\"tags\"] of record 'r'"),
        (lambda: db["r"].tags.insert(0, Thing()), 'the value to insert at [0] of ["tags"] of record'),
        (lambda: db["r"].tags.__setitem__(0, Thing()), 'the value for ["tags"][0] of record'),
        (lambda: db["r"].tags.__setitem__(slice(0, 1), [1, Thing()]), 'the value for ["tags"][1] of record'),
        (
            lambda: db["r"].tags.append({"x": Thing()}),
            "the value to append to [\"tags\"] of record 'r' of table \"default\" at ['x']",
        ),
    ]
    for refuse, message in refused:
        with pytest.raises(pellucid.UnsupportedValue) as told:
            refuse()
        assert str(told.value).startswith(message)
    assert (db["l"], db["r"]) == ([], {"tags": ["a"]})


def test_a_key_that_no_record_has_names_the_record_and_the_types(db: pellucid.Database) -> None:
    db["a"] = {"n": 1}
    with pytest.raises(
        pellucid.UnsupportedValue,
        match=r"^<object object at .*> of type object cannot be a key in record 'a' .*; the keys .* are str",
    ):
        db["a"][object()] = 5


# Tables with a class


@pytest.mark.parametrize("where", [F.age >= 0, F.age > 99])
@pytest.mark.parametrize("changes", [{"foo": 1}, {"name": "x", "foo": F.age}])
def test_an_update_of_a_field_that_the_class_has_not_is_refused_before_anything_is_written(
    db: pellucid.Database, where: Any, changes: dict[str, Any]
) -> None:
    people = db.table("people", type=Person)
    people["a"] = Person("Ann")
    with pytest.raises(pellucid.WrongClass) as told:
        people.where(where).update(changes)
    assert str(told.value) == (
        "update() of table \"people\", which was opened with type=Person: Person has no field 'foo'; its "
        "fields are 'name', 'age'; nothing was written"
    )
    with pytest.raises(pellucid.WrongClass, match=r"^increment\(\) of table .* has no field 'foo'"):
        people.increment("a", "foo", default=0)
    assert people["a"] == Person("Ann")
    assert people.where().update(age=5) == 1
    assert people["a"] == Person("Ann", 5)


def test_a_record_with_a_field_more_says_what_can_be_done(db: pellucid.Database) -> None:
    db.table("people")["a"] = {"name": "Ann", "foo": 1}
    with pytest.raises(
        pellucid.WrongClass, match="give the class that field, delete it from the record, or read"
    ):
        _ = db.table("people", type=Person)["a"]
    db.table("people")["a"] = {"age": 1}
    with pytest.raises(
        pellucid.WrongClass, match="has no default for it; give it one, or read the record without"
    ):
        _ = db.table("people", type=Person)["a"]


@pytest.mark.parametrize(
    ("kind", "why"),
    [(Movie, "is a TypedDict"), (Named, "is a Protocol"), (typing.Any, "Any"), (list[Person], "not list")],
)
def test_a_type_that_has_no_instances_is_refused_at_once(db: pellucid.Database, kind: Any, why: str) -> None:
    with pytest.raises(TypeError, match=rf"^type= is the class that rows come back as, .*{why}"):
        db.table("movies", type=kind)


# Keys


@pytest.mark.parametrize(
    ("key", "instead"),
    [
        (enum.Enum("Colour", "RED").RED, r"use key.value, or key.name"),
        (pathlib.PurePosixPath("/x"), r"use str\(key\)"),
        (dt.time(1), r"use key.isoformat\(\)"),
        (dt.timedelta(1), r"use key.total_seconds\(\)"),
        (bytearray(b"x"), r"use bytes\(key\)"),
        (slice(1, 2), r"range\(start, stop\) gives the rows of a range of keys"),
    ],
)
def test_a_key_that_cannot_be_stored_says_what_can(db: pellucid.Database, key: Any, instead: str) -> None:
    with pytest.raises(pellucid.UnsupportedKey, match=f"; {instead}$"):
        db[key] = 1


def test_a_slice_is_no_missing_key(db: pellucid.Database) -> None:
    with pytest.raises(TypeError, match=r"range\(start, stop\) of a table"):
        _ = db[1:2]  # type: ignore[misc]


# Opening, closing, and transactions


@pytest.mark.parametrize("end", ["/", "//", "/."])
def test_a_path_that_ends_as_a_folders_does_creates_nothing(tmp_path: Path, end: str) -> None:
    for _ in range(2):
        with pytest.raises(IsADirectoryError, match=r"it ends with a slash.*leave the slash out"):
            pellucid.open(f"{tmp_path}/ts.pel{end}")
    assert list(tmp_path.iterdir()) == []
    pellucid.open(tmp_path / "ts.pel").close()
    with pytest.raises(IsADirectoryError, match="leave the slash out"):
        pellucid.open(f"{tmp_path}/ts.pel{end}")


@pytest.mark.parametrize("target", ["mysql://user:secret@host/shop", "host=here dbname=shop password=secret"])
def test_what_is_meant_for_a_server_gets_the_url_to_write(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="postgresql://user@host/database") as refused:
        pellucid.open(target)
    assert "secret" not in str(refused.value)
    assert list(tmp_path.iterdir()) == []


def test_a_file_with_the_name_of_a_connection_string_is_opened(tmp_path: Path) -> None:
    pellucid.open(tmp_path / "dbname=shop").close()
    with pellucid.open(str(tmp_path / "dbname=shop")) as db:
        assert db.tables() == []


def test_a_mapping_is_not_taken_for_rows(db: pellucid.Database) -> None:
    source = db.table("source")
    source["a"] = {"n": 1}
    mappings: list[Any] = [source, types.MappingProxyType({"a": {"n": 1}})]
    for mapping in mappings:
        with pytest.raises(TypeError, match=r"extend\(other\.values\(\)\)"):
            db.table("t").extend(mapping)
    assert db.table("t").extend(source.values()) == 1
    assert db.table("t").extend(source.where()) == 1
    assert list(db.table("t").values()) == [{"n": 1}, {"n": 1}]


def test_a_figure_that_numpy_has_names_numpy() -> None:
    with pytest.raises(TypeError, match=r'query\.to_numpy\("age"\)\.std\(\)'):
        F.age.median()


def test_a_link_to_itself_says_so(tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(pellucid.DatabaseError, match="a symbolic link there leads back to itself"):
        pellucid.open(tmp_path / "loop")


def test_a_class_in_the_list_of_pickles_is_asked_for_by_name() -> None:
    with pytest.raises(
        TypeError, match=r'each element of pickle=\[...\] has to be a name in full, such as "mypkg'
    ):
        pellucid.open(":memory:", pickle=[Thing])  # type: ignore[list-item]


def test_a_closed_database_in_memory_cannot_be_opened_again() -> None:
    db = pellucid.open(":memory:")
    db.close()
    with pytest.raises(pellucid.Closed, match="what was in memory is gone") as told:
        db["a"] = 1
    assert "open it again" not in str(told.value)


def test_a_transaction_that_has_ended_is_not_one_that_was_never_entered(db: pellucid.Database) -> None:
    transaction = db.transaction()
    with pytest.raises(pellucid.TransactionError, match="never entered"):
        transaction.__exit__(None, None, None)
    with transaction:
        db["a"] = 1
    with pytest.raises(pellucid.TransactionError, match="has ended already"):
        transaction.__exit__(None, None, None)


def test_bytes_behind_a_value_are_counted() -> None:
    good = pellucid.dumps({"a": 1})
    for more in (1, 16):
        with pytest.raises(
            pellucid.CorruptRecord, match=rf"{more} bytes? too many: the value ends at byte {len(good)} of"
        ):
            pellucid.loads(good + b"x" * more)
    with pytest.raises(
        pellucid.CorruptRecord, match="some were changed, or there are more of them than dumps"
    ):
        pellucid.loads(good + b"x" * 40)


@pytest.mark.parametrize("name", ["run_init", "fast", "compress"])
def test_a_flag_of_another_type_is_named(name: str) -> None:
    with pellucid.open(":memory:") as db, pytest.raises(TypeError, match=f"{name} has to be a bool"):
        db.table("t", **{name: "yes"})


class Probed(type):
    """A class whose missing attributes are noted."""

    asked: typing.ClassVar[list[str]] = []

    def __getattr__(cls, name: str) -> Any:
        Probed.asked.append(name)
        raise RuntimeError(name)


class Settings(metaclass=Probed):
    """An object with a `__getattr__` of its own, as settings and dicts with attributes have."""

    def __getattr__(self, name: str) -> Any:
        Probed.asked.append(name)
        raise KeyError(name)


class SettingsOfZone(dt.tzinfo):
    def utcoffset(self, moment: dt.datetime | None) -> dt.timedelta | None:
        # It depends on the moment, so there is no `datetime.timezone` for it.
        return None if moment is None else dt.timedelta(hours=1)

    def dst(self, _moment: dt.datetime | None) -> None:
        return None

    def tzname(self, _moment: dt.datetime | None) -> str:
        return "settings"

    def __getattr__(self, name: str) -> Any:
        Probed.asked.append(name)
        raise KeyError(name)


@pytest.mark.parametrize(
    "value", [Settings(), dt.datetime(2026, 1, 1, tzinfo=SettingsOfZone())], ids=["settings", "zone"]
)
def test_a_refusal_runs_no_code_of_the_object_for_its_hint(value: Any) -> None:
    db = pellucid.open(":memory:")
    Probed.asked.clear()
    refused: dict[type[Exception], list[Callable[[], object]]] = {
        pellucid.UnsupportedValue: [
            lambda: db.__setitem__("k", value),
            lambda: db.__setitem__("k", {"x": [value]}),
            lambda: db.append(value),
            lambda: pellucid.dumps(value),
        ],
        pellucid.UnsupportedKey: [lambda: db.__setitem__(value, 1)],
    }
    if isinstance(value, Settings):
        refused[TypeError] = [lambda: db.extend(value), lambda: pellucid.set_threads(value)]  # type: ignore[arg-type]
    for error, calls in refused.items():
        for call in calls:
            with pytest.raises(error):
                call()
    assert db.get(value) is None
    assert value not in db
    assert Probed.asked == []
