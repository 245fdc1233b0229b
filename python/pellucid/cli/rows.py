"""This module has the subcommands on single rows: ls, get, put, del."""

from __future__ import annotations

import itertools
import sys
from typing import Any

import click

import pellucid
from pellucid.cli import show
from pellucid.cli.app import Refused, write
from pellucid.cli.parameters import database_argument, opened, read_key, table_argument, the_table
from pellucid.transfer.outgoing import plain
from pellucid.transfer.sources.json_values import fast_loads, loads
from pellucid.transfer.sources.jsonl import reason_of

__all__ = ["del_command", "get_command", "ls_command", "put_command", "show_rows"]

LIMIT = 50


def show_rows(pairs: Any, limit: int, total: int) -> None:
    """Write rows with their keys as a table for people, and say if there are more."""
    found = [(key, plain(row)) for key, row in itertools.islice(pairs, limit or None)]
    names: dict[Any, None] = {}
    for _, row in found:
        names.update(dict.fromkeys(row if isinstance(row, dict) else ("value",)))
    show.rows(
        ["key", *map(str, names)],
        [
            [repr(key) if isinstance(key, str) else key]
            + [(row if isinstance(row, dict) else {"value": row}).get(name, "") for name in names]
            for key, row in found
        ],
    )
    if total > len(found):
        write(f"{len(found):,} of {total:,} rows; --limit N shows more, --limit 0 all", err=True)


@click.command("ls")
@database_argument()
@table_argument(is_required=False)
@click.option("--prefix", help="Only keys that begin with this one: a string, or a tuple such as ('bath',).")
@click.option("--start", help="Only keys from this one on.")
@click.option("--stop", help="Only keys below this one.")
@click.option("--reverse", is_flag=True, help="The last keys first.")
@click.option("--limit", type=int, default=LIMIT, show_default=True, help="At most so many rows; 0 for all.")
@click.option(
    "--json", "is_json", is_flag=True, help='Write JSON, one row a line: {"key": ..., "value": ...}.'
)
def ls_command(
    file: str,
    table: str | None,
    prefix: str | None,
    start: str | None,
    stop: str | None,
    reverse: bool,
    limit: int,
    is_json: bool,
) -> None:
    """List the tables of FILE, or the rows of TABLE in the order of their keys.

    \b
    A key is a number, a word, or a literal as in queries:
      5   ann   'two words'   '5'   ('bath', 1)   date '2000-01-31'

    \b
    Examples:
      pellucid ls people.pel
      pellucid ls people.pel people --start a --stop c
    """
    with opened(file) as database:
        if table is None:
            for name in database.tables():
                if is_json:
                    show.as_json({"table": name, "rows": len(database.table(name))})
                else:
                    write(f"{show.cell(name)}\t{len(database.table(name)):,}")
            return
        ends = {"start": start, "stop": stop, "prefix": prefix}
        chosen: Any = {name: read_key(text) for name, text in ends.items() if text is not None}
        items = the_table(database, table).items(**chosen, reverse=reverse)
        if is_json:
            for key, row in itertools.islice(items, limit or None):
                show.as_json({"key": key, "value": plain(row)})
        else:
            show_rows(items, limit, len(items) if not chosen else 0)


@click.command("get")
@database_argument()
@table_argument()
@click.argument("key")
@click.option("--path", help="Only this field, such as address.city.")
@click.option("--json", "is_json", is_flag=True, help="Write JSON.")
def get_command(file: str, table: str, key: str, path: str | None, is_json: bool) -> None:
    """Show the row under KEY in TABLE, or one of its fields.

    \b
    A key is a number, a word, or a literal as in queries:
      5   ann   'two words'   '5'   ('bath', 1)   date '2000-01-31'
    Write -- before a key that begins with a minus.

    \b
    Examples:
      pellucid get people.pel people ann
      pellucid get people.pel people ann --path address.city
    """
    missing = object()
    with opened(file) as database:
        rows = the_table(database, table)
        read = read_key(key)
        row = rows.get(read, missing)
        if row is missing:
            hint = f"; there is one under the text: write \"'{key}'\"" if read != key and key in rows else ""
            raise Refused(f"table {table!r} has no row under the key {read!r}{hint}")
        if path is not None:
            row = row.path(path, missing) if isinstance(row, pellucid.Record) else missing
            if row is missing:
                raise Refused(f"the row under {read!r} has no field {path!r}")
        value = plain(row)
        if is_json:
            show.as_json(value)
        elif isinstance(value, dict):
            show.lines((str(name), part) for name, part in value.items())
        else:
            for line in show.nested(value, show.width()):
                write(line)


@click.command("put")
@database_argument()
@table_argument()
@click.argument("key")
@click.argument("value", required=False)
def put_command(file: str, table: str, key: str, value: str | None) -> None:
    """Store VALUE, which is JSON, under KEY in TABLE. Without VALUE, it is read from stdin.

    FILE and TABLE are created if necessary. A row that is there is replaced.

    \b
    Example:
      pellucid put people.pel people ann '{"name": "Ann", "age": 30}'
    """
    text = value.encode() if value is not None else sys.stdin.buffer.read()
    try:
        row = fast_loads()(text)
    except (ValueError, RecursionError):
        try:
            row = loads(text)
        except (ValueError, RecursionError) as error:
            raise Refused(f"VALUE is {reason_of(error)}; a text needs quotes: '\"text\"'") from None
    with opened(file, "c") as database:
        database.table(table)[read_key(key)] = row


@click.command("del")
@database_argument()
@table_argument()
@click.argument("keys", nargs=-1, metavar="[KEY]...")
@click.option("--where", help="Delete the rows for which this condition is true.")
@click.option("--yes", is_flag=True, help="Do not ask before rows are deleted by a condition.")
def del_command(file: str, table: str, keys: tuple[str, ...], where: str | None, yes: bool) -> None:
    """Delete the rows under each KEY, or those that a condition selects, in one transaction.

    \b
    Examples:
      pellucid del people.pel people ann bob
      pellucid del people.pel people --where "age < 18"
    """
    if bool(keys) == (where is not None):
        raise click.UsageError("give either keys or --where")
    with opened(file, "w") as database:
        rows = the_table(database, table)
        if where is not None:
            query = rows.where(pellucid.parse(where))
            if not yes:
                if not sys.stdin.isatty():
                    raise click.UsageError("without a terminal, --where needs --yes")
                click.confirm(f"delete {query.count():,} of {len(rows):,} rows?", abort=True, err=True)
            count = query.delete()
        else:
            with database.transaction():
                for key in map(read_key, keys):
                    if key not in rows:
                        raise Refused(
                            f"table {table!r} has no row under the key {key!r}; nothing was deleted"
                        )
                    del rows[key]
            count = len(keys)
    write(f"deleted {count:,} row{'s' * (count != 1)}")
