"""This experiment measures the ways to get at a dict that arrives in a database buffer.

    pellucid bench buffers                            # with a server of its own
    pellucid bench buffers --dsn "host=db.example"    # with yours: it makes temporary tables only
    pellucid bench buffers --no-server

Three tasks: "whole" makes a plain dict of all, "one" reads a field of one inner dict, "each" adds up that
field of all inner dicts. "fetch" is the SELECT alone. The pickles of each protocol and the unpicklers are the
part of the collector, which runs on other interpreters too.
"""

from __future__ import annotations

import json
import os
import pickle
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import pellucid

from pellucid_bench import collect as collector
from pellucid_bench.about import About, Setting
from pellucid_bench.collected import collect
from pellucid_bench.measures import Measure, Result, Unit
from pellucid_bench.run import Run, Unavailable
from pellucid_bench.runner import timed
from pellucid_bench.server import running

ABOUT = About(
    "buffers",
    "What does it cost to get at a dict that arrives in a database buffer?",
    "Reads all, one field, or a field of each inner dict from pickle, JSON, jsonb, msgpack and pellucid: at "
    "hand, from a PostgreSQL server, and with each unpickler of the standard library.",
    (
        Setting("entries", (1, 10, 1_000, 100_000), (1, 30), "sizes of the dict"),
        Setting("dsn", None, None, "the server (default: PELLUCID_TEST_DSN, or one that is started)"),
        Setting("no_server", False, False, "leave out what needs a server"),
        Setting("no_pickles", False, False, "leave out the unpicklers"),
        Setting("python", None, None, "another Python for the unpicklers: 2.7, 3.6 to 3.15, PyPy"),
    ),
    isolation="never",
)
LIBRARIES = ("psycopg", "psycopg2", "orjson", "msgpack", "msgspec")
ROUNDS = 5
"""There are hundreds of contenders, so each has fewer rounds than in other experiments."""
UNPICKLED_MAX = 10_000
"""The ways to unpickle have the same ratios for larger dicts, and take minutes."""
SIZE_UNIT = collector.SIZE_UNITS["buffers"]
CODECS = ("orjson", "msgpack", "msgspec")
TASKS = {
    "whole": "all of a dict in a buffer",
    "one": "one field of a dict in a buffer",
    "each": "a field of each inner dict in a buffer",
    "fetch": "the buffer alone",
}
BINARY = "pellucid (psycopg, binary)"
"""Our way with which those are compared that get text from psycopg, which is not the text of a bytea."""


class Codec(NamedTuple):
    """How a dict becomes bytes, and how it is read from a buffer."""

    dumps: Callable[[Any], Any]
    loads: Callable[[Any], Any]
    # What "one" and "each" read: all of it, or a view.
    reads: Callable[[Any], Any]


class Way(NamedTuple):
    """A contender: what it does for each task, given the number of entries."""

    name: str
    tasks: dict[str, Callable[[Any], Any]]
    like: str = ""
    """Our contender with which it is compared: the one that gets its bytes in the same way."""


def codecs(modules: dict[str, Any]) -> dict[str, Codec]:
    """Return the codecs, by name."""
    found = {"pickle": Codec(pickle.dumps, pickle.loads, pickle.loads)}
    found["json"] = all_of(lambda value: json.dumps(value).encode(), lambda data: json.loads(bytes(data)))
    if orjson := modules.get("orjson"):
        found["orjson"] = all_of(orjson.dumps, orjson.loads)
    if msgpack := modules.get("msgpack"):
        found["msgpack"] = all_of(msgpack.packb, msgpack.unpackb)
    if "msgspec" in modules:
        import msgspec.msgpack

        found["msgspec msgpack"] = all_of(msgspec.msgpack.encode, msgspec.msgpack.decode)
    return {"pellucid": Codec(pellucid.dumps, pellucid.loads, pellucid.view), **found}


def all_of(dumps: Callable[[Any], bytes], loads: Callable[[Any], Any]) -> Codec:
    """Return a codec that reads all to read anything."""
    return Codec(dumps, loads, loads)


def middle(entries: int) -> str:
    """Return the key of the inner dict that "one" reads."""
    return f"entry {entries // 2:06d}"


def tasks_of(codec: Codec, buffer_for: Callable[[int], Any]) -> dict[str, Callable[[int], Any]]:
    """Return the tasks with a codec; `buffer_for` gets the buffer."""
    return {
        "whole": lambda entries: codec.loads(buffer_for(entries)),
        "one": lambda entries: codec.reads(buffer_for(entries))[middle(entries)]["age"],
        "each": lambda entries: sum(one["age"] for one in codec.reads(buffer_for(entries)).values()),
    }


def local_ways(known: dict[str, Codec], value: Any) -> list[Way]:
    """Return the ways over a buffer at hand."""
    ways = []
    for name, codec in known.items():
        buffer = memoryview(codec.dumps(value))
        ways.append(Way(name, tasks_of(codec, always(buffer))))
    return ways


def always(buffer: Any) -> Callable[[int], Any]:
    """Return a function that gives this buffer."""
    return lambda _entries: buffer


class Server:
    """A connection of each driver to a server that has the dicts in temporary tables."""

    def __init__(self, dsn: str, modules: dict[str, Any], known: dict[str, Codec], sizes: list[int]) -> None:
        self.known = known
        self.connections = {name: modules[name].connect(dsn) for name in ("psycopg", "psycopg2")}
        if "psycopg" in self.connections:
            self.connections["in place"] = in_place(modules["psycopg"].connect(dsn))
        for name, connection in self.connections.items():
            connection.autocommit = True
            self.fill(modules["psycopg" if name == "in place" else name], connection, sizes)
        self.version = self.fetch("psycopg", "SELECT version()")
        self.orjson = modules.get("orjson")

    def fill(self, driver: Any, connection: Any, sizes: list[int]) -> None:
        """Make the tables: one row for each size and codec."""
        with connection.cursor() as cursor:
            cursor.execute("CREATE TEMPORARY TABLE blobs (entries int, codec text, value bytea, plain bytea)")
            # PostgreSQL compresses what is longer than 2 KB, but not this column.
            cursor.execute("ALTER TABLE blobs ALTER plain SET STORAGE EXTERNAL")
            cursor.execute("CREATE TEMPORARY TABLE texts (entries int PRIMARY KEY, value text)")
            cursor.execute("CREATE TEMPORARY TABLE documents (entries int PRIMARY KEY, value jsonb)")
            for entries in sizes:
                value = collector.population(entries)
                for name, codec in self.known.items():
                    blob = driver.Binary(codec.dumps(value))
                    cursor.execute("INSERT INTO blobs VALUES (%s, %s, %s, %s)", (entries, name, blob, blob))
                text = json.dumps(value)
                cursor.execute("INSERT INTO texts VALUES (%s, %s)", (entries, text))
                cursor.execute("INSERT INTO documents VALUES (%s, %s::jsonb)", (entries, text))
            cursor.execute("CREATE UNIQUE INDEX ON blobs (codec, entries)")
            cursor.execute("ANALYZE blobs, texts, documents")

    def fetch(self, connection: str, statement: str, *parameters: Any, binary: bool = False) -> Any:
        """Return the first column of the first row."""
        with self.connections[connection].cursor() as cursor:
            if binary:
                cursor.execute(statement, parameters, binary=True)
            else:
                cursor.execute(statement, parameters)
            return cursor.fetchone()[0]

    def blob(self, codec: str, connection: str, binary: bool, column: str) -> Callable[[int], Any]:
        """Return what gets the buffer of a codec."""
        statement = f"SELECT {column} FROM blobs WHERE codec = %s AND entries = %s"
        return lambda entries: self.fetch(connection, statement, codec, entries, binary=binary)

    def ways(self) -> list[Way]:
        """Return the ways that begin with a SELECT."""
        drivers = [
            ("psycopg2", "psycopg2", False, "value"),
            ("psycopg, text", "psycopg", False, "value"),
            ("psycopg, binary", "psycopg", True, "value"),
            ("psycopg, in place", "in place", True, "value"),
            ("psycopg, in place, not compressed", "in place", True, "plain"),
        ]
        ways = []
        for label, driver, binary, column in drivers:
            for name in [name for name in ("pickle", "pellucid", "msgpack") if name in self.known]:
                get = self.blob(name, driver, binary, column)
                tasks = {**tasks_of(self.known[name], get), "fetch": get}
                ways.append(
                    Way(f"{name} ({label})", tasks, "" if name == "pellucid" else f"pellucid ({label})")
                )
        return ways + self.json_ways()

    def json_ways(self) -> list[Way]:
        """Return the ways with JSON: text and jsonb, decoded in the client, and jsonb on the server."""
        same = Codec(json.dumps, lambda value: value, lambda value: value)
        decoders = {"json": json.loads} | ({"orjson": self.orjson.loads} if self.orjson else {})
        ways = []
        for name, loads in decoders.items():
            codec = Codec(json.dumps, loads, loads)
            for table in ("texts", "documents"):
                statement = f"SELECT value::text FROM {table} WHERE entries = %s"

                def get(entries: int, statement: str = statement) -> Any:
                    return self.fetch("psycopg", statement, entries)

                label = "jsonb" if table == "documents" else "text"
                tasks = {**tasks_of(codec, get), "fetch": get}
                ways.append(Way(f"{label}, {name} (psycopg)", tasks, BINARY))
        ways.append(Way("jsonb (psycopg2)", tasks_of(same, self.document), "pellucid (psycopg2)"))
        on_server: dict[str, Callable[[Any], Any]] = {"one": self.one_on_server, "each": self.each_on_server}
        return [*ways, Way("jsonb, on the server", on_server, BINARY)]

    def document(self, entries: int) -> Any:
        """Return what psycopg2 makes of jsonb: it decodes it with the standard library."""
        return self.fetch("psycopg2", "SELECT value FROM documents WHERE entries = %s", entries)

    def one_on_server(self, entries: int) -> Any:
        """Return the field that the server has picked out."""
        statement = "SELECT (value -> %s ->> 'age')::int FROM documents WHERE entries = %s"
        return self.fetch("psycopg", statement, middle(entries), entries, binary=True)

    def each_on_server(self, entries: int) -> Any:
        """Return the sum that the server has computed."""
        statement = (
            "SELECT sum((inside.value ->> 'age')::int) FROM documents, jsonb_each(documents.value) AS inside"
            " WHERE entries = %s"
        )
        return self.fetch("psycopg", statement, entries, binary=True)


def in_place(connection: Any) -> Any:
    """Have a connection of psycopg 3 hand out the memory of its results."""
    from psycopg import adapt, pq

    class InPlace(adapt.Loader):
        format = pq.Format.BINARY

        def load(self, data: Any) -> Any:
            return data

    connection.adapters.register_loader("bytea", InPlace)
    return connection


def run(run: Run) -> None:
    """Measure buffers at hand, buffers of a server, and the unpicklers of the standard library."""
    settings = run.settings
    modules = {name: module for name in LIBRARIES if (module := run.rivals.find(name))}
    run.absent = {name: why for name, why in run.rivals.missing.items() if name in CODECS and run.takes(name)}
    known = codecs(modules)
    for entries in settings.entries:
        value = collector.population(entries)
        measured(run, "client", local_ways(known, value), entries, value)
        sizes(run, known, entries)
    if not settings.no_pickles:
        sizes_taken = [one for one in settings.entries if one <= UNPICKLED_MAX] or [min(settings.entries)]
        if len(sizes_taken) < len(settings.entries):
            run.notes.append(f"the unpicklers were measured with up to {UNPICKLED_MAX:,} entries")
        python, rounds = settings.python or sys.executable, run.pace.rounds_of(ROUNDS)
        collect(run, "buffers", python, sizes_taken, rounds=rounds, quick=run.pace.is_quick)
    if settings.no_server:
        return
    drivers = {name: run.rivals.missing[name] for name in ("psycopg", "psycopg2") if name not in modules}
    if drivers:
        run.notes.append(f"without a server: {'; '.join(drivers.values())}")
        return
    try:
        with running(settings.dsn or os.environ.get("PELLUCID_TEST_DSN")) as dsn:
            _on_server(run, Server(dsn, modules, known, list(settings.entries)))
    except Unavailable as error:
        # What needs no server has been measured, and is worth having.
        run.notes.append(f"without a server: {error}")


def _on_server(run: Run, server: Server) -> None:
    """Measure the buffers of a server."""
    run.rivals.versions["PostgreSQL"] = server.version.split(" on ")[0].removeprefix("PostgreSQL ")
    try:
        for entries in run.settings.entries:
            measured(run, "server", server.ways(), entries, collector.population(entries))
    finally:
        for connection in server.connections.values():
            connection.close()


def measured(run: Run, place: str, ways: list[Way], entries: int, value: Any) -> None:
    """Measure each task of all ways, after a check of what they give."""
    expected = {
        "whole": value,
        "one": value[middle(entries)]["age"],
        "each": sum(one["age"] for one in value.values()),
        "fetch": None,
    }
    for task, wanted in expected.items():
        taking = [way for way in ways if task in way.tasks]
        contenders = [
            timed(
                way.name,
                partial(way.tasks[task], entries),
                1,
                repeat_seconds=run.pace.sample_seconds,
                is_ours=way.name.startswith("pellucid"),
                like=way.like,
            )
            for way in taking
        ]
        if contenders:
            run.measure(
                f"{TASKS[task]}, {_entries(entries)} ({place})",
                Unit.TIME,
                contenders,
                rounds=run.pace.rounds_of(ROUNDS),
                expected=wanted,
                group=f"{place}-{task}",
                size=entries,
                size_unit=SIZE_UNIT,
                notes=["from the SELECT on"] if place == "server" else [],
            )


def _entries(count: int) -> str:
    return "1 entry" if count == 1 else f"{count:,} entries"


def sizes(run: Run, known: dict[str, Codec], entries: int) -> None:
    """Measure the bytes that each codec makes."""
    title = f"bytes of {_entries(entries)}"
    if run.wants(title):
        value = collector.population(entries)
        rows = [
            Result(name, is_ours=name == "pellucid", costs=[float(len(codec.dumps(value)))])
            for name, codec in known.items()
        ]
        run.add(Measure(title, Unit.BYTES, rows, group="bytes", size=entries, size_unit=SIZE_UNIT))
