"""Does `pickle=[...]` give a stored pickle what the list names, and nothing else?

The pickles are made by hand, as a file's hostile author would make them.
"""

from __future__ import annotations

import collections
import contextlib
import copyreg
import enum
import functools
import os
import pickle
import struct
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import pellucid
import pytest
from pellucid import pickles

MODULE = __name__
STOP = b"."


class Plain:
    """A class that only pickle can store."""

    name = "plain"

    class Inner:
        """A class in a class."""

    @staticmethod
    def make() -> Plain:
        """A function that is no method."""
        return Plain()

    @classmethod
    def add(cls, item: object) -> None:
        """What ADDITEMS would call of the class."""
        cls.name = str(item)


class Role(enum.Enum):
    """Members that the whole process shares."""

    USER = 1
    ADMIN = 2


class Meta(type):
    """Answers for its classes with names that are not theirs."""

    @property
    def __module__(cls) -> str:  # type: ignore[override]
        return "elsewhere"

    def __getattr__(cls, name: str) -> Any:
        return os.system


class Lying(metaclass=Meta):
    """A class whose metaclass lies."""


def helper(value: object = None) -> object:
    """A function of this module."""
    return ["helped", value]


system = os.system
Path2 = Path


class Packed:
    """Stored as the pickle that a test gives it."""

    def __init__(self) -> None:
        self.data = b""


def text(value: str) -> bytes:
    return b"\x8c" + bytes([len(value)]) + value.encode()


def wanted(module: str, name: str) -> bytes:
    return text(module) + text(name) + pickle.STACK_GLOBAL


@contextlib.contextmanager
def pickled_as(code: bytes, protocol: int = 4) -> Iterator[None]:
    """What is pickled meanwhile becomes this pickle."""
    head = b"" if protocol < 2 else b"\x80" + bytes([protocol])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pickles, "_dumps", lambda *_arguments: (head + code + STOP, ()))
        yield


def packed(code: bytes, protocol: int = 4) -> bytes:
    """An envelope with this pickle."""
    with pickled_as(code, protocol):
        return pellucid.dumps([Packed()], pickle="allow")


def loaded(code: bytes, *allowed: str, protocol: int = 4) -> Any:
    return pellucid.loads(packed(code, protocol), pickle=list(allowed))[0]


def calls(function: bytes, *arguments: bytes) -> bytes:
    return function + pickle.MARK + b"".join(arguments) + pickle.TUPLE + pickle.REDUCE


def refuses(code: bytes, *allowed: str, match: str, protocol: int = 4) -> None:
    with pytest.raises(pellucid.PickleDenied, match=match):
        loaded(code, *allowed, protocol=protocol)


HERE = f"{MODULE}.*"


def shared_state() -> object:
    members = {name: value for name, value in vars(Plain).items() if name != "__slotnames__"}
    return members, [member.value for member in Role], dict(vars(sys.modules[MODULE]))


@pytest.fixture(autouse=True)
def _nothing_is_changed() -> Iterator[None]:
    before = shared_state()
    yield
    assert shared_state() == before


@pytest.mark.parametrize(
    ("name", "match"),
    [
        ("os.system", "leads through a module"),
        ("os", "is a module"),
        ("helper", "is a function"),
        ("helper.__globals__", "leads through a function"),
        ("helper.__globals__.get", "leads through a function"),
        ("system", "is a builtin_function_or_method"),
        ("Path2", "another name for '.*Path'"),
        ("Path", "another name for"),
        ("MODULE", "is a str"),
        ("Plain.make", "is a function"),
        ("Plain.name", "is a str"),
        ("Plain.__class__", "does not have"),
        ("Plain.__init__.__globals__", "does not have|leads through"),
        ("Plain.__dict__", "is a getset_descriptor"),
        ("Plain.__subclasses__", "does not have"),
        ("Lying.system", "does not have"),
        ("nothing", "does not have"),
        ("", "does not have"),
        (".", "does not have"),
        ("Plain.", "does not have"),
    ],
)
def test_a_wildcard_reaches_nothing_but_classes_of_its_module(name: str, match: str) -> None:
    with pytest.raises((pellucid.PickleDenied, pellucid.UnreadableValue), match=match):
        loaded(wanted(MODULE, name), HERE)


def test_a_wildcard_gives_the_classes_of_its_module() -> None:
    for found in (Plain, Plain.Inner, Role, Lying):
        assert loaded(wanted(MODULE, found.__qualname__), HERE) is found
    assert loaded(wanted(MODULE, "Plain.Inner"), f"{MODULE}.Plain.*") is Plain.Inner
    assert loaded(wanted(MODULE, "Plain"), f"{MODULE}.Pl?i[n]") is Plain
    refuses(wanted(MODULE, "Plain"), f"{MODULE}.Plain.*", match="not among the allowed")
    refuses(wanted(MODULE, "Plain"), f"{MODULE}.P", match="not among the allowed")
    assert (
        type(loaded(calls(wanted("collections", "OrderedDict")), "collections.*")) is collections.OrderedDict
    )


def test_a_wildcard_is_of_one_module_and_not_of_those_below_it() -> None:
    refuses(wanted("os.path", "join"), "os.*", match="not among the allowed")
    refuses(wanted("collections.abc", "Callable"), "collections.*", match="not among the allowed")
    # Nor is a module imported that the list does not name.
    sys.modules.pop("this", None)
    refuses(wanted("this", "s"), "th.*", HERE, match="not among the allowed")
    assert "this" not in sys.modules
    name = "namedtuple.__builtins__.get"
    refuses(wanted("collections", name), "collections.*", match="leads through a function")


def test_names_in_full_give_functions_and_aliases_too() -> None:
    assert loaded(calls(wanted(MODULE, "helper"), b"K\x05"), f"{MODULE}.helper") == ["helped", 5]
    assert isinstance(loaded(calls(wanted(MODULE, "Plain.make")), f"{MODULE}.Plain.make"), Plain)
    assert loaded(wanted(MODULE, "Path2"), f"{MODULE}.Path2") is Path
    for name, match in (
        ("MODULE", "is a str"),
        ("os", "is a module"),
        ("os.system", "leads through a module"),
    ):
        refuses(wanted(MODULE, name), f"{MODULE}.{name}", match=match)


def test_lists_that_can_name_nothing_are_refused_at_once() -> None:
    for name, match in (
        ("*", "names no global"),
        ("Plain", "names no global"),
        ("mypkg.", "names no global"),
        (".Plain", "names no global"),
        ("mypkg.*.Plain", "wildcard in the module"),
        ("*.Plain", "wildcard in the module"),
        ("\ud800.x", "no module has a surrogate"),
    ):
        with pytest.raises(ValueError, match=match):
            pellucid.open(":memory:", pickle=[name])
        with pytest.raises(ValueError, match=match):
            pellucid.loads(pellucid.dumps(1), pickle=[name])


@pytest.mark.parametrize(
    "build", [pickle.BUILD, pickle.APPEND, pickle.APPENDS, pickle.ADDITEMS, pickle.SETITEM, pickle.SETITEMS]
)
@pytest.mark.parametrize(
    "target",
    [
        wanted(MODULE, "Plain"),
        wanted(MODULE, "helper"),
        calls(wanted(MODULE, "Role"), b"K\x01"),
        calls(wanted("builtins", "type"), wanted(MODULE, "Plain")),
        # Methods bound to something that the process shares.
        calls(wanted("builtins", "getattr"), wanted(MODULE, "Plain"), text("add")),
        calls(wanted("builtins", "getattr"), wanted(MODULE, "Plain"), text("__init__")),
        calls(wanted("builtins", "getattr"), wanted(MODULE, "Path2"), text("stem")),
    ],
)
def test_what_the_process_shares_is_not_changed(target: bytes, build: bytes) -> None:
    state = pickle.NONE + b"}" + text("name") + text("x") + b"s" + b"\x86"
    marked = {
        pickle.BUILD: state,
        pickle.APPEND: text("x"),
        pickle.APPENDS: b"(" + text("x"),
        pickle.ADDITEMS: b"(" + text("x"),
        pickle.SETITEM: text("name") + text("x"),
        pickle.SETITEMS: b"(" + text("name") + text("x"),
    }
    allowed = (HERE, f"{MODULE}.helper", f"{MODULE}.Path2", "builtins.type", "builtins.getattr")
    refuses(target + marked[build] + build, *allowed, match="did not make")


def test_objects_that_a_pickle_made_get_their_state() -> None:
    value = loaded(wanted(MODULE, "Plain") + b")\x81}" + text("name") + text("x") + b"sb", HERE)
    assert type(value) is Plain
    assert value.name == "x"


def test_a_pickle_calls_nothing_that_it_made() -> None:
    getter = calls(wanted("operator", "attrgetter"), text("__init__.__globals__"))
    allowed = ("operator.*", "functools.*", "types.*", HERE)
    refuses(
        calls(getter, wanted(MODULE, "Packed")),
        *allowed,
        match="calls a operator.attrgetter|calls a attrgetter",
    )
    partial = calls(wanted("functools", "partial"), wanted(MODULE, "Plain"))
    refuses(calls(partial), *allowed, match="calls a functools.partial|calls a partial")
    for call in (b")" + pickle.NEWOBJ, b")}" + pickle.NEWOBJ_EX):
        refuses(partial + call, *allowed, match="calls a")
    refuses(b"(" + partial + b"o", *allowed, match="calls a", protocol=1)
    # A class method of a class that it was given is as good as the class.
    made = calls(wanted("builtins", "getattr"), wanted("fractions", "Fraction"), text("from_float"))
    half = calls(made, b"G\x3f\xe0\x00\x00\x00\x00\x00\x00")
    assert str(loaded(half, "builtins.getattr", "fractions.Fraction")) == "1/2"


def test_old_protocols_go_by_the_same_list() -> None:
    for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
        value = collections.OrderedDict(a=[Plain, {1: (2, "\xe4")}, {3}])
        allowed = ["collections.OrderedDict", HERE, "builtins.set"]
        assert (
            loaded(
                pickle.dumps(value, protocol)[:-1][2 if protocol > 1 else 0 :], *allowed, protocol=protocol
            )
            == value
        )
    # What is called otherwise since Python 3 is looked up by the name it has now.
    made = loaded(b"c__builtin__\nset\n(]tR", "builtins.set", protocol=0)
    assert made == set()
    refuses(
        b"c__builtin__\nreduce\n",
        "builtins.*",
        "functools.*",
        match="'functools.reduce', which is a",
        protocol=0,
    )
    refuses(b"cos\nsystem\n", "os.*", match="is a builtin", protocol=0)
    refuses(b"(S'true'\nios\nsystem\n", "os.*", match="is a builtin", protocol=0)
    refuses(b"(ios\n_wrap_close\n", HERE, match="not among", protocol=0)


def test_extension_codes_go_by_the_list_whatever_others_loaded() -> None:
    copyreg.add_extension(MODULE, "helper", 240)
    try:
        code = b"\x80\x02" + pickle.EXT1 + bytes([240]) + STOP
        assert pickle.loads(code) is helper
        refuses(pickle.EXT1 + bytes([240]), HERE, match="is a function", protocol=2)
        assert loaded(pickle.EXT1 + bytes([240]), f"{MODULE}.helper", protocol=2) is helper
        with pytest.raises(pellucid.CorruptRecord, match="extension code 241"):
            loaded(pickle.EXT1 + bytes([241]), HERE, protocol=2)
    finally:
        copyreg.remove_extension(MODULE, "helper", 240)
        copyreg.clear_extension_cache()


@pytest.mark.parametrize(
    "code",
    [
        b"",
        *(b"R", b"b", b"a", b"e", b"0", b"u", b"\x90", b"\x81", b"\x92", b"]R", b"(", b"h\x05", b"\x97"),
        *(
            b"X\xff\xff\xff\x7f",
            b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7f",
            b"P1\n",
            b"K\x01Q",
            b"I1_x\n",
            b"\xff",
        ),
    ],
)
def test_damaged_pickles_are_damage(code: bytes) -> None:
    with pytest.raises(pellucid.CorruptRecord):
        loaded(code, HERE)


@pytest.mark.parametrize("code", [b"K\x01K\x02a", b"}]K\x01s", b"K\x01}K\x01K\x01sb", b"N(K\x01e"])
def test_damaged_pickles_say_what_python_said(code: bytes) -> None:
    with pytest.raises(pellucid.CorruptRecord, match=r"a stored pickle is damaged: (Attribute|Type)Error: "):
        loaded(code, HERE)


class Unreadable:
    """A class whose objects can be pickled alone."""

    def __setstate__(self, state: object) -> None:
        raise KeyError("no state")

    def __getstate__(self) -> object:
        return {"a": 1}


def test_what_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(
        pellucid.UnsupportedValue, match=r"Unreadable, would be a pickle that cannot be read back: .*KeyError"
    ) as refused:
        pellucid.dumps(Unreadable(), pickle=[HERE])
    assert isinstance(refused.value.__cause__, KeyError)


def test_names_that_are_not_there_are_refused() -> None:
    refuses(wanted(MODULE, "Nobody"), HERE, match="does not have")
    refuses(wanted(MODULE, "nobody"), f"{MODULE}.nobody", match="does not have")
    refuses(wanted(MODULE, "Plain.Outer"), HERE, match="does not have")
    refuses(wanted("no_such_module", "A"), "no_such_module.*", match="cannot be imported: No module named")


def test_a_bytearray_gets_no_room_for_a_length_that_it_only_claims() -> None:
    import tracemalloc

    assert loaded(pickle.BYTEARRAY8 + struct.pack("<Q", 3) + b"abc", HERE) == bytearray(b"abc")
    tracemalloc.start()
    try:
        for size in (1 << 29, 1 << 62, (1 << 64) - 1):
            with pytest.raises(pellucid.CorruptRecord, match="cut off"):
                loaded(pickle.BYTEARRAY8 + struct.pack("<Q", size), HERE)
        assert tracemalloc.get_traced_memory()[1] < 1 << 24
    finally:
        tracemalloc.stop()


class Couple(NamedTuple):
    """A tuple with a class."""

    one: object
    other: object


# Each holds the one before twice.
TWICE = b"\x94" + b"h%c"
DOUBLED = {
    "tuple": b"".join(b"\x94h%c\x86" % index for index in range(45)),
    "frozenset": b"".join(b"\x94(h%ch%c\x85\x91" % (index, index) for index in range(45)),
    "namedtuple": b"".join(
        b"\x94" + wanted(MODULE, "Couple") + b"h%ch%c\x86\x81" % (index, index) for index in range(45)
    ),
}


# How they become keys, or are only made.
USES = {
    "one": b"}%sNs",
    "some": b"}(%sNu",
    "dict": b"(%sNd",
    "set": b"\x8f(%s\x90",
    "frozenset": b"(%s\x91",
    "made": b"%s",
}


@pytest.mark.parametrize("kind", DOUBLED)
@pytest.mark.parametrize("use", USES)
def test_a_few_tuples_do_not_come_to_millions_of_millions(kind: str, use: str) -> None:
    with pytest.raises(pellucid.CorruptRecord, match="each inside others many times"):
        loaded(USES[use] % (b"(\x91" + DOUBLED[kind] if kind == "frozenset" else b")" + DOUBLED[kind]), HERE)


def test_keys_that_share_parts_are_counted_together() -> None:
    tuples = b")" + b"".join(b"\x94h%c\x86" % index for index in range(15))
    assert len(loaded(b"}(" + tuples + b"Nu", HERE)) == 1
    many = b"\x8f(" + tuples + b"".join(b"\x94h\x0fK%c\x86" % number for number in range(200)) + b"\x90"
    with pytest.raises(pellucid.CorruptRecord, match="its keys come to more than"):
        loaded(many, HERE)


def test_common_keys_are_within_the_limit() -> None:
    part = tuple(range(200))
    value = {(part, number): frozenset([(part, number)]) for number in range(5000)}
    data = pickle.dumps(value, protocol=5)
    assert loaded(data[2:-1], HERE, protocol=5) == value


def test_numpy_arrays_in_pickles_are_read_by_full_names() -> None:
    value = types.SimpleNamespace(a=numpy.arange(3), o=numpy.array([None, 1], dtype=object))
    data = pellucid.dumps(value, pickle="allow")
    allowed = ["types.SimpleNamespace", "numpy.ndarray", "numpy.dtype"]
    # NumPy's own functions are in other modules in each of its major versions.
    for _ in range(5):
        try:
            back = pellucid.loads(data, pickle=allowed)
            break
        except pellucid.PickleDenied as error:
            allowed.append(str(error).split("'")[1])
    assert back.a.tolist() == [0, 1, 2]
    assert back.o.tolist() == [None, 1]


def test_common_classes_come_back_under_a_list() -> None:
    import fractions
    import ipaddress
    import pathlib

    values: list[tuple[Any, list[str]]] = [
        (collections.Counter("abca"), ["collections.Counter"]),
        (collections.deque([1, 2], 5), ["collections.deque"]),
        (collections.defaultdict(list, a=[1]), ["collections.defaultdict", "builtins.list"]),
        (collections.ChainMap({"a": 1}), ["collections.*"]),
        (fractions.Fraction(1, 3), ["fractions.*"]),
        (ipaddress.ip_address("::1"), ["ipaddress.*"]),
        (pathlib.PurePosixPath("/a/b"), [f"{type(pathlib.PurePosixPath('/')).__module__}.*"]),
        (types.SimpleNamespace(a=1, b=[2]), ["types.SimpleNamespace"]),
        (functools.partial(Plain), ["functools.partial", HERE]),
        (ValueError("x", 1), ["builtins.ValueError"]),
        (range(3), ["builtins.*"]),
        (slice(1, 2), ["builtins.*"]),
        (types.SimpleNamespace(role=Role.ADMIN, of=Plain), ["types.SimpleNamespace", HERE]),
    ]
    for value, allowed in values:
        back = pellucid.loads(pellucid.dumps([value], pickle=allowed), pickle=allowed)[0]
        assert type(back) is type(value)
        assert repr(back) == repr(value)


def test_a_pickle_gets_members_of_enums_and_no_other_attributes() -> None:
    """Python 3.11.0 to 3.11.3 write a member as a call of `getattr`."""

    def member(of: str, name: str) -> bytes:
        return calls(wanted("builtins", "getattr"), wanted(MODULE, of) + text(name))

    with pickled_as(member("Role", "ADMIN")):
        data = pellucid.dumps([Packed()], pickle="allow")
    assert pellucid.loads(data, pickle=[HERE])[0] is Role.ADMIN
    for of, name in (("Role", "__init__"), ("Role", "mro"), ("Plain", "__init__"), ("Role", "LESS")):
        with pickled_as(member(of, name)):
            data = pellucid.dumps([Packed()], pickle="allow")
        with pytest.raises(pellucid.PickleDenied, match="can reach anything"):
            pellucid.loads(data, pickle=[HERE])


def test_the_list_holds_in_databases(path: Path) -> None:
    with pellucid.open(path, pickle="allow") as db:
        db["a"] = {"p": Plain(), "n": 1}
        with pickled_as(calls(wanted(MODULE, "system"), text("exit 1"))):
            db["b"] = [Packed()]
    with pellucid.open(path, "r", pickle=[HERE]) as db:
        assert type(db["a"].p) is Plain
        reads: list[Callable[[], object]] = [lambda: db["b"][0], list(db.values())[1].to_list]
        for read in reads:
            with pytest.raises(pellucid.PickleDenied, match="system"):
                read()
