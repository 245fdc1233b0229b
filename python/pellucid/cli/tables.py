"""This module has the subcommands on whole tables: drop, rename, watch."""

from __future__ import annotations

import sys

import click

from pellucid.cli import show
from pellucid.cli.app import write
from pellucid.cli.parameters import database_argument, is_url, opened, read_key, table_argument, the_table
from pellucid.transfer.outgoing import plain

__all__ = ["drop_command", "rename_command", "watch_command"]


@click.command("drop")
@database_argument()
@table_argument()
@click.option("--yes", is_flag=True, help="Do not ask first.")
def drop_command(file: str, table: str, yes: bool) -> None:
    """Drop TABLE with its rows and indexes, in one transaction.

    \b
    Example:
      pellucid drop people.pel people
    """
    with opened(file, "w") as database:
        count = len(the_table(database, table))
        rows = f"{count:,} row{'s' * (count != 1)}"
        if not yes:
            if not sys.stdin.isatty():
                raise click.UsageError("without a terminal, drop needs --yes")
            click.confirm(f"drop table {table!r} with {rows}?", abort=True, err=True)
        database.drop_table(table)
    write(f"dropped table {table} with {rows}")


@click.command("rename")
@database_argument()
@table_argument()
@click.argument("name")
def rename_command(file: str, table: str, name: str) -> None:
    """Give TABLE the NAME. Other processes that have it open go on with it.

    \b
    Example:
      pellucid rename people.pel people persons
    """
    with opened(file, "w") as database:
        the_table(database, table)
        database.rename_table(table, name)
    write(f"renamed table {table} to {name}")


@click.command("watch")
@database_argument()
@table_argument(is_required=False)
@click.option("--prefix", help="Only keys that begin with this one, as in `pellucid ls`; needs TABLE.")
@click.option("--since", type=int, help="Begin after this version. [default: now]")
@click.option("--timeout", type=float, help="End if there is no change for so many seconds. [default: never]")
def watch_command(
    file: str, table: str | None, prefix: str | None, since: int | None, timeout: float | None
) -> None:
    """Write each change of TABLE, or of all tables, as a line of JSON. Ctrl-C ends it.

    \b
    Example:
      pellucid watch people.pel people --since 0 --timeout 0
    """
    if prefix is not None and table is None:
        raise click.UsageError("--prefix needs a table")
    # The tables of a server note their changes from the first watch on.
    with opened(file, "w" if is_url(file) else "r") as database:
        if table is None:
            changes = database.watch(since=since, timeout=timeout)
        else:
            rows = the_table(database, table)
            begin = {} if prefix is None else {"prefix": read_key(prefix)}
            changes = rows.watch(since=since, timeout=timeout, **begin)
        for change in changes:
            show.as_json(
                {
                    "version": change.version,
                    "table": change.table,
                    "kind": change.kind,
                    "key": change.key,
                    "value": plain(change.value),
                }
            )
            sys.stdout.flush()
