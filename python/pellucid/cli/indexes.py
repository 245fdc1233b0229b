"""This module has the subcommand on indexes."""

from __future__ import annotations

import click

import pellucid
from pellucid.cli import show
from pellucid.cli.app import write
from pellucid.cli.parameters import (
    database_argument,
    opened,
    progress_line,
    read_order,
    table_argument,
    the_table,
)

__all__ = ["index_command"]


@click.command("index")
@database_argument()
@table_argument()
@click.argument("name", required=False)
@click.argument("parts", nargs=-1, metavar="[EXPRESSION]...")
@click.option("--unique", is_flag=True, help="Refuse two rows with the same value.")
@click.option("--where", help="Index only the rows for which this condition is true.")
@click.option("--drop", "is_drop", is_flag=True, help="Remove the index NAME.")
@click.option("--rebuild", "is_rebuild", is_flag=True, help="Make all entries of the index NAME again.")
@click.option("--json", "is_json", is_flag=True, help="List the indexes as JSON.")
def index_command(
    file: str,
    table: str,
    name: str | None,
    parts: tuple[str, ...],
    unique: bool,
    where: str | None,
    is_drop: bool,
    is_rebuild: bool,
    is_json: bool,
) -> None:
    """List the indexes of TABLE, or create the index NAME over expressions.

    \b
    Examples:
      pellucid index people.pel people
      pellucid index people.pel people by_age age
      pellucid index people.pel people by_name "lower(name)" --unique
      pellucid index people.pel people by_city city "age desc" --where "age >= 18"
      pellucid index people.pel people by_tag "tags[*]"
      pellucid index people.pel people by_age --drop
    """
    if is_drop + is_rebuild + bool(parts) > 1 or bool(name) != bool(parts or is_drop or is_rebuild):
        with opened(file) as database:
            # With the table left out, the name is in its place.
            the_table(database, table)
        raise click.UsageError(
            "give a name with expressions to create an index, a name with --drop or --rebuild, or no name to "
            "list them"
        )
    if name is None:
        with opened(file) as database:
            _list(the_table(database, table), is_json)
        return
    with opened(file, "w") as database:
        rows = the_table(database, table)
        if is_drop:
            rows.drop_index(name)
            write(f"dropped index {name}")
            return
        with progress_line("rows") as progress:
            if is_rebuild:
                rows.rebuild_index(name, progress=progress)
            else:
                rows.create_index(
                    name,
                    tuple(map(read_order, parts)),
                    unique=unique,
                    where=None if where is None else pellucid.parse(where),
                    progress=progress,
                )
        entries = next(index.entries for index in rows.indexes() if index.name == name)
    write(f"index {name} has {entries:,} entries")


def _list(rows: pellucid.Table[object], is_json: bool) -> None:
    found = [
        {
            "index": index.name,
            "on": ", ".join(str(part) for part in index.parts),
            "unique": index.unique,
            "where": None if index.where is None else str(index.where),
            "entries": index.entries,
            "state": index.state,
        }
        for index in rows.indexes()
    ]
    if is_json:
        for index in found:
            show.as_json(index)
        return
    columns = ["index", "on", "unique", "where", "entries", "state"]
    show.rows(
        columns,
        [
            [
                "yes" if index[name] is True else "" if index[name] is False else index[name]
                for name in columns
            ]
            for index in ({**index, "entries": f"{index['entries']:,}"} for index in found)
        ],
    )
