"""This module loads CPython's own tests with pellucid's modules in place of the standard library's.

The test files are those of the interpreter that runs, and are not changed: while one is imported, `dbm` and
`shelve` in `sys.modules` are stand-ins. A stand-in has the names that the tests themselves look at, such as
the list of backends, in which pellucid is the only one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
import unittest
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pellucid.dbm
import pellucid.shelve

BACKENDS = ("sqlite3", "gnu", "ndbm", "dumb")
OWN = "dbm.pellucid"


def has_tests(name: str) -> bool:
    """Say whether this Python has its `test` package with this module."""
    return (
        importlib.util.find_spec("test") is not None and importlib.util.find_spec(f"test.{name}") is not None
    )


def whichdb(filename: Any) -> str | None:
    # The tests expect the name of the backend, which is a submodule of dbm there.
    found = pellucid.dbm.whichdb(filename)
    return OWN if found == "pellucid.dbm" else found


def backend(name: str) -> types.ModuleType:
    """pellucid.dbm as a submodule of dbm."""
    module = types.ModuleType(name)
    module.__dict__.update(
        {public: getattr(pellucid.dbm, public) for public in pellucid.dbm.__all__}, whichdb=whichdb
    )
    # What the tests look up in a backend: the library behind dbm.ndbm, and a function of dbm.sqlite3
    # whose own test is left out.
    module.__dict__.update(library="pellucid", _normalize_uri=None)
    if name == "dbm.dumb":
        # The only backend that creates the file unless told otherwise.
        module.__dict__["open"] = open_or_create
    return module


def open_or_create(file: Any, flag: str = "c", mode: int = 0o666) -> Any:
    return pellucid.dbm.open(file, flag, mode)


def stand_in(replaced: tuple[str, ...] = ()) -> dict[str, types.ModuleType]:
    """The modules that take the place of dbm, of the backends `replaced`, and of shelve."""
    top = types.ModuleType("dbm")
    own = backend(OWN)
    top.__dict__.update(own.__dict__, __name__="dbm", _names=[OWN], _modules={}, _defaultmod=own)
    modules = {"dbm": top, OWN: own, "shelve": pellucid.shelve}
    for name in BACKENDS:
        full_name = f"dbm.{name}"
        if name in replaced:
            modules[full_name] = backend(full_name)
            setattr(top, name, modules[full_name])
        elif real(full_name) is not None:
            # whichdb is asked about files of the others.
            setattr(top, name, real(full_name))
    return modules


def real(name: str) -> types.ModuleType | None:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


@contextmanager
def in_place(modules: dict[str, types.ModuleType]) -> Iterator[None]:
    """Put the modules into `sys.modules`, and what was there back afterwards."""
    before = {name: sys.modules.get(name) for name in modules}
    sys.modules.update(modules)
    try:
        yield
    finally:
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


class Helper:
    """`test.support.import_helper`, with our dbm where a test wants a fresh one."""

    def __init__(self, helper: Any, modules: dict[str, types.ModuleType]) -> None:
        self.helper, self.modules = helper, modules

    def import_fresh_module(self, name: str, *arguments: Any, **options: Any) -> Any:
        if name in self.modules:
            return self.modules[name]
        return self.helper.import_fresh_module(name, *arguments, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.helper, name)


def cases(
    name: str, *, replaced: tuple[str, ...] = (), without: dict[str, str] | None = None
) -> dict[str, type[unittest.TestCase]]:
    """The test cases of `test.<name>` over pellucid; none if this Python has no such tests.

    `without` names tests that are about something else, as "Class.test" or "Class", with the reason.
    """
    if not has_tests(name):
        return {}
    modules = stand_in(replaced)
    # Backends are imported again by their names while the tests run.
    sys.modules[OWN] = modules[OWN]
    spec = importlib.util.find_spec(f"test.{name}")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    with in_place(modules), without_modules("test.test_dbm"):
        spec.loader.exec_module(loaded)
    if hasattr(loaded, "import_helper"):
        vars(loaded)["import_helper"] = Helper(vars(loaded)["import_helper"], modules)
    left_out = without or {}
    found: dict[str, type[unittest.TestCase]] = {}
    for class_name, value in list(vars(loaded).items()):
        is_case = isinstance(value, type) and issubclass(value, unittest.TestCase)
        if not is_case or value.__module__ != loaded.__name__ or class_name in left_out:
            continue
        dropped = {key.partition(".")[2]: None for key in left_out if key.startswith(f"{class_name}.")}
        found[class_name] = type(class_name, (value,), {"__module__": loaded.__name__, **dropped})
    return found


@contextmanager
def without_modules(*names: str) -> Iterator[None]:
    """Have these modules imported anew: test_shelve takes the list of backends from test_dbm."""
    before = {name: sys.modules.pop(name, None) for name in names}
    try:
        yield
    finally:
        for name, module in before.items():
            sys.modules.pop(name, None)
            if module is not None:
                sys.modules[name] = module
