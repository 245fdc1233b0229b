"""Do values of the standard library, and of pandas, come back equal, or as the docs say?"""

from __future__ import annotations

import array
import collections
import datetime
import fractions
import ipaddress
import pathlib
import types
import zoneinfo
from typing import Any

import dateutil.tz
import numpy
import pandas
import pellucid
import pydantic
import pytest
from pellucid import F

SAME = [
    collections.deque([1, "a", [2]], maxlen=5),
    collections.deque(),
    range(0),
    range(1, 10**30, 7),
    pathlib.PurePosixPath("a/b"),
    pathlib.PureWindowsPath("C:\\a"),
    pathlib.Path("/tmp/x"),
    fractions.Fraction(-1, 3),
    fractions.Fraction(10**300, 3),
    ipaddress.ip_address("10.0.0.1"),
    ipaddress.ip_address("fe80::1"),
    ipaddress.ip_network("10.0.0.0/8"),
    ipaddress.ip_network("fe80::/10"),
    ipaddress.ip_interface("10.0.0.1/8"),
    ipaddress.ip_interface("fe80::1/10"),
    array.array("i", [1, -(2**31)]),
    array.array("f", [0.1]),
    array.array("Q", [2**64 - 1]),
    array.array("d"),
    array.array("u", "a\u00e9"),
]


@pytest.mark.parametrize("value", SAME, ids=lambda value: type(value).__name__)
def test_what_has_a_class_of_its_own_comes_back_as_it_was(db: pellucid.Database, value: Any) -> None:
    db["row"] = {"in": [value], "at": value}
    for back in (db["row"].at, db["row"].to_dict()["in"][0], pellucid.loads(pellucid.dumps(value))):
        assert back == value
        assert type(back) is type(value)
    # A row may be such a value, and a table of any objects holds it without a pickle.
    db.table("objects", type=object)["a"] = [value]
    assert db.table("objects", type=object)["a"] == [value]
    if isinstance(value, collections.deque):
        assert db["row"].at.maxlen == value.maxlen


def defaults() -> dict[str, Any]:
    filled: dict[str, Any] = collections.defaultdict(list)
    filled["a"].append(1)
    return filled


EQUAL = [
    (collections.OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (defaults(), {"a": [1]}),
    (collections.Counter("aab"), {"a": 2, "b": 1}),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (memoryview(b"ab"), b"ab"),
    (pandas.Timestamp("2024-05-17T01:02:03.000004"), datetime.datetime(2024, 5, 17, 1, 2, 3, 4)),
    (
        pandas.Timestamp("2024-05-17", tz="Europe/Berlin"),
        datetime.datetime(2024, 5, 17, tzinfo=zoneinfo.ZoneInfo("Europe/Berlin")),
    ),
    (pandas.Timedelta("1D5us"), datetime.timedelta(days=1, microseconds=5)),
    (pandas.Series(["a", "b"]), ["a", "b"]),
    (pandas.Series([2**60 + 1, None], dtype="Int64"), [2**60 + 1, None]),
]


@pytest.mark.parametrize(("value", "expected"), EQUAL, ids=lambda value: type(value).__name__)
def test_what_equals_a_value_of_the_format_comes_back_as_that(
    db: pellucid.Database, value: Any, expected: Any
) -> None:
    db["row"] = {"at": value, "in": [value]}
    back = db["row"].to_dict()
    assert back == {"at": expected, "in": [expected]}
    assert type(back["at"]) is type(expected)
    assert not isinstance(value, (pandas.Timestamp, dict)) or back["at"] == value


def test_a_dict_of_another_class_is_a_record_for_queries(db: pellucid.Database) -> None:
    db["row"] = {"votes": collections.Counter("aab")}
    assert db.where(F.votes.a == 2).count() == 1
    assert db["row"].votes.a == 2


@pytest.mark.parametrize("nothing", [pandas.NaT, pandas.NA], ids=repr)
def test_no_value_of_pandas_is_none(db: pellucid.Database, nothing: Any) -> None:
    db["row"] = {"at": nothing}
    assert db["row"].at is None


def test_a_series_of_numbers_is_an_array(db: pellucid.Database) -> None:
    db["row"] = {"at": pandas.Series([1.5, 2.5], dtype="float32")}
    back = db["row"].at
    assert (back.dtype, back.tolist()) == (numpy.dtype("float32"), [1.5, 2.5])


REFUSED = [
    (pandas.Timestamp("2024-05-17T00:00:00.000000001"), "Timestamp"),
    (pandas.Timedelta(1, "ns"), "Timedelta"),
    (pandas.Series([1, 2], index=["a", "b"]), "keep its labels"),
    (memoryview(array.array("i", [1])), "bytes"),
    (pandas.Period("2024"), "Period"),
]


@pytest.mark.parametrize(("value", "why"), REFUSED, ids=lambda value: type(value).__name__)
def test_what_would_not_come_back_equal_is_refused(db: pellucid.Database, value: Any, why: str) -> None:
    with pytest.raises(pellucid.UnsupportedValue, match=why):
        db["row"] = {"at": value}
    assert "row" not in db


def test_where_pickles_are_allowed_they_keep_the_class() -> None:
    for policy in ("allow", ["collections.Counter"]):
        with pellucid.open(":memory:", pickle=policy) as trusting:
            trusting["row"] = {"at": collections.Counter("aab"), "on": pathlib.PurePosixPath("a")}
            assert type(trusting["row"].at) is collections.Counter
            assert trusting["row"].on == pathlib.PurePosixPath("a")
    with pellucid.open(":memory:", pickle=["shop.Order"]) as trusting:
        trusting["row"] = {"at": collections.Counter("aab")}
        assert trusting["row"].to_dict() == {"at": {"a": 2, "b": 1}}


class Fixed(datetime.tzinfo):
    """A fixed offset, as parsers of ISO texts have classes of their own for."""

    def __init__(self, minutes: int = 0, name: str = "UTC") -> None:
        self.offset, self.name = datetime.timedelta(minutes=minutes), name

    def utcoffset(self, when: Any) -> datetime.timedelta:
        return self.offset

    def dst(self, when: Any) -> None:
        return None

    def tzname(self, when: Any) -> str:
        return self.name


class Event(pydantic.BaseModel):
    at: datetime.datetime


def of_pydantic(text: str) -> Any:
    return Event.model_validate({"at": text}).at.tzinfo


BERLIN = zoneinfo.ZoneInfo("Europe/Berlin")
UTC = datetime.timezone.utc


class Named(datetime.tzinfo):
    """A zone of pytz, as far as it is asked: each instance has one offset, and the name of the zone."""

    zone = "Europe/Berlin"

    def __init__(self, hours: int) -> None:
        self.offset = datetime.timedelta(hours=hours)

    def utcoffset(self, when: Any) -> Any:
        return None if when is None else self.offset

    def dst(self, when: Any) -> None:
        return None

    def tzname(self, when: Any) -> Any:
        return None


ZONES = [
    (Fixed(), UTC),
    (Fixed(90, "Here"), datetime.timezone(datetime.timedelta(minutes=90), "Here")),
    (dateutil.tz.UTC, UTC),
    (dateutil.tz.tzoffset("x", 3600), datetime.timezone(datetime.timedelta(hours=1), "x")),
    (dateutil.tz.gettz("Europe/Berlin"), BERLIN),
    (of_pydantic("2026-01-01T00:00:00Z"), UTC),
    (
        of_pydantic("2026-01-01T00:00:00-03:30"),
        datetime.timezone(-datetime.timedelta(hours=3, minutes=30), "-03:30"),
    ),
    (Named(1), BERLIN),
]


@pytest.mark.parametrize(("zone", "expected"), ZONES, ids=lambda zone: f"{type(zone).__name__} {zone!s:.20}")
def test_a_zone_of_another_library_becomes_one_that_is_stored(
    db: pellucid.Database, zone: Any, expected: Any
) -> None:
    at = datetime.datetime(2026, 1, 1, 12, tzinfo=zone)
    db["row"] = {"at": at}
    back = db["row"].at
    assert (back, back.utcoffset()) == (at, at.utcoffset())
    assert (type(back.tzinfo), str(back.tzinfo)) == (type(expected), str(expected))
    assert db.where(F.at == at).count() == 1
    db[at] = 1
    assert db[at] == db[back] == 1


def test_of_two_equal_local_times_the_one_that_is_meant_comes_back(db: pellucid.Database) -> None:
    for hours, fold in ((2, 0), (1, 1)):
        at = datetime.datetime(2026, 10, 25, 2, 30, tzinfo=Named(hours))
        db["row"] = {"at": at}
        assert (db["row"].at.utcoffset(), db["row"].at.fold) == (datetime.timedelta(hours=hours), fold)


def test_a_zone_whose_offset_is_not_that_of_its_name_is_refused(db: pellucid.Database) -> None:
    # As a zone of pytz that was not given by `localize` has its first offset of all.
    for at in (
        datetime.datetime(2026, 1, 1, tzinfo=Named(0)),
        datetime.datetime(2026, 1, 1, tzinfo=dateutil.tz.tzstr("EST5EDT")),
    ):
        with pytest.raises(pellucid.UnsupportedValue, match="time zone of type"):
            db["row"] = {"at": at}
        with pytest.raises(pellucid.UnsupportedKey, match="time zone"):
            db[at] = 1


def test_a_time_of_day_has_such_a_zone_too(db: pellucid.Database) -> None:
    db["row"] = {"at": datetime.time(1, 2, tzinfo=Fixed(60, "x"))}
    assert db["row"].at == datetime.time(1, 2, tzinfo=datetime.timezone(datetime.timedelta(hours=1)))
