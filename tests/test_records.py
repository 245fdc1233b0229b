"""Does a record look like a dict and an object, stay attached, and decode no more than is asked for?"""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import io
import pickle
import re
from pathlib import Path
from typing import Any

import pellucid
import pytest

Database = pellucid.Database

FRED = {
    "name": "Fred Bloggs",
    "age": 21,
    "tags": ["a", "b"],
    "address": {"city": "Bath", "geo": {"lat": 51.4, "lon": -2.4}},
    "amount": 1.5,
    "active": True,
    "nothing": None,
}
METHODS = [
    "get",
    "keys",
    "items",
    "values",
    "pop",
    "popitem",
    "setdefault",
    "update",
    "clear",
    "copy",
    "to_dict",
    "path",
]


@pytest.fixture
def fred(db: Database) -> Any:
    """An attached record."""
    db["fred"] = FRED
    return db["fred"]


class Counted:
    """How much of each kind of work a block did."""

    def __enter__(self) -> Counted:
        self.before = pellucid.counters()
        return self

    def __exit__(self, *_: object) -> None:
        self.done = {name: count - self.before[name] for name, count in pellucid.counters().items()}


# Attributes and items


def test_fields_are_attributes_and_items(fred: Any) -> None:
    assert (fred.name, fred["name"], fred.age, fred["age"]) == ("Fred Bloggs", "Fred Bloggs", 21, 21)
    assert (fred.amount, fred.active, fred.nothing) == (1.5, True, None)
    assert fred.address.geo.lat == fred["address"]["geo"]["lat"] == 51.4
    assert fred.tags[0] == "a"
    assert type(fred.address) is pellucid.Record
    assert type(fred.tags) is pellucid.RecordList


def test_a_field_is_found_under_any_equal_string(fred: Any) -> None:
    assert fred["".join(["a", "ge"])] == 21
    assert getattr(fred, "".join(["a", "ge"])) == 21

    class Name(str):
        pass

    assert fred[Name("age")] == 21


def test_a_missing_field_is_a_missing_key_or_attribute(fred: Any) -> None:
    with pytest.raises(KeyError) as missing_key:
        fred["agee"]
    assert missing_key.value.args == ("agee",)
    with pytest.raises(AttributeError, match="no field 'agee'"):
        fred.agee
    assert getattr(fred, "agee", 5) == 5
    assert not hasattr(fred, "agee")
    with pytest.raises(KeyError):
        del fred["agee"]
    with pytest.raises(AttributeError):
        del fred.agee
    for key in (1, None, (1,), b"age"):
        assert key not in fred
        with pytest.raises(KeyError):
            fred[key]


@pytest.mark.parametrize("name", METHODS)
def test_a_reserved_name_is_a_method_as_attribute_and_a_field_as_item(db: Database, name: str) -> None:
    db["r"] = {name: 1}
    record = db["r"]
    assert record[name] == 1
    assert callable(getattr(record, name))
    with pytest.raises(AttributeError, match=f"rec.{name} is a method"):
        setattr(record, name, 2)
    with pytest.raises(AttributeError, match="method"):
        delattr(record, name)
    record[name] = 3
    assert db["r"] == {name: 3}
    del record[name]
    assert db["r"] == {}


def test_no_other_name_is_reserved(db: Database) -> None:
    names = set(dir(pellucid.view(pellucid.dumps({}))))
    assert {name for name in names if not name.startswith("__")} == set(METHODS)


@pytest.mark.parametrize("name", ["__class__", "__dict__", "__len__", "__array_interface__", "__whatever__"])
def test_a_dunder_never_resolves_to_a_field(db: Database, name: str) -> None:
    db["r"] = {name: "field"}
    record = db["r"]
    assert getattr(record, name, None) != "field"
    assert record[name] == "field"
    with pytest.raises(AttributeError):
        setattr(record, name, 1)
    assert record.__class__ is pellucid.Record


@pytest.mark.parametrize(
    "name", ["_private", "__half", "class", "n\u00e4me", "with space", "", "_repr_html_"]
)
def test_any_other_name_is_a_field(db: Database, name: str) -> None:
    db["r"] = {name: 1}
    record = db["r"]
    assert getattr(record, name) == 1
    setattr(record, name, 2)
    assert record[name] == 2


def test_dir_lists_fields_and_methods(fred: Any) -> None:
    assert {"name", "age", "get", "__len__"} <= set(dir(fred))
    assert len(dir(fred)) == len(set(dir(fred)))


# As a mapping


def test_a_record_is_a_mapping_with_live_views(fred: Any) -> None:
    assert isinstance(fred, collections.abc.MutableMapping)
    assert isinstance(fred.tags, collections.abc.MutableSequence)
    keys, values, items = fred.keys(), fred.values(), fred.items()
    assert list(fred) == list(keys) == list(FRED)
    assert list(values) == list(FRED.values())
    assert list(items) == list(FRED.items())
    fred["new"] = 1
    assert list(keys)[-1] == "new"
    assert (len(fred), len(keys)) == (8, 8)
    assert list(reversed(fred)) == list(reversed([*FRED, "new"]))
    assert keys & {"age", "zzz"} == {"age"}
    assert ("age", 21) in items
    assert 21 in values
    assert "age" in keys


def test_a_record_equals_a_dict_with_the_same_fields(fred: Any, db: Database) -> None:
    assert fred == FRED
    assert fred != {**FRED, "age": 22}
    assert fred != {"age": 21}
    assert fred != 5
    assert fred == db["fred"]
    assert fred == dict(reversed(FRED.items()))
    assert fred.tags == ["a", "b"]
    assert fred.tags != ("a", "b")
    assert fred.tags < ["b"]
    with pytest.raises(TypeError):
        hash(fred)
    with pytest.raises(TypeError):
        hash(fred.tags)


def test_a_record_shows_itself_as_a_dict(fred: Any) -> None:
    assert repr(fred) == repr(FRED)
    assert repr(fred.tags) == "['a', 'b']"
    assert f"{fred.address}" == str(FRED["address"])


def test_a_record_pickles_and_dumps_as_a_dict(fred: Any) -> None:
    for protocol in range(2, pickle.HIGHEST_PROTOCOL + 1):
        restored = pickle.loads(pickle.dumps([fred, fred.tags, fred.address], protocol))
        assert restored == [FRED, FRED["tags"], FRED["address"]]
        assert [type(value) for value in restored] == [dict, list, dict]


def test_or_makes_a_dict_and_ior_saves(fred: Any, db: Database) -> None:
    assert fred | {"age": 1} == {**FRED, "age": 1}
    assert {"x": 1, "age": 1} | fred == {"x": 1, **FRED}
    assert type(fred | {}) is dict
    fred |= {"age": 30, "x": [1]}
    assert db["fred"] == {**FRED, "age": 30, "x": [1]}
    with pytest.raises(TypeError):
        fred | 5


def test_records_match_structural_patterns(fred: Any) -> None:
    match fred:
        case {"name": str(name), "address": {"city": city}, "tags": [first, *rest], **others}:
            assert (name, city, first, rest) == ("Fred Bloggs", "Bath", "a", ["b"])
            assert list(others) == ["age", "amount", "active", "nothing"]
        case _:
            pytest.fail("a record is a mapping")
    match fred:
        case {"missing": _}:
            pytest.fail("there is no such field")
        case _:
            pass


def test_to_dict_is_plain_to_the_bottom(fred: Any) -> None:
    plain = fred.to_dict()
    assert plain == FRED
    assert [type(plain), type(plain["tags"]), type(plain["address"]["geo"])] == [dict, list, dict]
    plain["age"] = 99
    plain["tags"].append("z")
    assert fred.age == 21
    assert fred.tags.to_list() == ["a", "b"]
    assert type(fred.tags.to_list()) is list


def test_a_path_leads_into_dicts_lists_and_tuples(db: Database) -> None:
    db["r"] = {"a": {"b": [{"c": 1}, (2, {"d": 3})]}, "x.y": {"z": 4}, "k": {5: "five"}}
    record = db["r"]
    assert record.path("a.b") == [{"c": 1}, (2, {"d": 3})]
    assert record.path(("a", "b", 0, "c")) == 1
    assert record.path(("a", "b", -1, 0)) == 2
    assert record.path(("a", "b", 1, 1, "d")) == 3
    assert record.path(("x.y", "z")) == 4
    assert record.path(("k", 5)) == "five"
    for nowhere in ("x.y", "a.q", "a.b.c", ("a", "b", 7), ("a", "b", 0, "c", "d"), ("k", "5")):
        assert record.path(nowhere) is None
        assert record.path(nowhere, "default") == "default"
    with pytest.raises(TypeError):
        record.path(5)
    with pytest.raises(ValueError, match="path"):
        record.path(())


# Attached


def test_a_change_at_any_depth_is_saved_at_once(fred: Any, db: Database) -> None:
    fred.age += 1
    fred.tags.append("c")
    fred.address.geo.lat = 0.0
    fred.address["zip"] = "YO1"
    del fred.nothing
    del fred["active"]
    fred.tags[0] = {"deep": [1]}
    fred.tags[0].deep.append(2)
    expected = {
        "name": "Fred Bloggs",
        "age": 22,
        "tags": [{"deep": [1, 2]}, "b", "c"],
        "address": {"city": "Bath", "geo": {"lat": 0.0, "lon": -2.4}, "zip": "YO1"},
        "amount": 1.5,
    }
    assert fred == expected
    assert db["fred"] == expected


def test_handles_of_one_record_see_each_others_changes(fred: Any) -> None:
    tags, again, address = fred.tags, fred.tags, fred.address
    tags.append("c")
    assert again == fred.tags == ["a", "b", "c"]
    again.clear()
    assert tags == []
    address.city = "Bristol, a name longer than the old one"
    assert fred.address.city == address.city
    fred.tags = ["new"]
    assert tags == ["new"]


def test_what_others_changed_in_other_fields_stays(fred: Any, db: Database) -> None:
    other = db["fred"]
    other.name = "Freddy"
    other["added"] = 1
    other.tags.append("x")
    fred.age = 50
    assert db["fred"] == {**FRED, "name": "Freddy", "age": 50, "added": 1, "tags": ["a", "b", "x"]}
    assert fred.name == "Freddy"


def test_a_handle_whose_place_is_gone_says_so(fred: Any, db: Database) -> None:
    tags, address, geo = fred.tags, fred.address, fred.address.geo
    fred.tags = {"now": "a dict"}
    fred.address = [1, 2]
    for use in (
        lambda: len(tags),
        lambda: tags[0],
        lambda: tags.append(1),
        tags.sort,
        lambda: list(address),
        lambda: address.city,
        lambda: address.update(a=1),
        lambda: geo.lat,
    ):
        with pytest.raises(KeyError, match="no longer there"):
            use()
    del fred["tags"]
    with pytest.raises(KeyError):
        tags.append(1)
    assert db["fred"].address == [1, 2]
    assert "tags" not in db["fred"]


def test_a_copy_is_detached(fred: Any, db: Database) -> None:
    for copied in (fred.copy(), copy.copy(fred), copy.deepcopy(fred)):
        assert type(copied) is pellucid.Record
        copied.age = 99
        copied["new"] = {"x": [1]}
        copied.new.x.append(2)
        copied.tags.insert(0, "z")
        del copied.amount
        copied.address.clear()
        assert copied == {
            **{k: v for k, v in FRED.items() if k != "amount"},
            "age": 99,
            "tags": ["z", "a", "b"],
            "address": {},
            "new": {"x": [1, 2]},
        }
        assert db["fred"] == FRED
    numbers = fred.tags.copy()
    numbers.append("only here")
    assert db["fred"].tags == ["a", "b"]
    db["copied"] = copied
    assert db["copied"].new.x == [1, 2]
    copied.age = 100
    assert db["copied"].age == 99


def test_values_of_records_can_be_stored_elsewhere(fred: Any, db: Database) -> None:
    db["tags"] = fred.tags
    db["both"] = [fred, fred.address]
    fred["old"] = fred.address
    fred.address["self"] = fred.address.geo
    assert db["tags"] == ["a", "b"]
    assert db["both"] == [FRED, FRED["address"]]
    assert db["fred"].old == FRED["address"]
    assert db["fred"].address.self == FRED["address"]["geo"]


def test_pop_returns_plain_values(fred: Any, db: Database) -> None:
    assert type(fred.pop("address")) is dict
    assert fred.pop("tags") == ["a", "b"]
    assert fred.pop("tags", 5) == 5
    with pytest.raises(KeyError):
        fred.pop("tags")
    with pytest.raises(TypeError):
        fred.pop("tags", 1, 2)
    assert fred.popitem() == ("nothing", None)
    assert fred.setdefault("age", 5) == 21
    assert fred.setdefault("l", [1]) == [1]
    assert list(db["fred"]) == ["name", "age", "amount", "active", "l"]
    fred.clear()
    assert db["fred"] == fred == {}
    with pytest.raises(KeyError):
        fred.popitem()


def test_sets_and_bytearrays_are_copies_that_the_assigning_operators_save(db: Database) -> None:
    db["r"] = {"s": {1}, "b": bytearray(b"x"), "t": ({"l": [1]}, {2}), "f": frozenset([1])}
    record = db["r"]
    record.s.add(2)
    record.b.append(1)
    record.t[1].add(3)
    assert db["r"] == record == {"s": {1}, "b": b"x", "t": ({"l": [1]}, {2}), "f": {1}}
    record.s |= {2}
    record["s"] -= {1}
    record.b += b"y"
    record.t[0].l.append(2)
    record.f |= {2}
    assert db["r"] == record == {"s": {2}, "b": b"xy", "t": ({"l": [1, 2]}, {2}), "f": {1, 2}}
    types = [type(db["r"][name]) for name in ("s", "b", "f")]
    assert types == [set, bytearray, frozenset]


def test_a_field_set_again_after_deletion_comes_last(fred: Any, db: Database) -> None:
    del fred.age
    fred.age = 5
    assert list(fred) == list(db["fred"]) == ["name", "tags", "address", "amount", "active", "nothing", "age"]


def test_update_of_a_record_is_one_commit(fred: Any, db: Database) -> None:
    with pytest.raises(pellucid.UnsupportedValue, match="broken"):
        fred.update({"age": 1, "broken": object()})
    assert db["fred"] == fred == FRED
    fred.update({"age": 1}, name="x")
    fred.update([("amount", 2)])
    assert db["fred"] == {**FRED, "age": 1, "name": "x", "amount": 2}


def test_scalars_of_every_kind_replace_each_other(fred: Any, db: Database) -> None:
    values = [
        1,
        -1,
        2**40,
        2**70,
        1.5,
        True,
        None,
        "",
        "short",
        "s" * 100,
        "\u00e9",
        b"",
        b"b" * 50,
        [1],
        {},
        "x",
        0,
    ]
    for value in values:
        fred.age = value
        fred.address.geo.lat = value
        assert db["fred"].age == value
        assert db["fred"].address.geo.lat == value
        assert type(fred.age) is type(db["fred"].age)
    assert db["fred"].name == "Fred Bloggs"


def test_a_record_may_grow_beyond_the_names_of_a_shape(db: Database) -> None:
    db["r"] = {}
    record = db["r"]
    with db.transaction():
        for number in range(600):
            record[f"field {number}"] = number
    assert db["r"] == {f"field {number}": number for number in range(600)}
    record["x" * 65] = 1
    assert db["r"]["x" * 65] == 1
    for number in range(600):
        del record[f"field {number}"]
    assert db["r"] == {"x" * 65: 1}


# Bytes


def test_a_record_is_a_buffer_of_its_own_bytes(fred: Any, tmp_path: Path) -> None:
    data = bytes(fred)
    assert data == memoryview(fred).tobytes() == pellucid.dumps(fred)
    pellucid.validate(data)
    assert pellucid.loads(fred) == FRED
    assert pellucid.view(memoryview(fred)).address.city == "Bath"
    with (tmp_path / "record").open("wb") as file:
        file.write(fred)
        file.write(fred.tags)
    assert (tmp_path / "record").read_bytes() == data + bytes(fred.tags)
    assert pellucid.loads(bytes(fred.address)) == FRED["address"]
    buffer = io.BytesIO()
    buffer.write(fred)
    assert buffer.getvalue() == data
    held = memoryview(fred)
    fred.age = 99
    assert pellucid.loads(held)["age"] == 21
    with pytest.raises(TypeError):
        held[0] = 1


# Kept rows


def test_a_kept_row_stays_right_after_the_scan_moved_on(db: Database) -> None:
    table = db.table("t")
    table.extend({"n": number, "nested": {"l": [number]}} for number in range(500))
    rows = list(table.values())
    nested = [row.nested for row in table.values()]
    lists = [row.nested.l for row in table.values()]
    assert [row.n for row in rows] == list(range(500))
    assert [part.l[0] for part in nested] == list(range(500))
    assert [part[0] for part in lists] == list(range(500))
    assert len({id(row) for row in rows}) == 500
    assert [key for key, row in table.items() if row.n % 100 == 0] == [0, 100, 200, 300, 400]
    assert [row.n for row in sorted(table.values(), key=lambda row: -row.n)][:3] == [499, 498, 497]
    assert max(table.values(), key=lambda row: row.n).n == 499
    one, two, *_ = table.values()
    assert (one.n, two.n) == (0, 1)
    table.clear()
    assert [row.n for row in rows] == list(range(500))


def test_a_kept_row_is_attached(db: Database) -> None:
    table = db.table("t")
    table.extend({"n": number, "l": []} for number in range(50))
    rows = list(table.values())
    views = [row.l for row in table.values()]
    for row, view in zip(rows, views, strict=True):
        row.n += 1
        view.append(row.n)
    assert [row.to_dict() for row in table.values()] == [{"n": n + 1, "l": [n + 1]} for n in range(50)]


def test_rows_may_be_changed_while_they_are_walked_over(db: Database) -> None:
    table = db.table("t")
    table.extend({"n": number, "s": "x"} for number in range(300))
    for row in table.values():
        row.n *= 2
        row.s = "longer than it was" * (row.n % 7)
        row["new"] = row.n
    assert [(row.n, row.new) for row in table.values()] == [(number * 2, number * 2) for number in range(300)]
    with db.transaction():
        for row in table.values():
            row.n += 1
    assert table.sum("n") == sum(number * 2 + 1 for number in range(300))


def test_a_row_used_after_its_database_was_closed_is_stale(path: Path) -> None:
    db = pellucid.open(path)
    db.update({key: {"x": 1, "l": [{"y": 2}]} for key in range(5)})
    rows = [db[0], *db.values()]
    parts = [row.l for row in rows] + [row.l[0] for row in rows]
    iterator = iter(db.values())
    next(iterator)
    db.close()
    for handle in rows + parts:
        for use in (len, list, bytes, lambda h: h.copy(), lambda h: h == h.copy()):
            with pytest.raises(pellucid.StaleRecord, match="closed"):
                use(handle)
        assert re.fullmatch(r"<Record(List)?, stale: .* closed; .*>", repr(handle))
    with pytest.raises(pellucid.StaleRecord):
        rows[0].x
    assert "to_dict" in dir(rows[0])
    assert "x" not in dir(rows[0])
    with pytest.raises(pellucid.StaleRecord):
        rows[0].x = 2
    with pytest.raises(pellucid.Closed):
        next(iterator)


# Counted, not claimed


def test_setting_a_number_encodes_nothing_and_writes_one_slot(fred: Any) -> None:
    with Counted() as work:
        fred.age = 22
    assert work.done == {
        "containers_encoded": 0,
        "containers_rebuilt": 0,
        "fields_decoded": work.done["fields_decoded"],
        "other_keys_decoded": 0,
        "slots_overwritten": 1,
        "values_encoded": 0,
    }
    assert work.done["fields_decoded"] == 0
    with Counted() as work:
        fred.address.geo.lat = 3.25
        fred.active = False
        fred.name = "shorter"
    assert (work.done["slots_overwritten"], work.done["values_encoded"]) == (3, 0)
    assert (work.done["containers_encoded"], work.done["containers_rebuilt"]) == (0, 0)


def test_appending_encodes_that_list_alone(fred: Any) -> None:
    tags = fred.tags
    with Counted() as work:
        tags.append("c")
    assert work.done["values_encoded"] == 1
    assert work.done["containers_encoded"] == 0
    # The list, put together again from its slots; what stands around it is spliced.
    assert work.done["containers_rebuilt"] == 1
    assert work.done["slots_overwritten"] == 0


def test_reading_a_field_decodes_that_field_alone_and_caches_nothing(fred: Any) -> None:
    with Counted() as work:
        city = fred.address.city
    assert city == "Bath"
    assert work.done["fields_decoded"] <= 2
    assert (work.done["containers_encoded"], work.done["values_encoded"]) == (0, 0)
    assert fred.address is not fred.address
    assert fred.name is not fred.name
    with Counted() as work:
        for _ in range(10):
            fred.tags[0]
    assert work.done["fields_decoded"] == 20


def test_opening_a_record_decodes_nothing(fred: Any, db: Database) -> None:
    with Counted() as work:
        record = db["fred"]
        len(list(db.values()))
        pellucid.view(bytes_of_fred)
    assert work.done["fields_decoded"] == 0
    assert record.age == 21


bytes_of_fred = pellucid.dumps(FRED)


def test_what_is_gone_is_named_as_it_was_written(db: Database) -> None:
    db["a"] = {"s": {"y": [1]}, "l": [{"z": 1}], "t": (1, 2), "u": {"v": 1}}
    row = db["a"]
    inner, element, replaced = row.s, row.l[0], row.u
    db["a"].s = 5
    db["a"].l = "text"
    db["a"].u = [1]
    place = re.escape("""record 'a' of table "default" cannot be changed at """)
    with pytest.raises(TypeError, match=place + r"""\["s"\]\["y"\]: what is at \["s"\] is no dict .*again"""):
        inner["y"] = 1
    with pytest.raises(TypeError, match=place + r"""\["l"\]\[0\]\["z"\]: what is at \["l"\] is no list"""):
        element["z"] = 2
    with pytest.raises(KeyError, match=r"is no dict any more; read it again"):
        replaced["v"] = 1
    db["a"] = 5
    with pytest.raises(TypeError, match=place + r"""\["x"\]: the record is no dict"""):
        row["x"] = 1
    with pytest.raises(TypeError, match=r"""record 'a' .* cannot be changed: the record is no dict"""):
        row.clear()
    db["l"] = [1]
    numbers = db["l"]
    db["l"] = 5
    with pytest.raises(TypeError, match=r"""record 'l' .* cannot be changed: the record is no list"""):
        numbers.append(2)


def test_a_row_of_a_transaction_that_was_rolled_back_says_so(db: Database) -> None:
    with contextlib.suppress(LookupError), db.transaction():
        db["a"] = {"x": 1, "s": {"y": 1}}
        row = db["a"]
        inner = row.s
        raise LookupError
    why = "is not there: the transaction in which it was stored or read has been rolled back"
    record = """record 'a' of table "default" """
    for use in (lambda: row.x, lambda: row.update(x=2), row.to_dict):
        with pytest.raises(KeyError) as told:
            use()
        assert told.value.args == (record + why,)
    with pytest.raises(KeyError) as told:
        inner.y = 2
    assert told.value.args == (f"""what stood at ["s"] of {record}{why}""",)


def test_update_says_what_it_takes(db: Database) -> None:
    db["a"] = {"x": 1}
    for owner in (db["a"], pellucid.view(pellucid.dumps({})), db, db.table("t")):
        for wrong in (5, object()):
            with pytest.raises(TypeError, match=r"update\(\) has to be a mapping or an iterable of pairs"):
                owner.update(wrong)
    db["a"].update(iter([("x", 2)]), y=3)
    assert db["a"] == {"x": 2, "y": 3}


@pytest.mark.parametrize("key", [["x"], {}, {1}, bytearray(b"x"), (1, ["x"])])
def test_what_no_dict_has_as_a_key_is_refused(db: pellucid.Database, key: Any) -> None:
    db["a"] = {"n": 1}
    record = db["a"]
    for change in [
        lambda: record.__setitem__(key, 1),
        lambda: record.setdefault(key, 1),
        lambda: record[key],
        lambda: record.get(key),
        lambda: record.__delitem__(key),
        lambda: key in record,
    ]:
        with pytest.raises(TypeError, match="unhashable"):
            change()
    with db.edit("a") as draft, pytest.raises(TypeError, match="unhashable"):
        draft[key] = 1
    assert db["a"] == {"n": 1}
    assert db.check() == []


def test_a_registration_that_cannot_work_is_refused() -> None:
    class Loop:
        pass

    with pytest.raises(TypeError, match="wants a function as encode"):
        pellucid.register(Loop, 5, 5)  # type: ignore[arg-type]
    pellucid.register(Loop, lambda value: value, lambda value: value)
    with pytest.raises(TypeError, match="returned another"):
        pellucid.dumps(Loop())
    with pytest.raises(pellucid.UnsupportedValue, match="has another value in each record"):
        pellucid.dumps({"a": pellucid.F.n})
