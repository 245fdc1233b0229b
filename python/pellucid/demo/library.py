"""This module makes a record of each statement of Python's standard library, 100,000 at most.

It reads the source files and never imports or runs one. A record looks like this:

    {"module": "json", "line": 183, "kind": "def", "depth": 0,
     "text": "def dumps(obj, *, skipkeys=False, ensure_ascii=True, check_circular=True,",
     "names": ["dumps", "obj", "skipkeys", "False", "ensure_ascii", "True", "check_circular"]}

It goes by the first word of each line, and is not for exact answers: a parser needs ten times as long.
"""

from __future__ import annotations

import re
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

Record = dict[str, Any]

FIELDS = ["module", "line", "kind", "depth", "text", "names"]
STATEMENTS_MAX = 100_000
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idle_test"}
"""Folders of packages that are no part of the library, and of tests, which not every system has."""
WORDS = (
    "def|class|import|from|return|raise|yield|with|for|while|if|elif|else|try|except|finally|assert|del|pass"
    "|break|continue|global|nonlocal"
)
# Text between triple quotes is matched first, since its lines may begin like statements.
STATEMENT = re.compile(
    rf"'''.*?'''|\"\"\".*?\"\"\"|^([ \t]*)((?:async[ \t]+)?({WORDS})\b[^\n]*|[\w.]+[ \t]+=[ \t][^\n]*)",
    re.MULTILINE | re.DOTALL,
)
NAME = re.compile(r"[A-Za-z_]\w*")


def source_files() -> list[tuple[str, Path]]:
    """Return every source file of the standard library with the name of its module, sorted by name."""
    root = Path(sysconfig.get_path("stdlib"))
    found = []
    for path in root.rglob("*.py"):
        parts = path.relative_to(root).with_suffix("").parts
        if SKIPPED.isdisjoint(parts):
            found.append((".".join(parts[:-1] if parts[-1] == "__init__" else parts), path))
    return sorted(found)


def statements(module: str, source: str) -> Iterator[Record]:
    """Yield a record of each line that begins a statement: a keyword, or a name that gets a value."""
    line, seen = 1, 0
    for found in STATEMENT.finditer(source):
        indent, text, word = found.groups()
        if text is None:
            continue
        line += source.count("\n", seen, found.start())
        seen = found.start()
        names = [name for name in NAME.findall(text) if name != word]
        depth = len(indent.expandtabs()) // 4
        yield dict(zip(FIELDS, (module, line, word or "=", depth, text, names), strict=True))


def library() -> list[Record]:
    """Return the statements of the standard library of this Python, in the order of the modules' names."""
    found = (
        record
        for module, path in source_files()
        for record in statements(module, path.read_text("utf-8", "replace"))
    )
    return list(islice(found, STATEMENTS_MAX))
