"""This module shows rows, tables and databases as text for a prompt, and as HTML for a notebook."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from pellucid import handles
from pellucid._native import (
    Database,
    Groups,
    Query,
    Record,
    RecordList,
    Snapshot,
    Table,
    _is_selected,
    count,
)
from pellucid.look import text

__all__ = ["html_of", "html_of_rows", "text_of_rows", "text_of_table"]

# How many rows and fields are shown of a table, and of rows that were asked for.
TABLE_ROWS = 10
ROWS_MAX = 60
FIELDS_MAX = 40
RECORD_FIELDS = 100
# A cell of HTML may take several lines.
HTML_CELL = 120


class Look(NamedTuple):
    """Rows as they are shown: the columns that they have in common, and a value for each."""

    names: list[Any]
    rows: list[list[Any]]
    # How many fields are beyond the last column; at least, with a sign, where not all were counted.
    more: int


class _Nothing:
    """Stands where a row lacks a field."""


NOTHING = _Nothing()


def look_at(pairs: Iterable[tuple[Any, Any]], has_keys: bool) -> Look:
    """The rows in columns; rows that have no fields are in the column "value"."""
    found: list[tuple[Any, dict[Any, Any]]] = []
    names: dict[Any, None] = {}
    for key, value in pairs:
        fields = text.fields_of(value, FIELDS_MAX)
        row = {"value": value} if fields is None else dict(fields)
        names.update(dict.fromkeys(row))
        found.append((key, row))
    columns = list(names)[:FIELDS_MAX]
    rows = [[row.get(name, NOTHING) for name in columns] for _, row in found]
    # Long names may be cut to the same text.
    shown = [text.cell(name) for name in columns]
    if has_keys:
        shown = ["key", *shown]
        rows = [[_Key(key), *row] for (key, _), row in zip(found, rows, strict=True)]
    return Look(shown, rows, max(0, len(names) - FIELDS_MAX))


class _Key(NamedTuple):
    """A key, which is shown as Python writes it: '5' is another one than 5."""

    key: Any


def cell(value: Any, room: int) -> str:
    """A value in a cell; nothing where a row lacks the field."""
    if value is NOTHING:
        return ""
    if type(value) is _Key:
        return text.cut(text.escaped(text.nested(value.key, room)), room)
    return text.cell(value, room)


def text_of(look: Look, below: Sequence[str] = ()) -> str:
    """Rows as text, in the width of the terminal, with what else there is to say."""
    cells = [[cell(value, text.COLUMN_MAX) for value in row] for row in look.rows]
    shown, count_shown = text.grid(look.names, cells, text.room_of_terminal())
    more = len(look.names) - count_shown
    notes = list(below)
    if more or look.more:
        some = ", ".join(look.names[count_shown : count_shown + 5])
        other = f"and {more}{' or more' * bool(look.more)} other fields"
        notes.append(text.cut(f"{other}: {some}" if some else other, text.room_of_terminal()))
    return "\n".join([shown, *notes])


def text_of_table(table: Any, head: str) -> str:
    """The text of `repr`: the line that names the table, and its first rows."""
    # Loggers and debuggers call repr at times when nothing else works.
    try:
        return text_of_pairs(first_pairs(table), head)
    except Exception as error:
        name = type(error).__name__
        return head if name in head else f"{head}\n<{name}: {text.escaped(str(error))}>"


def first_pairs(table: Any) -> list[tuple[Any, Any]]:
    """The first rows with their keys, and one more if there are more."""
    return list(islice(untyped(table).items(), TABLE_ROWS + 1))


def text_of_pairs(pairs: list[tuple[Any, Any]], head: str) -> str:
    """The line that names a table, and its first rows."""
    if not pairs:
        return head
    below = [text.CUT] if len(pairs) > TABLE_ROWS else []
    return f"{head}\n{text_of(look_at(pairs[:TABLE_ROWS], has_keys=True), below)}"


def untyped(table: Any) -> Any:
    """The table without a class, so that no instance is made and each row can be shown."""
    return table if isinstance(table, (Database, Snapshot)) else handles.untyped(table)


def text_of_rows(rows: Sequence[Any], keys: Sequence[Any] | None, note: str = "") -> str:
    """The text of rows in a list, which may have keys."""
    if not rows:
        return "[]"
    pairs = zip(keys if keys is not None else rows, rows, strict=True)
    look = look_at(islice(pairs, ROWS_MAX), has_keys=keys is not None)
    hidden = len(rows) - len(look.rows)
    below = [f"and {hidden:,} more rows"] if hidden else []
    return text_of(look, [*below, note] if note else below)


# HTML. Every text goes through `escape`, as a stranger may have made it.


def escape(value: str) -> str:
    """A text in HTML."""
    return html.escape(text.escaped(value))


def table_of(
    head: Sequence[str], rows: Iterable[Sequence[str]], caption: str, below: Sequence[str] = ()
) -> str:
    """A table of HTML, all of whose texts are not escaped yet."""
    parts = [f"<p>{escape(caption)}</p>" if caption else "", '<table border="1" class="dataframe">']
    if head:
        parts.append("<thead><tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr></thead>")
    parts.append("<tbody>")
    parts += ["<tr>" + "".join(f"<td>{escape(part)}</td>" for part in row) + "</tr>" for row in rows]
    parts.append("</tbody></table>")
    parts += [f"<p>{escape(note)}</p>" for note in below]
    return "<div>" + "".join(parts) + "</div>"


def html_of_look(look: Look, caption: str, below: Sequence[str] = ()) -> str:
    """Rows as HTML."""
    cells = [[cell(value, HTML_CELL) for value in row] for row in look.rows]
    if look.more:
        below = [*below, f"and {look.more} or more other fields"]
    return table_of(look.names, cells, caption, below)


def html_of_rows(rows: Sequence[Any], keys: Sequence[Any] | None, note: str = "") -> str:
    """The HTML of rows in a list, which may have keys."""
    pairs = zip(keys if keys is not None else rows, rows, strict=True)
    look = look_at(islice(pairs, ROWS_MAX), has_keys=keys is not None)
    hidden = len(rows) - len(look.rows)
    below = [f"and {hidden:,} more rows"] if hidden else []
    return html_of_look(look, "" if rows else "[]", [*below, note] if note else below)


def html_of(thing: Any) -> str:
    """The HTML of a table, database, snapshot, query, groups, record or list; of an error, its message."""
    maker: Callable[[Any], str] = next(
        (maker for kind, maker in MAKERS if isinstance(thing, kind)), _of_table_on_server
    )
    try:
        return maker(thing)
    except Exception as error:
        return table_of([], [], f"{type(error).__name__}: {error}")


def _of_table(table: Any) -> str:
    head = repr(table).split("\n", 1)[0]
    return _of_pairs(untyped(table).items(), head, has_keys=True)


def _of_pairs(pairs: Iterable[tuple[Any, Any]], head: str, has_keys: bool) -> str:
    found = list(islice(pairs, TABLE_ROWS + 1))
    below = [text.CUT] if len(found) > TABLE_ROWS else []
    return html_of_look(look_at(found[:TABLE_ROWS], has_keys), head, below)


def _of_query(query: Any) -> str:
    first = query.limit(TABLE_ROWS + 1)
    if _is_selected(query):
        return _of_pairs(((None, row) for row in first), repr(query), has_keys=False)
    return _of_pairs(first.items(), repr(query), has_keys=True)


def _of_groups(groups: Any) -> str:
    return _of_pairs(((None, row) for row in groups.agg(count=count())), repr(groups), has_keys=False)


def of_database(database: Any) -> str:
    """The tables of a database or snapshot, each with the number of its rows."""
    head = repr(database)
    names = database.tables() if not head.endswith("closed>") else []
    rows = [(name, f"{len(database.table(name)):,}") for name in names[:ROWS_MAX]]
    hidden = len(names) - len(rows)
    below = [f"and {hidden:,} more tables"] if hidden else []
    return table_of(["table", "rows"] if rows else [], rows, head, below)


def _of_record(record: Any) -> str:
    found = list(text.pairs(record, RECORD_FIELDS + 1))
    below = [f"and {len(record) - RECORD_FIELDS:,} more"] if len(found) > RECORD_FIELDS else []
    rows = [(text.cell(name), text.cell(value, HTML_CELL)) for name, value in found[:RECORD_FIELDS]]
    return table_of([], rows, "" if rows else repr(record), below)


def _of_table_on_server(thing: Any) -> str:
    return of_database(thing) if hasattr(thing, "tables") else _of_table(thing)


MAKERS: list[tuple[Any, Callable[[Any], str]]] = [
    (Table, _of_table),
    ((Database, Snapshot), of_database),
    (Query, _of_query),
    (Groups, _of_groups),
    ((Record, RecordList), _of_record),
]
