"""What may happen to the interpreter itself: modules are imported again, and it ends while threads run."""

from __future__ import annotations

import collections
import os
import subprocess
import sys
import textwrap

import pytest

# What test tools, autodoc and reloaders do.
IMPORTED_TWICE = """
import sys
from unittest import mock

with mock.patch.dict(sys.modules):
    import pellucid as first
    import pellucid.shelve as first_shelve

    class Point:
        pass

    first.register(Point, lambda point: 1, lambda one: Point())
    first.rename_classes({"old.Name": "new.Name"})
    kept = first.open(":memory:")
    kept["record"] = {"a": 1}

import pellucid

db = pellucid.open(":memory:")
"""


def run(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a script in an interpreter of its own."""
    command = [sys.executable, "-X", "faulthandler", "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.parametrize(
    "then",
    [
        "db[1] = 1; assert db[1] == 1; del db[1]; assert 1 not in db",
        "db['a'] = 1; assert db['a'] == 1; t = db.table('t'); t['a'] = 2; assert t['a'] == 2",
        "assert kept['record'].a == 1; kept['b'] = 2; assert [*kept] == ['b', 'record']",
        "db.append({'a': 1})\nwith db.edit(0) as row: row.a = 5\nassert db.first()[1].a == 5",
        "from pellucid import shelve\ns = shelve.open(':memory:'); s['a'] = 1; assert s['a'] == 1\n"
        "assert shelve is first_shelve",
        "assert isinstance(pellucid.loads(pellucid.dumps(Point())), Point)",
        "view = pellucid.view(memoryview(pellucid.dumps({'a': [1, {'b': 2}]}))); assert view.a[1].b == 2\n"
        "import gc; view = None; gc.collect()",
        "try: first.open(first.__file__, 'r')\nexcept pellucid.NotADatabase: pass\nelse: assert False",
        "try: db['x'] = object()\nexcept first.UnsupportedValue: pass\nelse: assert False",
        "from pellucid import renames; assert renames.new_name('old.Name') == 'new.Name'",
        "import pickle\nassert type(pickle.loads(pickle.dumps(first.Busy()))) is pellucid.errors.Busy",
        "import importlib; importlib.reload(pellucid); importlib.reload(pellucid._native); db[1] = 1",
        "del sys.modules['pellucid._native']; import pellucid._native; db[1] = 1; assert db[1] == 1",
        "del sys.modules['pellucid']; import pellucid as third; assert third is first",
        "from collections.abc import MutableMapping; assert isinstance(db, MutableMapping)",
    ],
)
def test_a_second_import_gives_the_modules_of_the_first(then: str) -> None:
    done = run(f"{IMPORTED_TWICE}\nassert pellucid is first\n{then}")
    assert done.returncode == 0, done.stderr[-2000:]


def test_an_import_after_a_failed_one_is_a_first_import() -> None:
    done = run(
        textwrap.dedent("""
        import sys

        sys.modules["pellucid.transfer"] = None
        try:
            import pellucid
        except ImportError:
            pass
        else:
            assert False
        for name in [name for name in sys.modules if name.startswith("pellucid")]:
            del sys.modules[name]
        import pellucid

        db = pellucid.open(":memory:")
        db[1] = {"a": 1}
        assert db[1].a == 1
        assert pellucid.import_from is not None
        """)
    )
    assert done.returncode == 0, done.stderr[-2000:]


# The main thread ends while another one is within native code that has called Python.
ENDED_WITHIN = """
import collections, dataclasses, enum, os, random, sys, tempfile, threading, time
import pellucid

@dataclasses.dataclass
class Point:
    a: int
    b: int

class Registered:
    def __eq__(self, other): return sum(range(50)) > 0
    def __hash__(self): return 1

class Colour(enum.Enum):
    RED = 1

pellucid.register(Registered, lambda _: 1, lambda _: Registered())
kind = sys.argv[1]
path = os.path.join(sys.argv[2], "db") if "file" in kind else ":memory:"
db = pellucid.open(path, pickle="allow")
table = db.table("t")
table.extend([{"a": i, "b": "x"} for i in range(40)])
points, odd = db.table("p", type=Point), db.table("o")

def rows():
    for i in range(100):
        yield {"a": sum(range(i))}

def sleeps(row):
    time.sleep(0.0001)
    return True

DO = {
    "typed table": lambda: (points.__setitem__(3, Point(1, 2)), points[3]),
    "filter": lambda: table.filter(lambda row: row.a > 3).to_list(),
    "filter that sleeps": lambda: table.filter(sleeps).to_list(),
    "registered class": lambda: pellucid.loads(pellucid.dumps([Registered()] * 10)),
    "members of a set": lambda: pellucid.loads(pellucid.dumps([{Registered()}] * 5)),
    "pickles": lambda: (odd.__setitem__("a", {"x": frozenset([1]), "y": range(3)}), odd["a"].to_dict()),
    "Enum": lambda: pellucid.dumps([Colour.RED] * 20),
    "rows of a generator, in a file": lambda: db.table("g").extend(rows()),
    "transaction, in a file": lambda: db.table("u").update({n: {"a": n} for n in range(50)}),
    "get and put, in a file": lambda: (table.__setitem__(3, Point(1, 2)), table.get(3)),
}

def work():
    while True:
        DO[kind]()

for _ in range(2):
    threading.Thread(target=work, daemon=True).start()
end = time.time() + 0.05 + random.random() * 0.1
while time.time() < end:
    sum(range(100))
"""


@pytest.mark.parametrize(
    "kind",
    [
        "typed table",
        "filter",
        "filter that sleeps",
        "registered class",
        "members of a set",
        "pickles",
        "Enum",
        "rows of a generator, in a file",
        "transaction, in a file",
        "get and put, in a file",
    ],
)
def test_a_process_ends_normally_while_a_daemon_thread_is_in_native_code(
    kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Before Python 3.14, such a thread was unwound through native frames: SIGABRT, or SIGSEGV."""
    ends: collections.Counter[str] = collections.Counter()
    for _ in range(4):
        done = run(ENDED_WITHIN, kind, os.fspath(tmp_path_factory.mktemp("ends")))
        ends[f"{done.returncode} {done.stderr[-1000:]}"] += 1
    assert [*ends] == ["0 "], ends
