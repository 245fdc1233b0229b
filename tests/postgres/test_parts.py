"""Does a table on a server hold its parts as fields, with few names, and inherit none of them?"""

from __future__ import annotations

import ast
import collections.abc
import importlib
import inspect
import pkgutil
import textwrap
from typing import Any

import pellucid
import pellucid.postgres
import pytest
from pellucid import _native, postgres
from pellucid.postgres.table.records import Records

# What a table has besides the verbs of `pellucid.Table`.
NAMES_MAX = 40
# The verbs, and what Python itself gives a class. A class has names, too, that say what to call instead.
VERBS = set(dir(pellucid.open(":memory:").table("t")))
CONTRACT = {*VERBS, *dir(collections.abc.MutableMapping), *dir(object), "sql_name"}


def fields_of(kind: type) -> set[str]:
    """The attributes that the methods of a class assign to its objects."""
    source = textwrap.dedent(inspect.getsource(kind))
    return {
        target.attr
        for node in ast.walk(ast.parse(source))
        for target in targets_of(node)
        if isinstance(target, ast.Attribute)
        and isinstance(target.value, ast.Name)
        and target.value.id == "self"
    }


def targets_of(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return [part for target in node.targets for part in getattr(target, "elts", [target])]
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def names_of(kind: type) -> set[str]:
    """All names of a class and its objects that are not in the contract."""
    own = [one for one in kind.__mro__ if one.__module__.startswith("pellucid.postgres")]
    annotated = {name for one in own for name in vars(one).get("__annotations__", {})}
    names = {*dir(kind), *annotated, *(name for one in own for name in fields_of(one))}
    return {name for name in names - CONTRACT if not name.startswith("__")}


@pytest.mark.parametrize("kind", [postgres.Table, Records])
def test_a_table_has_few_names(kind: type) -> None:
    names = names_of(kind)
    assert len(names) <= NAMES_MAX, f"{len(names)} names: {', '.join(sorted(names))}"


def test_names_are_counted_wherever_they_come_from() -> None:
    assert {"_rows", "_binding", "_end"} <= names_of(postgres.Table)
    assert {"swap", "encode", "connection"} <= names_of(Records)
    assert "get" not in names_of(postgres.Table)


def test_a_table_inherits_none_of_its_parts() -> None:
    bases = [one for one in postgres.Table.__mro__ if one.__module__.startswith("pellucid")]
    assert bases == [postgres.Table]


def test_a_database_and_a_snapshot_have_every_verb_of_a_table() -> None:
    verbs = {name for name in VERBS if not name.startswith("_")} - {"conform", "name", "stats", "watch"}
    for kind in (postgres.Database, postgres.Snapshot):
        missing = [name for name in verbs if not hasattr(kind, name)]
        assert not missing
        for name in verbs & vars(postgres.Table).keys():
            ours, tables = getattr(kind, name), getattr(postgres.Table, name)
            assert inspect.signature(ours) == inspect.signature(tables)
            assert ours.__doc__ == tables.__doc__


def test_only_one_file_knows_what_distributes_tables() -> None:
    found = set()
    for module in pkgutil.walk_packages(postgres.__path__, "pellucid.postgres."):
        file: Any = importlib.import_module(module.name).__file__
        with open(file, encoding="utf-8") as text:
            if any("create_distributed" in line or "pg_dist" in line for line in text):
                found.add(module.name)
    assert found == {"pellucid.postgres.schema.citus"}


def test_what_the_native_module_calls_is_there() -> None:
    base = {name for name in dir(_native.ServerTable) if not name.startswith("__")}
    called = names_of(Records) - base
    assert {"fetch", "swap", "defer", "begin_change", "validity", "transaction", "reader"} <= called
