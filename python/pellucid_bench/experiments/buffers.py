"""Time the ways to get at a dict that arrives in a database buffer: pickle, JSON, jsonb, msgpack, pellucid.

    pellucid bench buffers --json out.json            # with a server of its own
    pellucid bench buffers --dsn "host=db.example"    # with yours: it makes temporary tables only
    pellucid bench buffers --no-server

Three tasks: "whole" makes a plain dict of all, "one" reads a field of one inner dict, "each" adds up that
field of all inner dicts. "fetch" is the SELECT alone. The pickles of each protocol and the unpicklers are the
part of `buffers_collect.py`, which runs on other interpreters too.

A run writes one JSON dataset with each sample, and names the libraries that are not installed. On a busy
machine the clock says little. So a table shows processor time where it is known: that of the client, and of
the server's process if it runs on this machine.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.metadata
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from pellucid_bench import buffers_collect as collector

# The modules, and the packages that have them.
LIBRARIES = {
    "pellucid": "pellucid",
    "psycopg": "psycopg",
    "psycopg2": "psycopg2-binary",
    "orjson": "orjson",
    "msgpack": "msgpack",
    "msgspec": "msgspec",
}
TASKS = ("whole", "one", "each", "fetch")
SERVER = Path(__file__).parents[3] / "tools/postgres_server.py"


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


def installed() -> tuple[dict[str, Any], list[str]]:
    """Return the modules that can be imported, and the names of those that cannot."""
    modules = {}
    for name in LIBRARIES:
        with contextlib.suppress(ImportError):
            modules[name] = importlib.import_module(name)
    return modules, [name for name in LIBRARIES if name not in modules]


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
    if pellucid := modules.get("pellucid"):
        found["pellucid"] = Codec(pellucid.dumps, pellucid.loads, pellucid.view)
    return found


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


def size_of(name: str, codec: Codec, entries: int) -> dict[str, Any]:
    """Return the number of bytes that a codec makes."""
    return {"codec": name, "entries": entries, "size": len(codec.dumps(collector.population(entries)))}


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
                ways.append(Way(f"{name} ({label})", tasks))
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
                ways.append(Way(f"{label}, {name} (psycopg)", {**tasks_of(codec, get), "fetch": get}))
        ways.append(Way("jsonb (psycopg2)", tasks_of(same, self.document)))
        return [*ways, Way("jsonb, on the server", {"one": self.one_on_server, "each": self.each_on_server})]

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

    def clocks(self) -> dict[str, Callable[[], float]]:
        """Return the clocks; "backend" is the processor time of the server's processes, if they are here."""
        processes = [self.fetch(name, "SELECT pg_backend_pid()") for name in self.connections]
        here = self.fetch("psycopg", "SELECT inet_server_addr() IS NULL")  # a Unix socket
        files = [Path(f"/proc/{process}/schedstat") for process in processes]
        if not (here and all(file.exists() for file in files)):
            return dict(collector.CLOCKS)
        return {"backend": lambda: sum(map(processor_of, files)), **collector.CLOCKS}


def processor_of(statistics: Path) -> float:
    """Return the processor time of a process, in seconds: the first figure of its schedstat."""
    return int(statistics.read_text().split()[0]) / 1e9


def in_place(connection: Any) -> Any:
    """Have a connection of psycopg 3 hand out the memory of its results."""
    from psycopg import adapt, pq

    class InPlace(adapt.Loader):
        format = pq.Format.BINARY

        def load(self, data: Any) -> Any:
            return data

    connection.adapters.register_loader("bytea", InPlace)
    return connection


def check(way: Way, value: Any, entries: int) -> None:
    """Compare what a way gives with the dict."""
    wanted = {
        "whole": value,
        "one": value[middle(entries)]["age"],
        "each": sum(one["age"] for one in value.values()),
    }
    for task, function in way.tasks.items():
        if task in wanted and function(entries) != wanted[task]:
            raise SystemExit(f"{way.name} gives another answer in {task!r} of {entries} entries")


def timed(
    ways: list[Way], entries: int, rounds: int, clocks: dict[str, Callable[[], float]], place: str
) -> list[dict[str, Any]]:
    """Return the samples of all ways, for one size."""
    value = collector.population(entries)
    for way in ways:
        check(way, value, entries)
    results = []
    for task in TASKS:
        taking = [way for way in ways if task in way.tasks]
        samples = collector.in_turn([(way.tasks[task], entries) for way in taking], rounds, clocks)
        for way, sample in zip(taking, samples, strict=True):
            results.append({**sample, "place": place, "task": task, "way": way.name, "entries": entries})
    return results


@contextlib.contextmanager
def connection_string(given: str | None) -> Iterator[str]:
    """The server's, which runs for the block if none was given."""
    if given:
        yield given
        return
    command = [sys.executable, str(SERVER)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as keeper:
        assert keeper.stdout is not None
        dsn = keeper.stdout.readline().strip()
        if not dsn:
            raise SystemExit("no PostgreSQL server; name one with --dsn, or leave it out with --no-server")
        yield dsn
        keeper.communicate("stop\n")


def show(results: list[dict[str, Any]]) -> None:
    """Print the medians of each task and size, and how they compare with pellucid's."""
    groups: dict[tuple[str, int, str], list[tuple[float, str]]] = {}
    for result in results:
        seconds = result["seconds"]
        if result["place"] == "client":
            seconds = result["processor"]
        elif "backend" in result:
            seconds = [sum(pair) for pair in zip(result["processor"], result["backend"], strict=True)]
        group = (result["place"], result["entries"], result["task"])
        groups.setdefault(group, []).append((collector.median(seconds), result["way"]))
    for (place, entries, task), rows in groups.items():
        ours = min((seconds for seconds, way in rows if way.startswith("pellucid")), default=None)
        print(f"\n{place}, {entries} entries, {task}")
        for seconds, way in sorted(rows):
            ratio = f"{seconds / ours:8.2f}x" if ours else ""
            print(f"    {way:44} {seconds * 1e6:14,.1f} us {ratio}")


def main() -> None:
    """Run all of it, print the medians, and write the dataset."""
    parser = collector.arguments()
    parser.add_argument("--dsn", default=os.environ.get("PELLUCID_TEST_DSN"), help="the server")
    parser.add_argument("--no-server", action="store_true", help="leave out what needs a server")
    parser.add_argument("--no-pickles", action="store_true", help="leave out the part of buffers_collect.py")
    options = collector.options_of(parser)
    modules, missing = installed()
    known = codecs(modules)
    results, sizes, server_version = [], [], None
    for entries in options.entries:
        ways = local_ways(known, collector.population(entries))
        results += timed(ways, entries, options.rounds, collector.CLOCKS, "client")
        sizes += [size_of(name, codec, entries) for name, codec in known.items()]
        print(f"client, {entries} entries: done", file=sys.stderr)
    if not options.no_server and {"psycopg", "psycopg2"} <= set(modules):
        with connection_string(options.dsn) as dsn:
            server = Server(dsn, modules, known, options.entries)
            server_version = server.version
            for entries in options.entries:
                results += timed(server.ways(), entries, options.rounds, server.clocks(), "server")
                print(f"server, {entries} entries: done", file=sys.stderr)
            for connection in server.connections.values():
                connection.close()
    show(results)
    if not options.no_pickles:
        results += collector.collect(
            options.entries, options.rounds, lambda line: print(line, file=sys.stderr)
        )
    if options.json:
        versions = {name: importlib.metadata.version(LIBRARIES[name]) for name in modules}
        more = {"sizes": sizes, "versions": versions, "not_installed": missing, "server": server_version}
        collector.write(options.json, collector.dataset(results, options.rounds, **more))


if __name__ == "__main__":
    main()
