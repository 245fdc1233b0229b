"""What is said of the files beside a database, and of one that is deleted while it is open?"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pellucid
import pytest
from processes import Child


def test_a_backup_of_the_folder_by_this_process_hides_no_reader(path: Path) -> None:
    with pellucid.open(path) as db:
        db.update({key: {"v": "old" + "a" * 100} for key in range(2000)})
        db.sync()
        with db.snapshot() as snap, Child(path) as other:
            shutil.copytree(path.parent, path.parent.with_name("copied"))
            readers = other("db.stats()['readers']")
            for number in range(30):
                other(
                    f"db.update({{key: {{'v': '{number}' + 'z' * 100}} for key in range(2000)}}); db.sync()"
                )
            assert other("db.stats()['readers']") == readers
            assert {row.v for row in snap.values()} == {"old" + "a" * 100}


def test_a_link_at_the_name_of_the_log_is_refused_and_its_target_left_alone(path: Path) -> None:
    pellucid.open(path).close()
    path.chmod(0o666)
    victim = path.with_name("victim")
    victim.write_bytes(b"")
    victim.chmod(0o600)
    link = path.with_name(path.name + "-log")
    link.symlink_to(victim)
    with pytest.raises(pellucid.DatabaseError, match=r"test\.pel-log' is a symbolic link.*move it away"):
        pellucid.open(path)
    assert (victim.stat().st_mode & 0o777, victim.stat().st_size) == (0o600, 0)
    link.unlink()
    pellucid.open(path).close()
    assert sorted(os.listdir(path.parent)) == ["test.pel", "victim"]


def test_commits_to_a_file_that_was_deleted_are_not_lost_without_a_word(path: Path) -> None:
    db = pellucid.open(path)
    db["a"] = 1
    path.unlink()
    db["b"] = 2
    with pytest.raises(pellucid.DatabaseError, match=r"was deleted or replaced.*backup\("):
        db.sync()
    saved = path.with_name("saved.pel")
    db.backup(saved)
    with pytest.warns(pellucid.LostCommitsWarning, match="was deleted or replaced"):
        db.close()
    with pellucid.open(saved, "r") as copy:
        assert dict(copy) == {"a": 1, "b": 2}


# A process of this user, which has all that it needs in memory before: the user may not read this Python.
OF_USER = """
import os, sys
import pellucid
with pellucid.open(":memory:") as db:
    db["a"] = {"a": 1}
if os.geteuid() == 0:
    os.setgroups([])
    os.setgid(int(sys.argv[2]))
    os.setuid(int(sys.argv[2]))
os.umask(0o022)
"""
WRITING = (
    OF_USER
    + """
with pellucid.open(sys.argv[1], timeout=2) as db:
    db[str(len(db))] = 1
    db.sync()
"""
)
READING = (
    OF_USER
    + """
db = pellucid.open(sys.argv[1], "r")
print(sorted(db), flush=True)
sys.stdin.read()
print(sorted(db), flush=True)
"""
)


def test_a_user_who_may_only_read_leaves_the_owner_of_a_database_the_right_to_write() -> None:
    # Only root can be several users. For others both are the same one.
    owner, other = ("60001", "60002") if os.geteuid() == 0 else 2 * (str(os.geteuid()),)
    # As /tmp: each user may make files, and delete only their own.
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o1777)
    path = f"{folder}/a.pel"
    write = [sys.executable, "-c", WRITING, path, owner]
    try:
        subprocess.run(write, check=True)
        command = [sys.executable, "-c", READING, path, other]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            assert reader.stdout.readline() == "['0']\n"
            # While it has the database open, and when it was killed.
            subprocess.run(write, check=True)
            reader.stdin.close()
            assert reader.stdout.readline() == "['0', '1']\n"
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
            assert reader.stdout is not None
            assert reader.stdout.readline() == "['0', '1']\n"
            reader.kill()
        subprocess.run(write, check=True)
        with pellucid.open(path, "r") as db:
            assert len(db) == 3
    finally:
        shutil.rmtree(folder)


SYNCING = (
    OF_USER
    + """
db = pellucid.open(sys.argv[1], "r")
print(sorted(db), flush=True)
db.sync()
db.close()
"""
)


def test_a_user_who_may_only_read_syncs_nothing_for_those_who_write() -> None:
    folder = tempfile.mkdtemp()
    os.chmod(folder, 0o755)
    path = f"{folder}/a.pel"
    other = "60002" if os.geteuid() == 0 else str(os.geteuid())
    try:
        with pellucid.open(path) as db:
            # The file is new, and not on the disk yet.
            db["0"] = 1
            done = subprocess.run(
                [sys.executable, "-c", SYNCING, path, other], check=True, capture_output=True
            )
            assert done.stdout == b"['0']\n"
            db["1"] = 1
            db.sync()
    finally:
        shutil.rmtree(folder)


def test_a_lock_file_on_a_tmpfs_has_all_of_its_room(tmp_path: Path) -> None:
    """A hole in it that is read through a map takes room, and on a full tmpfs ends the reader."""
    mounts = Path("/proc/mounts").read_text() if sys.platform == "linux" else ""
    has_tmpfs = ["/dev/shm", "tmpfs"] in (line.split()[1:3] for line in mounts.splitlines())
    folder = tempfile.mkdtemp(dir="/dev/shm" if has_tmpfs else tmp_path)
    with pellucid.open(f"{folder}/a.pel") as db:
        db["a"] = 1
        lock = os.stat(f"{folder}/a.pel-lock")
    shutil.rmtree(folder)
    assert lock.st_size > 200_000
    assert lock.st_blocks * 512 >= lock.st_size or not has_tmpfs
