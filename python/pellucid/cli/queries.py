"""This module has the subcommands that look into rows: query and fields."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import islice
from typing import Any

import click

import pellucid
from pellucid.cli import show
from pellucid.cli.app import Refused, write
from pellucid.cli.parameters import (
    database_argument,
    opened,
    pieces,
    read_order,
    selected,
    table_argument,
    the_table,
    with_output,
)
from pellucid.cli.rows import LIMIT, show_rows
from pellucid.transfer.outgoing import plain

__all__ = ["fields_command", "query_command"]

AGGREGATE = re.compile(r"(count|sum|mean|min|max)\s*\((.*)\)\s*\Z", re.DOTALL)


@click.command("query")
@database_argument()
@table_argument(is_required=False)
@click.option("--where", "conditions", multiple=True, help="A condition; several must all be true.")
@click.option("--select", help="Expressions with commas, each with `as NAME` if you like.")
@click.option("--order", help="Expressions with commas, each with `desc` if you like.")
@click.option("--limit", type=click.IntRange(0), help=f"At most so many rows (tables: {LIMIT}); 0 for all.")
@click.option("--offset", type=click.IntRange(0), default=0, help="Leave out so many rows first.")
@click.option(
    "--group", help="Group by expressions; --select then has count(), sum(x), mean(x), min(x), max(x)."
)
@click.option("--key", metavar="NAME", help="Write keys for programs, as a field of this name.")
@click.option("--count", "is_count", is_flag=True, help="Write only the number of rows.")
@click.option(
    "--explain", "is_explain", is_flag=True, help="Say which index serves the query, and run nothing."
)
@with_output
def query_command(file: str, table: str | None, output: str | None, **options: Any) -> None:
    """Find, sort, group and count the rows of TABLE. If FILE has one table, it needs no name.

    Conditions and expressions are those of pellucid.parse:

    \b
      age >= 21 and city in ('Bath', 'York')
      name.last startswith 'B' or email is none
      tags contains 'a'          tags[*] == 'a'
      born < date '2000-01-31'   length(name) > 10   key() >= 'm'

    \b
    Examples:
      pellucid query people.pel people --where "age >= 21" --order "age desc, name"
      pellucid query people.pel --group city --select "count() as n, mean(age)" --order "n desc"
      pellucid query people.pel --where "age >= 21" --select name,age --csv > adults.csv
    """
    with opened(file) as database:
        query: Any = the_table(database, table).where(*map(pellucid.parse, options["conditions"]))
        matching = query
        chosen = selected(options["select"]) if options["select"] else {}
        if options["is_explain"] and options["group"]:
            write(query.explain())
            return
        if options["group"] or any(map(AGGREGATE.match, chosen.values())):
            query = _grouped(query, options["group"], chosen)
        elif chosen:
            keys = {options["key"]: pellucid.KEY} if options["key"] and output is not None else {}
            if keys.keys() & chosen.keys():
                raise Refused(f"--key {options['key']} is a name of --select, too; choose another one")
            query = query.select(**keys, **{name: pellucid.parse(text) for name, text in chosen.items()})
            options["key"] = None
        if options["order"]:
            query = query.order_by(*map(read_order, pieces(options["order"])))
        if options["offset"]:
            query = query.offset(options["offset"])
        if options["is_explain"]:
            write(query.explain())
        elif options["is_count"]:
            write(str((query.limit(options["limit"]) if options["limit"] else query).count()))
        elif output is not None:
            if options["limit"]:
                query = query.limit(options["limit"])
            show.write_for_programs(query, output, options["key"])
        else:
            is_whole = bool(options["group"] or chosen)
            if not _for_people(query, LIMIT if options["limit"] is None else options["limit"], is_whole):
                write("no rows", err=True)
                _say_notes(matching, options["conditions"])


def _grouped(query: Any, group: str | None, chosen: dict[str, str]) -> Any:
    """The groups as rows of a table in memory, so that they can be sorted like any others."""
    groups = selected(group) if group else {}
    aggregates: dict[str, Any] = {}
    columns: dict[str, str] = {}
    for name, text in (chosen or {**{name: name for name in groups}, "count": "count()"}).items():
        shared = text if text in groups else next((by for by, found in groups.items() if found == text), None)
        columns[name] = name if shared is None else shared
        if shared is None:
            aggregates[name] = _aggregate(text)
    by = {name: pellucid.parse(text) for name, text in groups.items()}
    if all(map(AGGREGATE.match, chosen.values())):
        columns = {**{name: name for name in groups}, **columns}
    rows = query.group_by(**by).agg(**aggregates) if by else [query.agg(**aggregates)]
    scratch = pellucid.open(":memory:")
    scratch.extend({name: row[column] for name, column in columns.items()} for row in rows)
    return scratch.where()


def _aggregate(text: str) -> Any:
    found = AGGREGATE.match(text)
    if found is None:
        raise Refused(
            f"--select {text!r} is neither in --group nor an aggregate: count(), count(x), sum(x), mean(x), "
            "min(x) or max(x)"
        )
    function, argument = found.groups()
    if argument.strip():
        return getattr(pellucid.parse(argument), function)()
    if function == "count":
        return pellucid.count()
    raise Refused(f"--select {text!r}: {function}() needs an expression, as in {function}(age)")


def _say_notes(query: Any, conditions: Sequence[str] = ()) -> None:
    """Say what is strange about the query, such as a field that no row has."""
    for line in query.explain().splitlines():
        if not line.startswith("note: "):
            continue
        missing = re.search(r' has "(\w+)"$', line)
        if missing and any(re.search(rf"[=<>,(]\s*{missing[1]}\b", text) for text in conditions):
            line += f"; if it is a text, quote it: '{missing[1]}'"
        elif missing and missing[1] == "key":
            line += "; key() is the key of a row"
        write(line, err=True)


def _for_people(query: Any, limit: int, is_whole: bool) -> bool:
    """Write a table for people, and say whether there is any row; one that was selected has no keys."""
    if not is_whole:
        # One row more than shown says whether there are more, without a count of all.
        pairs = list(islice(query.items(), limit + 1 if limit else None))
        if pairs:
            show_rows(iter(pairs), limit, len(pairs) if len(pairs) <= limit or not limit else query.count())
        return bool(pairs)
    found = [plain(row) for row in islice(query, limit or None)]
    if not found:
        return False
    names = list(dict.fromkeys(name for row in found for name in row))
    show.rows(names, [[row.get(name) for name in names] for row in found])
    if any(all(row.get(name) is None for row in found) for name in names):
        _say_notes(query)
    total = query.count() if limit and len(found) == limit else len(found)
    if total > len(found):
        write(f"{len(found):,} of {total:,} rows; --limit N shows more, --limit 0 all", err=True)
    return True


@click.command("fields")
@database_argument()
@table_argument(is_required=False)
@click.option("--exact", is_flag=True, help="Read all rows. [default: some, by chance]")
@click.option("--json", "is_json", is_flag=True, help="Write JSON, one field a line.")
def fields_command(file: str, table: str | None, exact: bool, is_json: bool) -> None:
    """Show the fields of the rows of TABLE: their types, in how many rows they are, and values.

    \b
    Example:
      pellucid fields people.pel people
    """
    with opened(file) as database:
        found = the_table(database, table).fields(exact=exact)
    if is_json:
        for field in found:
            show.as_json(field)
        return
    show.rows(
        ["field", "types", "share", "distinct", "min", "max", "example"],
        [
            [
                field["path"],
                field["types"],
                _percent(field["share"]),
                "" if field["distinct"] is None else f"{field['distinct']:,}",
                *("" if field[name] is None else field[name] for name in ("min", "max", "example")),
            ]
            for field in found
        ],
    )
    if found.note:
        write(found.note.replace("fields(exact=True)", "--exact"), err=True)


def _percent(share: float) -> str:
    """A share in percent; one that is not all is not rounded to all."""
    return f"{share:.0%}" if share == 1 or 0.01 <= share < 0.995 else f"{share * 100:.3g}%"
