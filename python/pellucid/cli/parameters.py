"""This module has what many subcommands share: opening databases, choosing tables, reading keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import click

import pellucid
from pellucid.cli.app import Refused
from pellucid.transfer.copying import SERVER, shown
from pellucid.transfer.progress import Line
from pellucid.transfer.report import listed

__all__ = [
    "database_argument",
    "is_url",
    "named",
    "opened",
    "pieces",
    "policy",
    "progress_line",
    "read_key",
    "read_order",
    "selected",
    "table_argument",
    "the_table",
    "with_output",
]

# Where `-` may be, after the database.
WITH_DASH = {
    "import": ", which comes first: pellucid import FILE -",
    "export": ", which comes first: pellucid export FILE TABLE -",
}
QUOTES = "'\"`"
BRACKETS = {"(": ")", "[": "]", "{": "}"}


def _tables_for_completion(ctx: click.Context, _parameter: click.Parameter, incomplete: str) -> list[str]:
    """The tables of the database that is on the command line already; none if it cannot be opened."""
    with suppress(pellucid.Error, OSError), pellucid.open(ctx.params.get("file") or "", "r") as database:
        return [name for name in database.tables() if name.startswith(incomplete) and name.isprintable()]
    return []


def database_argument(name: str = "file") -> Callable[[Any], Any]:
    """An argument for the path of a database, which is never stdin or stdout."""
    return click.argument(name, type=click.Path(dir_okay=False), metavar=name.upper(), callback=_no_dash)


def _no_dash(ctx: click.Context, _parameter: click.Parameter, path: str) -> str:
    if path == "-":
        example = WITH_DASH.get(ctx.info_name or "", "")
        raise click.BadParameter(f"`-` is no database{example}. For a file of this name, write ./-")
    return path


def table_argument(is_required: bool = True) -> Callable[[Any], Any]:
    """An argument for the name of a table, which completion knows."""
    return click.argument(
        "table",
        required=is_required,
        metavar="TABLE" if is_required else "[TABLE]",
        shell_complete=_tables_for_completion,
    )


def with_output(command: Any) -> Any:
    """Give a subcommand the options --json, --csv and --arrow, as the argument `output`."""
    for name, does in (
        ("arrow", "Write a stream of Arrow, for programs."),
        ("csv", "Write CSV."),
        ("json", "Write JSON, one row a line."),
    ):
        command = click.option(f"--{name}", "output", flag_value=name, default=None, type=str, help=does)(
            command
        )
    return command


def is_url(path: str) -> bool:
    """Whether the argument is the URL of a server."""
    return path.startswith(SERVER)


@contextmanager
def opened(path: str, mode: Any = "r", on_servers: str = "") -> Iterator[pellucid.Database]:
    """An open database, in a file or on a server. For reading, it must be there.

    `on_servers`: what to do instead, if the command is for files alone.
    """
    if is_url(path) and on_servers:
        raise Refused(f"this command is for files; {on_servers}")
    if not is_url(path) and mode != "c" and not os.path.exists(path):
        raise Refused(f"{path}: there is no such database; `pellucid import` and `pellucid put` create one")
    with pellucid.open(path, mode, pickle=policy()) as database:
        yield database


def policy() -> Any:
    """The policy for stored pickles that the command line names."""
    return click.get_current_context().find_root().obj or "deny"


@contextmanager
def progress_line(unit: str) -> Iterator[Callable[[int, int], None] | None]:
    """A function that draws how many of all are done, on a line that is removed at the end.

    It is None if stderr is no terminal.
    """
    line = Line(sys.stderr, unit)
    try:
        yield (lambda done, total: line(done, done / total if total else None)) if line.is_shown else None
    finally:
        line.clear()


def the_table(database: pellucid.Database, name: str | None) -> pellucid.Table[Any]:
    """Return an existing table. Without a name, the database must have exactly one."""
    names = database.tables()
    if name is None:
        if len(names) == 1:
            return database.table(names[0])
        what = f"name one of the tables: {listed(names)}" if names else "there is no table yet"
        raise Refused(f"{shown(database)}: {what}")
    if name not in names:
        raise Refused(f"{shown(database)} has no table {name!r}; it has {listed(names) or 'none'}")
    return database.table(name)


def read_key(text: str) -> Any:
    """The key that a word on the command line is: a literal of the query language, or else the word itself.

    `5` is an int, `'5'` and `ann` are strings, `('bath', 1)` is a tuple.
    """
    try:
        expression = pellucid.parse(text)
    except pellucid.ParseError:
        return text
    with pellucid.open(":memory:") as scratch:
        scratch[0] = None
        row = scratch.select(key=expression).first()
    # A name is a field, which the only row does not have.
    if row is None or (row["key"] is None and text.lower() not in ("none", "null")):
        return text
    return row["key"]


def pieces(text: str) -> list[str]:
    """The parts of a list, split at the commas that are not inside of quotes or brackets."""
    begin, found = 0, []
    for end in [*_commas(text), len(text)]:
        if not (piece := text[begin:end].strip()):
            raise Refused(f"column {end + 1}: expected an expression\n  {text}\n  {' ' * end}^")
        found.append(piece)
        begin = end + 1
    return found


def _commas(text: str) -> Iterator[int]:
    closing, quote, is_escaped = [], "", False
    for position, sign in enumerate(text):
        if is_escaped:
            is_escaped = False
        elif quote:
            is_escaped = sign == "\\"
            quote = "" if sign == quote else quote
        elif sign in QUOTES:
            quote = sign
        elif sign in BRACKETS:
            closing.append(BRACKETS[sign])
        elif closing and sign == closing[-1]:
            closing.pop()
        elif sign == "," and not closing:
            yield position


def named(piece: str) -> tuple[str, str]:
    """The expression and the name of `EXPRESSION as NAME`; without a name, it is the expression itself.

    Backticks are for the query language, and no part of a name.
    """
    head, _, name = piece.rpartition(" as ")
    name = name.strip().strip("`")
    if head and name and not set(name) & {*QUOTES, *BRACKETS, *BRACKETS.values()}:
        return head.strip(), name
    return piece, piece.replace("`", "")


def selected(text: str) -> dict[str, str]:
    """The expressions of a list by their names; a name may be there once."""
    found: dict[str, str] = {}
    for expression, name in map(named, pieces(text)):
        if name in found:
            raise Refused(
                f"the name {name!r} is there twice; give one of them another one, as in "
                f'"{expression} as other_name"'
            )
        found[name] = expression
    return found


def read_order(piece: str) -> Any:
    """The order of `EXPRESSION`, `EXPRESSION asc` or `EXPRESSION desc`."""
    head, _, last = piece.rpartition(" ")
    if head and last.lower() in ("asc", "desc"):
        expression = pellucid.parse(head)
        return expression.desc() if last.lower() == "desc" else expression
    return pellucid.parse(piece)
