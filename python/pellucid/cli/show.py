"""This module writes rows: as tables for people, or as JSON, CSV or Arrow for programs."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import click

import pellucid
from pellucid.cli.app import Refused
from pellucid.look.text import escaped

__all__ = ["as_json", "cell", "human_size", "lines", "rows", "write_for_programs"]

# A column narrower than this shows nothing of use; then each row becomes a block of lines.
COLUMN_MIN = 9
CELL_MAX = 2000
# Rich takes a millisecond for a row; the rows after these are formatted without it.
DRAWN_MAX = 500
# What rich puts between two columns.
GAP = "   "


def width() -> int:
    """The columns of the terminal; a file or pipe has room for more."""
    return shutil.get_terminal_size((120, 24) if not sys.stdout.isatty() else (80, 24)).columns


def cell(value: Any) -> str:
    """A value in a cell, without characters that would control the terminal."""
    if value is None:
        return "-"
    is_plain = isinstance(value, str) or type(value).__module__ in ("datetime", "decimal", "uuid")
    text = str(value) if is_plain else repr(value)
    return escaped(text if len(text) <= CELL_MAX else f"{text[: CELL_MAX - 1]}\u2026")


def as_json(value: Any) -> None:
    """Write a value as a line of JSON."""
    from pellucid.transfer.targets.plain_text import encoder

    sys.stdout.buffer.write(encoder()(value) + b"\n")


def rows(columns: Sequence[str], values: Iterable[Sequence[Any]]) -> None:
    """Write a table for people; in a narrow terminal, a block of lines for each row."""
    columns = list(map(cell, columns))
    found = [[cell(value) for value in row] for row in values]
    natural = [max(len(name), *(len(row[index]) for row in found), 1) for index, name in enumerate(columns)]
    room = width() - len(GAP) * (len(columns) - 1)
    if len(columns) > 1 and sum(min(COLUMN_MIN, size) for size in natural) > room:
        for row in found:
            lines((name, value) for name, value in zip(columns, row, strict=True) if value)
            click.echo("")
        return
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, pad_edge=False, show_edge=False)
    widths = _fitted(natural, room)
    for index, name in enumerate(columns):
        is_number = bool(found) and all(_is_number(row[index]) for row in found)
        table.add_column(
            Text(name),
            overflow="ellipsis",
            no_wrap=True,
            width=widths[index],
            justify="right" if is_number else "left",
        )
    for row in found[:DRAWN_MAX]:
        table.add_row(*map(Text, row))
    Console(width=width(), highlight=False).print(table)
    aligned = [(widths[index], column.justify == "right") for index, column in enumerate(table.columns)]
    for row in found[DRAWN_MAX:]:
        click.echo(GAP.join(_padded(text, *how) for text, how in zip(row, aligned, strict=True)))


def _padded(text: str, size: int, is_number: bool) -> str:
    text = text if len(text) <= size else text[: size - 1] + "\u2026"
    return text.rjust(size) if is_number else text.ljust(size)


def _fitted(natural: list[int], room: int) -> list[int]:
    """The widths of columns that share the room: the widest ones give way."""
    widths = list(natural)
    while sum(widths) > room and max(widths) > 1:
        widths[widths.index(max(widths))] -= 1
    return widths


def _is_number(text: str) -> bool:
    return text == "-" or text.replace(",", "").replace(".", "", 1).removeprefix("-").isdigit()


def lines(pairs: Iterable[tuple[str, Any]]) -> None:
    """Write names and values, one pair a line; a value that is too long goes on below.

    A dict or list that is too long for the line is JSON, with a line for each of its parts.
    """
    found = [(cell(name), value) for name, value in pairs]
    indent = min(max((len(name) for name, _ in found), default=0) + 2, max(8, width() // 3))
    room = max(8, width() - indent)
    for name, value in found:
        parts = [
            line[start : start + room]
            for line in nested(value, room)
            for start in range(0, max(1, len(line)), room)
        ]
        first = f"{name:<{indent}}" if len(name) < indent else f"{name}\n{'':<{indent}}"
        click.echo(first + f"\n{'':<{indent}}".join(parts))


def nested(value: Any, room: int) -> list[str]:
    """The lines of a value: of a dict or list those of JSON, if one line has no room for it."""
    if not isinstance(value, (dict, list)):
        return [cell(value)]
    from pellucid.transfer.targets.plain_text import encoder

    try:
        text = encoder()(value).decode()
    except (TypeError, ValueError, RecursionError):  # it has no JSON
        return [cell(value)]
    parts = value.values() if isinstance(value, dict) else value
    if len(text) > room or any(isinstance(part, (dict, list)) for part in parts):
        text = json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    return [escaped(line) for line in text[:CELL_MAX].split("\n")]


def write_for_programs(found: Any, output: str, key: str | None = None) -> None:
    """Write a query, a table, or a list of dicts in the format of --json, --csv or --arrow."""
    if output == "arrow" and sys.stdout.isatty():
        raise Refused("--arrow writes bytes for a program; redirect them to a file or a pipe")
    if isinstance(found, list):
        with pellucid.open(":memory:") as scratch:
            scratch.extend(found)
            write_for_programs(scratch, output, key)
        return
    report = pellucid.export_to(
        found, sys.stdout.buffer, format={"json": "jsonl"}.get(output, output), key=key
    )
    if report.skipped_count:
        place, reason = report.skipped[0]
        raise Refused(f"{report.skipped_count:,} rows cannot be written; the first is {place}: {reason}")


def human_size(size: float) -> str:
    """A size in bytes, as people say it."""
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1024
    return f"{size:.1f} TiB"
