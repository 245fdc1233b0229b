"""Do CPython's own tests of shelve and dbm pass over pellucid's modules?

They are the tests of the interpreter that runs, as they are (standard.py). A Python without its `test`
package has none of them; there, test_shelve.py and test_dbm.py alone say that the modules work.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from drop_ins import standard

# What is about the files or the extra methods of one backend.
OTHER_FILES = "is about the three files of dbm.dumb"
OTHER_METHODS = "calls a method that only this backend has"
OTHER_FLAGS = "is about flags that only this backend has"
OTHER_WORDS = "compares a message, which names this backend"
OTHER_SIZES = "compares sizes of the file while it is open; ours grows when the log is copied into it"
WITHOUT_DUMB = {
    "DumbDBMTestCase.test_dumbdbm_creation_mode": OTHER_FILES,
    "DumbDBMTestCase.test_line_endings": OTHER_FILES,
    "DumbDBMTestCase.test_eval": OTHER_FILES,
    "DumbDBMTestCase.test_missing_data": OTHER_FILES,
    "DumbDBMTestCase.test_missing_index": OTHER_FILES,
    "DumbDBMTestCase.test_sync_empty_unmodified": OTHER_FILES,
    "DumbDBMTestCase.test_sync_nonempty_unmodified": OTHER_FILES,
    "DumbDBMTestCase.test_readonly_files": OTHER_FILES,
    "DumbDBMTestCase.test_nonascii_filename": OTHER_FILES,
    "DumbDBMTestCase.test_check_closed": OTHER_METHODS,
}
WITHOUT_GNU = {
    "TestGdbm.test_disallow_instantiation": OTHER_METHODS,
    "TestGdbm.test_flags": OTHER_FLAGS,
    "TestGdbm.test_context_manager": OTHER_WORDS,
    "TestGdbm.test_reorganize": OTHER_SIZES,
}
WITHOUT_NDBM = {"DbmTestCase.test_modes": OTHER_FLAGS}
WITHOUT_SQLITE = {
    "URI": "is about a function for SQLite's names of files",
    "CorruptDatabase": "damages the file with SQLite; ours is tested in tests/test_damage.py",
    "DataTypes": "stores numbers as text, which all other backends refuse",
    "ReadWrite.test_readwrite_unique_key": "reads the file with SQLite",
    "ReadWrite.test_readwrite_delete": "reads the file with SQLite",
    "ReadWrite.test_readwrite_null_key": "wants an error where all other backends raise TypeError",
    "ReadWrite.test_readwrite_null_value": "wants an error where all other backends raise TypeError",
    "Misuse.test_misuse_iter_close1": "stores a number",
    "Misuse.test_misuse_iter_close2": "stores numbers",
    "Misuse.test_misuse_reinit": OTHER_WORDS,
    "Misuse.test_misuse_empty_filename": "opens a file without a name",
}


@pytest.fixture(autouse=True)
def _scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests write into the current folder."""
    monkeypatch.chdir(tmp_path)


def _add(suffix: str, found: dict[str, type]) -> None:
    for name, case in found.items():
        globals()[f"Test_{suffix}_{name}"] = case


_add("shelve", standard.cases("test_shelve"))
_add("dbm", standard.cases("test_dbm"))
_add("dumb", standard.cases("test_dbm_dumb", replaced=("dumb",), without=WITHOUT_DUMB))
_add("gnu", standard.cases("test_dbm_gnu", replaced=("gnu",), without=WITHOUT_GNU))
_add("ndbm", standard.cases("test_dbm_ndbm", replaced=("ndbm",), without=WITHOUT_NDBM))
_add("sqlite3", standard.cases("test_dbm_sqlite3", replaced=("sqlite3",), without=WITHOUT_SQLITE))
