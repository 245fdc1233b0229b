"""This module finds the other libraries and their versions.

It looks for a library when an experiment needs it. If the import fails, it keeps the reason, and each measure
in which the library would have taken part has a row with it. A missing library must not look like a beaten
one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import re
import sqlite3
from types import ModuleType

# Libraries that are imported under another name.
LIBRARIES = {"simdjson": "pysimdjson", "flatbuffers.flexbuffers": "flatbuffers"}
# Packages on PyPI, if they are called otherwise than the library.
DISTRIBUTIONS = {"psycopg2": "psycopg2-binary"}
STANDARD = (
    *("pickle", "json", "csv", "marshal", "sqlite3", "shelve"),
    *("dbm.gnu", "dbm.ndbm", "dbm.dumb", "dbm.sqlite3"),
)
UNKNOWN = "unknown"
# First words of the names of contenders that are not the name of a library.
FIRST_WORDS = {
    "FlexBuffers": "flatbuffers",
    "list": "Python",
    "live": "Python",
    "loop": "Python",
    "object": "Python",
    "dict": "Python",
    "plain": "files",
    "json.loads": "json",
    "json.dumps": "json",
    "csv.DictReader": "csv",
    "pandas.read_csv": "pandas",
    "jsonb": "PostgreSQL",
    "text": "PostgreSQL",
    "a": "PostgreSQL",
    "the": "PostgreSQL",
}


class Rivals:
    """The libraries of one run: those that were found, and why the others were not."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}
        self.sought: list[str] = []
        """The libraries in the order in which they were looked for, the same one perhaps again."""

    def find(self, module_name: str) -> ModuleType | None:
        """Import a library, or note why it cannot be used."""
        library = LIBRARIES.get(module_name, module_name)
        self.sought.append(library)
        try:
            module = importlib.import_module(module_name)
        except Exception as error:
            # A library may be there and not work here: a wheel for another system, another NumPy.
            self.missing[library] = reason(error)
            return None
        self.versions[library] = version_of(library, module)
        return module

    def found(self, **module_names: str) -> dict[str, ModuleType] | None:
        """Import several libraries that are only useful together."""
        modules = {name: self.find(module_name) for name, module_name in module_names.items()}
        if any(module is None for module in modules.values()):
            return None
        return {name: module for name, module in modules.items() if module is not None}


def version_of(library: str, module: ModuleType) -> str:
    """Return the version of a library, or "unknown" if neither pip nor the library says it."""
    if library in ("sqlite3", "dbm.sqlite3"):
        return f"SQLite {sqlite3.sqlite_version}"
    if library in STANDARD:
        return "standard library"
    try:
        return importlib.metadata.version(DISTRIBUTIONS.get(library, library.partition(".")[0]))
    except importlib.metadata.PackageNotFoundError:
        found = getattr(module, "__version__", UNKNOWN)
        return found if isinstance(found, str) else UNKNOWN


def library_of(name: str) -> str:
    """Return the library of a contender, which its name begins with.

    >>> library_of("sqlite3, file, WAL"), library_of("lmdb + orjson"), library_of("list of live dicts")
    ('sqlite3', 'lmdb', 'Python')
    """
    first = re.split(r"[ ,]", name.lstrip("("))[0]
    return FIRST_WORDS.get(first, first)


def reason(error: BaseException) -> str:
    """Return what went wrong, in one line.

    >>> reason(ValueError("too", "bad")), reason(KeyError("age"))
    ("ValueError: ('too', 'bad')", "KeyError: 'age'")
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = lines[0] if lines else ""
    if isinstance(error, ImportError):
        return f"not installed: {text}"
    name = type(error).__name__
    return f"{name}: {text}" if text else name
