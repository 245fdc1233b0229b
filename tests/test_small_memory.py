"""Is a database written, replayed and read by a process, or in a container, that has little memory?"""

import contextlib
import os
import random
import select
import signal
import subprocess
import sys
import time

import pellucid
from pellucid import F
from processes import Child

MIB = 1 << 20


@contextlib.contextmanager
def container(size, tmp_path, monkeypatch):
    """A file that takes the numbers of processes which may take so many bytes of memory together.

    A user who can make no control group gets a file that does nothing. Then no process is ended for its
    memory, but it has what it would have in the container.
    """
    group = f"pellucid-test-{os.getpid()}"
    kinds = [
        (f"/sys/fs/cgroup/memory/{group}", {"memory.limit_in_bytes": size}),
        (f"/sys/fs/cgroup/{group}", {"memory.max": size, "memory.swap.max": 0}),
    ]
    for folder, limits in kinds:
        with contextlib.suppress(OSError):
            os.mkdir(folder)
            try:
                for file, limit in limits.items():
                    # The files are there, or this is no folder for groups.
                    with open(f"{folder}/{file}", "r+") as opened:
                        opened.write(str(limit))
            except OSError:
                os.rmdir(folder)
                raise
            yield f"{folder}/cgroup.procs"
            # The system needs a moment to count dead processes out.
            for _ in range(100):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)
                    break
                time.sleep(0.1)
            return
    with limited(size, tmp_path, monkeypatch):
        yield str(tmp_path / "processes")


@contextlib.contextmanager
def limited(size, tmp_path, monkeypatch):
    """Processes that are begun meanwhile take themselves to be in a container with so many bytes."""
    file = tmp_path / "limit"
    file.write_text(f"{size}\n")
    # For those alone: this process may open databases, too.
    with monkeypatch.context() as patch:
        patch.setenv("PELLUCID_MEMORY_LIMIT_FILE", str(file))
        yield


def rows(count):
    """Keys in no order, and their rows; one by one, since a list of them takes more than a container has."""
    for number in range(count):
        key = number * 387_421 % count
        yield key, {"n": key, "text": "x" * 60}


def test_a_container_of_96_mb_takes_half_a_million_puts_a_kill_and_a_replay(tmp_path, monkeypatch):
    path = tmp_path / "a.pel"
    putting = """
import itertools, os, signal, sys
sys.path.insert(0, sys.argv[3])
open(sys.argv[2], "w").write(str(os.getpid()))
import pellucid
from test_small_memory import rows
table = pellucid.open(sys.argv[1]).table("t")
some = rows(500_000)
while part := list(itertools.islice(some, 500)):
    table.update(part)
print("done", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    reading = """
import os, sys
open(sys.argv[2], "w").write(str(os.getpid()))
import pellucid
with pellucid.open(sys.argv[1]) as db:
    table = db.table("t")
    assert len(table) == 500_000
    assert all(row == {"n": key, "text": "x" * 60} for key, row in table.items())
"""

    def run(code, processes):
        command = [sys.executable, "-c", code, path, processes, os.path.dirname(__file__)]
        return subprocess.run(command, check=False, capture_output=True, text=True)

    with pellucid.open(path) as db:
        db.table("images").update({n: {"n": n, "data": os.urandom(MIB)} for n in range(100)})
    with container(96 * MIB, tmp_path, monkeypatch) as processes:
        done = run(putting, processes)
        assert (done.stdout, done.stderr, done.returncode) == ("done\n", "", -signal.SIGKILL)
        assert (tmp_path / "a.pel-log").exists()
        done = run(reading, processes)
        assert (done.returncode, done.stderr) == (0, "")


class Measured(Child):
    """A child that says how much memory of its own it has had at most while it did something."""

    def most_memory(self, code):
        self.send(code)
        most = 0
        while not select.select([self.process.stdout], [], [], 0.002)[0]:
            most = max(most, self.memory())
        self.answer()
        return most

    def memory(self):
        if sys.platform != "linux":
            return 0  # no other system tells it of a process that runs
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) << 10 for line in status if line.startswith("RssAnon"))


def begun_with(size, tmp_path, monkeypatch, *arguments, **options):
    """A child that takes itself to be in a container with so many bytes."""
    with limited(size, tmp_path, monkeypatch):
        return Measured(*arguments, **options)


def test_the_log_is_as_long_as_the_container_allows(tmp_path, monkeypatch):
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db.update(dict.fromkeys(range(40_000), "x" * 1000))
    sizes = []
    for size in (96 * MIB, 512 * MIB, "max"):
        with begun_with(size, tmp_path, monkeypatch, path) as child:
            child("db['a'] = 1")
            sizes.append(child("db.stats()['log_limit']"))
    small, middle, usual = sizes
    # Of an eighth of the memory, as much as two memtables leave for the two segments.
    assert small < 12 * MIB < middle < 64 * MIB < usual


def test_memory_is_bounded_while_rows_are_put_and_deleted_in_no_order(tmp_path, monkeypatch):
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db.table("t").update(rows(300_000))
    with begun_with(64 * MIB, tmp_path, monkeypatch, path) as child:
        child("import random; table = db.table('t')")
        before = child.memory()
        most = child.most_memory(
            "for key in random.Random(2).sample(range(300_000), 150_000): table[key] = {'n': -key}"
        )
        assert most - before < 40 * MIB
        most = child.most_memory(
            "with db.transaction():\n"
            "    for key in random.Random(3).sample(range(300_000), 100_000): del table[key]"
        )
        child("db.sync()")
        most = max(most, child.most_memory("for key in list(table)[::2]: del table[key]\ndb.close()"))
        assert most - before < 60 * MIB


def batches(count):
    """Rows to put, and keys to delete. Later ones replace and delete what earlier ones have put."""
    dice = random.Random(5)
    for number in range(count):
        keys = [dice.randrange(250_000) for _ in range(400)]
        text = "y" * dice.randrange(1000)
        yield {key: {"n": number - key % 3, "text": text} for key in keys[:300]}, keys[250:]


def test_a_log_of_several_times_the_memory_is_replayed_in_parts(tmp_path, monkeypatch):
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db.table("t").update(rows(200_000))
        db.table("t").create_index("n", F.n)
    # Before a checkpoint is due, so in one go.
    with Child(path, memory=1 << 30) as child:
        child(f"import sys; sys.path.insert(0, {os.path.dirname(__file__)!r})")
        child(
            "from test_small_memory import batches; table = db.table('t'); all_of_them = list(batches(200))"
        )
        child("""
for number, (puts, deletes) in enumerate(all_of_them):
    table.update(puts)
    with db.transaction():
        for key in deletes:
            table.pop(key, None)
    if number % 40 == 0:
        db["large"] = {"data": bytes([number]) * 150_000}
        db.table(f"made {number}")["a"] = number
""")
        assert child("db.stats()['log_pending']") > 16 * MIB
        child.kill()
    expected = dict(rows(200_000))
    for puts, deletes in batches(200):
        expected.update(puts)
        for key in deletes:
            expected.pop(key, None)
    with begun_with(64 * MIB, tmp_path, monkeypatch) as child:
        before = child.memory()
        most = child.most_memory(f"db = pellucid.open({str(path)!r})")
        assert most - before < 30 * MIB
        assert child("db.stats()['log_recovered']") > 300
        assert child("db.check()") == []
        assert child("len(db.table('t')), sorted(db.tables())") == (
            len(expected),
            sorted(["default", "t", *(f"made {number}" for number in range(0, 200, 40))]),
        )
        assert child("set(bytes(db['large'].data))") == {160}
    with pellucid.open(path, "r") as db:
        assert {key: dict(row) for key, row in db.table("t").items()} == expected
        assert db.table("t").where(F.n < 100).count() == sum(row["n"] < 100 for row in expected.values())


def test_the_memory_of_a_process_that_only_reads_bounds_the_log(tmp_path):
    path = tmp_path / "a.pel"
    with pellucid.open(path, memory=512 * MIB) as db:
        table = db.table("t")
        table.update(rows(100_000))
        db.sync()
        deadline = time.monotonic() + 30
        while db.stats()["log_limit"] < 60 * MIB:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        for key, row in rows(100_000):
            table[key] = row
        usual = db.stats()["log_limit"]
        with Measured() as child:
            before = child.memory()
            most = child.most_memory(f"db = pellucid.open({str(path)!r}, 'r', memory={8 * MIB})")
            assert child("len(db.table('t'))") == 100_000
            deadline = time.monotonic() + 30
            while db.stats()["log_limit"] > 9 * MIB:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            for number in range(100_000):
                table[number] = {"n": number, "text": "z" * 200}
                if number % 10_000 == 0:
                    assert child(f"db.table('t')[{number}].text[0]") == "z"
                    most = max(most, child.memory())
            assert most - before < 40 * MIB
        db["again"] = 1
        deadline = time.monotonic() + 30
        while db.stats()["log_limit"] < usual:
            assert time.monotonic() < deadline
            time.sleep(0.05)


def test_a_sort_a_build_of_an_index_and_groups_take_a_part_of_a_container(tmp_path, monkeypatch):
    path = tmp_path / "a.pel"
    count = 250_000
    with pellucid.open(path) as db:
        db.table("t").update((n, {"n": -n, "text": f"{n * 387_421 % count:0150}"}) for n in range(count))
    # Without a limit, the sort takes 44 MiB, and the build 54.
    with begun_with(24 * MIB, tmp_path, monkeypatch, path, auto_compact=False) as child:
        child("from pellucid import F, count; table = db.table('t')")
        child("list(table.order_by(F.text).limit(3)), sum(1 for _ in table)")
        before = child.memory()
        most = child.most_memory("rows = [row.n for row in table.order_by(F.text).offset(249_990)]")
        assert child("rows") == [-n for n in sorted(range(count), key=lambda n: n * 387_421 % count)[-10:]]
        assert most - before < 34 * MIB
        child("try: table.group_by(F.text).agg(n=count())\nexcept ValueError as error: refused = error")
        assert child("type(refused).__name__") == "TooManyGroups"
        assert "over 12 MiB" in child("str(refused)")
        before = child.memory()
        most = child.most_memory("table.create_index('by_text', F.text)")
        assert most - before < 26 * MIB
        assert child("db.check()") == []
