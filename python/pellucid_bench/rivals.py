"""This module finds the other libraries and their versions.

It looks for a library when a workload needs it. If the import fails, it keeps the reason, and the report
lists the library. A missing library must not look like a beaten one.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sqlite3
from types import ModuleType

# Names on PyPI, if they differ from the name of the import.
DISTRIBUTIONS = {"simdjson": "pysimdjson", "flatbuffers.flexbuffers": "flatbuffers"}
STANDARD = ("pickle", "json", "sqlite3", "shelve", "dbm.gnu", "dbm.ndbm", "dbm.dumb", "dbm.sqlite3")


class Rivals:
    """The libraries of one run: those that were found, and why the others were not."""

    def __init__(self) -> None:
        self.versions: dict[str, str] = {}
        self.missing: dict[str, str] = {}

    def find(self, module_name: str) -> ModuleType | None:
        """Import a library, or note that it is not installed."""
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            self.missing[module_name] = str(error)
            return None
        self.versions[module_name] = self._version(module_name)
        return module

    def found(self, **module_names: str) -> dict[str, ModuleType] | None:
        """Import several libraries that are only useful together."""
        modules = {name: self.find(module_name) for name, module_name in module_names.items()}
        if any(module is None for module in modules.values()):
            return None
        return {name: module for name, module in modules.items() if module is not None}

    @staticmethod
    def _version(module_name: str) -> str:
        if module_name in ("sqlite3", "dbm.sqlite3"):
            return f"SQLite {sqlite3.sqlite_version}"
        if module_name in STANDARD:
            return "standard library"
        return importlib.metadata.version(DISTRIBUTIONS.get(module_name, module_name.partition(".")[0]))
