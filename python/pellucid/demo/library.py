"""This module makes one record for each function and class of Python's standard library.

It parses every `.py` file of the standard library. It never imports or runs one. A record looks like this:

    {"name": "dumps", "module": "json", "kind": "function", "lines": {"first": 183, "last": 238}, "size": 56,
     "args": [{"name": "obj"}, {"name": "skipkeys", "kind": "keyword-only", "default": "False"}, ...],
     "doc": "Serialize ...", "calls": ["cls", "cls(...).encode"]}

A record has only the fields that its definition has (arguments, annotations, decorators, bases, a docstring).
So these records are irregular.
"""

from __future__ import annotations

import ast
import sysconfig
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Key = tuple[str, str, int]
"""Module, qualified name, first line. So the definitions of a module are together, sorted by name."""
Record = dict[str, Any]
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

SKIPPED = {"site-packages", "dist-packages", "__pycache__"}
"""Folders in the standard library's folder that contain something else."""


def source_files() -> list[tuple[str, Path]]:
    """Return every source file of the standard library with the name of its module, sorted by name."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if SKIPPED.isdisjoint(parts):
            found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return sorted(found)


def definitions(module: str, source: bytes) -> Iterator[tuple[Key, Record]]:
    """Yield every function and class of a file; SyntaxError if it is not Python (some files test this)."""
    with warnings.catch_warnings():
        # The parser warns about escapes in old code, which do not matter here.
        warnings.simplefilter("ignore")
        tree = ast.parse(source)
    # Use a stack and no recursion: some files nest deeper than Python calls can. Calls are in a dict, because
    # it keeps the order of the source.
    todo: list[tuple[ast.AST, tuple[Definition, ...], dict[str, None]]] = [(tree, (), {})]
    found: list[tuple[Definition, tuple[Definition, ...], dict[str, None]]] = []
    while todo:
        node, parents, calls = todo.pop()
        parts = list(ast.iter_child_nodes(node))[::-1]
        if isinstance(node, Definition):
            own: dict[str, None] = {}
            found.append((node, parents, own))
            # Calls in its body belong to it. Decorators, defaults and bases belong to the code around it.
            inside = (*parents, node)
            todo += [
                (part, inside, own) if isinstance(part, ast.stmt) else (part, parents, calls)
                for part in parts
            ]
        else:
            if isinstance(node, ast.Call):
                calls.setdefault(_text(node.func))
            todo += [(part, parents, calls) for part in parts]
    for definition, parents, calls in found:
        qualified = ".".join(parent.name for parent in (*parents, definition))
        yield (module, qualified, definition.lineno), _record(module, definition, parents, list(calls))


def _record(module: str, node: Definition, parents: tuple[Definition, ...], calls: list[str]) -> Record:
    last = node.end_lineno or node.lineno
    record: Record = {
        "name": node.name,
        "module": module,
        "kind": _kind(node, parents),
        "lines": {"first": node.lineno, "last": last},
        "size": last - node.lineno + 1,
    }
    if parents:
        record["inside"] = [parent.name for parent in parents]
    if isinstance(node, ast.ClassDef):
        if node.bases:
            record["bases"] = [_text(base) for base in node.bases]
    else:
        if args := _args(node.args):
            record["args"] = args
        if node.returns is not None:
            record["returns"] = _text(node.returns)
    if node.decorator_list:
        record["decorators"] = [_text(decorator) for decorator in node.decorator_list]
    if doc := ast.get_docstring(node):
        record["doc"] = doc
    if calls:
        record["calls"] = calls
    return record


def _kind(node: Definition, parents: tuple[Definition, ...]) -> str:
    if isinstance(node, ast.ClassDef):
        return "class"
    if parents and isinstance(parents[-1], ast.ClassDef):
        return "method"
    return "coroutine" if isinstance(node, ast.AsyncFunctionDef) else "function"


def _args(args: ast.arguments) -> list[Record]:
    """Return the arguments in order, each with its kind, annotation and default, if it has them."""
    positional = [*args.posonlyargs, *args.args]
    missing = len(positional) - len(args.defaults)
    found = []
    for index, arg in enumerate(positional):
        kind = "positional-only" if index < len(args.posonlyargs) else ""
        found.append(_arg(arg, kind, args.defaults[index - missing] if index >= missing else None))
    if args.vararg:
        found.append(_arg(args.vararg, "*", None))
    found += [
        _arg(arg, "keyword-only", default)
        for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)
    ]
    if args.kwarg:
        found.append(_arg(args.kwarg, "**", None))
    return found


def _arg(arg: ast.arg, kind: str, default: ast.expr | None) -> Record:
    record: Record = {"name": arg.arg}
    if kind:
        record["kind"] = kind
    if arg.annotation is not None:
        record["annotation"] = _text(arg.annotation)
    if default is not None:
        record["default"] = _text(default)
    return record


def _text(node: ast.expr) -> str:
    """Return the source text of an expression. Plain ones do not need `ast.unparse`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return f"{_text(node.value)}.{node.attr}"
    if isinstance(node, ast.Call):
        return f"{_text(node.func)}(...)"
    if isinstance(node, ast.Constant):
        return repr(node.value)
    return ast.unparse(node)
