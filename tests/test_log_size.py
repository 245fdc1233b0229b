"""How long is the log, and how much memory may it take?"""

import os
import pickle
import random
import resource
import signal
import subprocess
import sys
import time

import pellucid
import pytest
from processes import PEAK_MEMORY, Child

MIB = 1 << 20
# A process that writes a row, says so, and stays.
WRITER = """
import sys, pellucid
db = pellucid.open(sys.argv[1], memory=int(sys.argv[2]))
db["by the other"] = 1
print("wrote", flush=True)
sys.stdin.read()
db.close()
"""


def wait_until(is_so, seconds=30):
    begin = time.monotonic()
    while not is_so():
        assert time.monotonic() - begin < seconds, "it did not come"
        time.sleep(0.05)


def wait_for_rest(db):
    """Wait until the log has given its room back, and see that it stays so."""
    wait_until(lambda: db.stats()["log_size"] <= 24 * MIB, 60)
    time.sleep(1)
    assert db.stats()["log_size"] <= 24 * MIB


def fill(db, count, size=1000, seed=1):
    """Rows under random keys, each in its own commit."""
    dice = random.Random(seed)
    for _ in range(count):
        db[dice.randrange(1 << 60)] = "x" * size


@pytest.mark.parametrize(
    ("memory", "error", "words"),
    [
        (8 * MIB - 1, ValueError, "memory=8388607 is not enough; use 8388608 bytes (8 MiB) or more"),
        (0, ValueError, "8 MiB"),
        (-(1 << 70), ValueError, "8 MiB"),
        (True, TypeError, "memory has to be an int, of bytes, not bool"),
        ("256 MB", TypeError, "memory has to be an int, of bytes, not str"),
        (1e9, TypeError, "memory has to be an int, of bytes, not float"),
    ],
)
def test_memory_that_is_no_size_is_refused(tmp_path, memory, error, words):
    with pytest.raises(error) as raised:
        pellucid.open(tmp_path / "a.pel", memory=memory)
    assert words in str(raised.value)
    assert not (tmp_path / "a.pel").exists()


def test_a_server_takes_no_memory():
    with pytest.raises(ValueError, match="memory= is about files"):
        pellucid.open("postgresql://nowhere.invalid/x", memory=64 * MIB)


@pytest.mark.parametrize("memory", [8 * MIB, 1 << 40, 1 << 80])
def test_any_memory_from_8_mib_on_is_taken(tmp_path, memory):
    with pellucid.open(tmp_path / "a.pel", memory=memory) as db:
        fill(db, 3000, 3000)
        assert len(db) == 3000
        db.sync()
        assert len(db) == 3000
        stats = db.stats()
        if memory == 8 * MIB:
            # Two segments, each with a memtable.
            assert stats["log_limit"] < memory + MIB
        else:
            assert stats["log_limit"] > 64 * MIB


def test_a_batch_of_several_times_the_memory_is_stored_in_one_commit(tmp_path):
    path, count = tmp_path / "a.pel", 60_000
    with pellucid.open(path, memory=8 * MIB) as db:
        db.table("t").create_index("n", pellucid.F.n)
        rows = {random.Random(n).getrandbits(60): {"n": n, "text": "x" * 700} for n in range(count)}
        version = db.stats()["version"]
        db.table("t").update(rows)
        assert db.stats()["version"] == version + 1
        with db.transaction():
            for key in list(rows)[::2]:
                del db.table("t")[key]
        assert db.table("t").where(pellucid.F.n < 100).count() == 50
        # A value of its own of more than the memory.
        db["large"] = {"n": 1, "data": bytes(20 * MIB)}
        assert len(db["large"].data) == 20 * MIB
        assert db.stats()["log_limit"] < 9 * MIB
    with pellucid.open(path, memory=8 * MIB) as db:
        assert len(db.table("t")) == count // 2
        assert db.check() == []


def test_the_log_may_grow_with_the_tree(tmp_path):
    with pellucid.open(tmp_path / "a.pel", memory=1 << 30) as db:
        db["first"] = 1
        small = db.stats()["log_limit"]
        db.update(dict.fromkeys(range(40_000), "x" * 1000))
        db.sync()
        wait_until(lambda: db.stats()["log_limit"] > 2 * small)
        db["last"] = 1
        assert db.stats()["log_size"] < small


@pytest.mark.parametrize("dies", [False, True])
def test_the_writer_with_the_least_memory_limits_the_log(tmp_path, dies):
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db["mine"] = 1
        usual = db.stats()["log_limit"]
        command = [sys.executable, "-c", WRITER, path, str(8 * MIB)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"wrote\n"
            wait_until(lambda: db.stats()["log_limit"] < 9 * MIB)
            fill(db, 20_000)
            if dies:
                writer.send_signal(signal.SIGKILL)
            writer.communicate()
        wait_until(lambda: db.stats()["log_limit"] >= usual)
        assert len(db) == 20_002


def test_a_reader_limits_nothing(tmp_path):
    path = tmp_path / "a.pel"
    with pellucid.open(path) as db:
        db["mine"] = 1
        usual = db.stats()["log_limit"]
        with pellucid.open(path, "r", memory=8 * MIB) as reader:
            assert reader["mine"] == 1
            time.sleep(1.2)
            assert db.stats()["log_limit"] >= usual


def test_the_log_gives_its_room_back_at_rest_and_grows_again(tmp_path):
    path = tmp_path / "a.pel"
    other = """
import sys, pellucid
db = pellucid.open(sys.argv[1])
for number in range(30_000):
    db[f"o{number}"] = "y" * 1000
print("wrote", flush=True)
sys.stdin.readline()
for number in range(30_000):
    db[f"o{number}"] = "z" * 1000
db.close()
"""
    with pellucid.open(path) as db:
        fill(db, 40_000)
        command = [sys.executable, "-c", other, path]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as writer:
            assert writer.stdout.readline() == b"wrote\n"
            full = db.stats()["log_size"]
            wait_for_rest(db)
            assert full > 30 * MIB
            # Both processes write where the log had room before.
            writer.stdin.write(b"\n")
            writer.stdin.flush()
            fill(db, 40_000, seed=2)
            assert writer.wait() == 0
        assert db["o29999"] == "z" * 1000
        assert len(db) == 110_000
        assert db.check() == []
    assert os.listdir(tmp_path) == ["a.pel"]


def test_a_process_with_little_address_space_works_beside_a_long_log(tmp_path):
    path = tmp_path / "a.pel"
    limited = """
import resource, sys, pellucid
resource.setrlimit(resource.RLIMIT_AS, (3 << 29, 3 << 29))
db = pellucid.open(sys.argv[1])
assert all(db[number] == "x" * 1000 for number in range(0, 50_000, 97))
for number in range(5000):
    db[f"by the other {number}"] = number
db.close()
"""
    assert resource.getrlimit(resource.RLIMIT_AS)[0] == resource.RLIM_INFINITY
    with pellucid.open(path) as db:
        db.update(dict.fromkeys(range(60_000), "x" * 1000))
        db.sync()
        wait_until(lambda: db.stats()["log_limit"] > 150 * MIB)
        for number in range(50_000):
            db[number] = "x" * 1000
        # The segments' pieces alternate, so this is behind the first 64 MiB of the file.
        assert db.stats()["log_pending"] > 40 * MIB
        done = subprocess.run([sys.executable, "-c", limited, path], check=False, capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        assert db["by the other 4999"] == 4999
        assert len(db) == 65_000


def test_what_an_earlier_use_of_a_segment_left_takes_no_memory(tmp_path):
    """Behind the last record of a segment are older bytes: digits look like the size of a long record."""
    path = tmp_path / "a.pel"
    with pellucid.open(path, memory=8 * MIB) as db, Child(path) as child:
        # Two segments, each used twice, the second time for less.
        for count in (2_000, 2_000, 1_000, 1):
            for number in range(count):
                db[number] = "0" * 1000
            assert child("db[0]") == "0" * 1000
            db.sync()
            assert db.stats()["log_pending"] == 0
        db[1] = "end"
        assert child("db[1]") == "end"
        child(PEAK_MEMORY)
        assert child("peak_memory()") < 300 << 10


LIMITED = """
import resource, sys, pellucid
resource.setrlimit(resource.RLIMIT_AS, (700 << 20, 700 << 20))
db = pellucid.open(sys.argv[1], sys.argv[2])
print(db.stats()["log_limit"], flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("mode", ["r", "w"])
def test_a_process_with_little_address_space_limits_the_log(tmp_path, mode):
    path = tmp_path / "a.pel"
    # Other systems do not say how much address space is left.
    most = 48 * MIB if sys.platform == "linux" else 1 << 40
    with pellucid.open(path) as db:
        db.update(dict.fromkeys(range(30_000), "x" * 1000))
        db.sync()
        wait_until(lambda: db.stats()["log_limit"] > 100 * MIB)
        command = [sys.executable, "-c", LIMITED, path, mode]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as limited:
            assert int(limited.stdout.readline()) < most
            wait_until(lambda: db.stats()["log_limit"] < most)
            limited.communicate()
        wait_until(lambda: db.stats()["log_limit"] > 100 * MIB)


def test_a_database_is_pickled_with_its_memory(tmp_path):
    with pellucid.open(tmp_path / "a.pel", memory=8 * MIB) as db:
        db["a"] = 1
        with pickle.loads(pickle.dumps(db)) as again:
            assert again["a"] == 1
            assert again.stats()["log_limit"] < 9 * MIB
