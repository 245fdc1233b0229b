"""What is said of the files beside a database, and of one that is deleted while it is open?"""

from __future__ import annotations

import os
import shutil
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
