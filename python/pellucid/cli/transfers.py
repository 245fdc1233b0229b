"""This module has the subcommands import and export."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Any

import click

import pellucid
from pellucid.cli.app import Refused, message_of, say, with_options, write
from pellucid.cli.parameters import database_argument, opened, selected, table_argument, the_table
from pellucid.transfer.detect import FORMATS as SOURCES
from pellucid.transfer.keys import CONFLICTS
from pellucid.transfer.outgoing import FORMATS as TARGETS

__all__ = ["export_command", "import_command"]

SKIPPED = 3
BYTES = ("parquet", "arrow")


def _types(given: tuple[str, ...]) -> Any:
    """The argument `types` of `import_from`: a word for all fields, or NAME=TYPE for some."""
    whole = [text for text in given if "=" not in text]
    if not whole:
        found = dict(text.rsplit("=", 1) for text in given)
        if len(found) < len(given):
            raise click.UsageError("--type has a field twice")
        return found or None
    if len(given) > 1:
        raise click.UsageError("--type takes NAME=TYPE for each field, or one TYPE for all")
    return whole[0]


def _dialect(given: tuple[str, ...]) -> dict[str, Any] | None:
    """The argument `dialect` of `import_from`."""
    found: dict[str, Any] = {}
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise click.UsageError("--dialect takes WHAT=VALUE, as in --dialect decimal=,")
        if name in found and name != "null":
            raise click.UsageError(f"--dialect has {name} twice")
        if name == "null":
            found.setdefault(name, []).append(value)
        elif name == "skip" and value.isdecimal():
            found[name] = int(value)
        else:
            # A shell does not make a tab of this.
            found[name] = "\t" if value == "\\t" else value
    return found or None


def _is_of_others(path: str) -> bool:
    """Whether there is a file that is not empty, and not a database of pellucid."""
    try:
        with pellucid.open(path, "r"):
            return False
    except pellucid.NotADatabase:
        return os.path.getsize(path) > 0
    except (pellucid.Error, OSError):
        return False


@click.command("import")
@database_argument()
@click.argument("sources", type=click.Path(allow_dash=True), metavar="SOURCE...", nargs=-1, required=True)
@click.option("--table", metavar="NAME", help="The table to import into, or to choose if SOURCE has several.")
@click.option(
    "--format",
    "form",
    type=click.Choice(SOURCES),
    metavar="FORMAT",
    help=f"What SOURCE is, if its content does not say: {', '.join(SOURCES)}.",
)
@click.option(
    "--path",
    "json_path",
    metavar="NAME",
    help="Where a JSON document has its rows: `features`, `data.rows`, or '' for its keys and values.",
)
@click.option(
    "--key",
    multiple=True,
    metavar="FIELD",
    help="The field that becomes the key, or its path as `user.name`. Several make a tuple. "
    "[default: ascending numbers]",
)
@click.option(
    "--on-conflict",
    type=click.Choice(CONFLICTS),
    metavar="WHAT",
    help="What becomes of a row whose key the table has: replace (the other row), merge (their fields), "
    "ignore (the new row) or error. [default: replace]",
)
@click.option(
    "--type",
    "types",
    multiple=True,
    metavar="FIELD=TYPE",
    help="Read a field as text, int, float, bool, decimal, date, time, timedelta, uuid, json, bytes (from "
    "base64) or pickle. "
    "A TYPE alone is that of all fields.",
)
@click.option(
    "--dates", is_flag=True, help="Make dates of strings such as 2000-01-31 and 2000-01-31T12:30:00."
)
@click.option("--encoding", help="The encoding of a text. [default: utf-8]")
@click.option("--columns", metavar="NAMES", help="The columns of a CSV without a line of names: `a,b,c`.")
@click.option(
    "--dialect",
    "dialects",
    multiple=True,
    metavar="WHAT=VALUE",
    help="How a CSV is written: delimiter, quote, escape, comment, skip (lines), decimal, thousands, or null "
    "(a word, also several times).",
)
@click.option(
    "--pickle",
    "pickles",
    multiple=True,
    metavar="NAME",
    help="A class that stored pickles may use, or `allow` for all. Loading them runs code.",
)
@click.option("--strict", is_flag=True, help="Import nothing if a row cannot be imported.")
@click.option("--dry-run", is_flag=True, help="Do everything, then roll it back.")
@click.option("--verify", is_flag=True, help="Read the source again, and compare.")
@click.option(
    "--batch",
    type=click.IntRange(1),
    metavar="ROWS",
    help="Commit after so many rows, so that other writers need not wait for all.",
)
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.pass_context
def import_command(
    ctx: click.Context, /, file: str, sources: tuple[str, ...], types: tuple[str, ...], **options: Any
) -> None:
    """Read SOURCE into the database FILE, which is created if necessary. `-` reads stdin.

    SOURCE may be JSON Lines, JSON, CSV, Parquet, Arrow, SQLite, sqlitedict, diskcache, TinyDB, LMDB, dbm,
    shelve or pickle; a text may be compressed, as .gz, .bz2 or .zst. FILE may be the URL of a server. An
    import is one transaction: an error or Ctrl-C leaves FILE as it was. Several sources are imported one
    after the other, each in a transaction of its own. Rows that cannot be imported are listed with the
    reason, and the exit code is then 3.

    \b
    Examples:
      pellucid import people.pel people.jsonl --table people --key email
      pellucid import people.pel people.csv --type zip=text --dates
      pellucid import log.pel logs/*.jsonl --table log
      pellucid import shop.pel shop.sqlite
      pellucid import log.pel log.jsonl.gz --table log
    """
    skipped = 0
    for number, source in enumerate(sources):
        try:
            report = _imported(file, source, types, options)
        except KeyboardInterrupt as stopped:
            say("; ".join(["stopped", *map(str, stopped.args), *_rest(sources, number)]))
            ctx.exit(130)
        except (Refused, pellucid.Error, OSError, ValueError, TypeError, MemoryError) as error:
            if number == 0:
                raise
            raise Refused("; ".join([message_of(error), *_rest(sources, number)])) from error
        write(with_options(str(report)), err=bool(report.skipped_count))
        skipped += report.skipped_count
    if skipped:
        ctx.exit(SKIPPED)


def _rest(sources: tuple[str, ...], number: int) -> list[str]:
    """What to say of the sources before one that was not imported."""
    if number == 0:
        return []
    return [f"{number} of {len(sources)} sources were imported before, so begin again with {sources[number]}"]


def _imported(file: str, source: str, types: tuple[str, ...], options: dict[str, Any]) -> Any:
    """Import one source, and return the report."""
    pickles = options["pickles"]
    try:
        return pellucid.import_from(
            sys.stdin.buffer if source == "-" else source,
            file,
            table=options["table"],
            format=options["form"],
            path=options["json_path"],
            key=list(options["key"]) or None,
            on_conflict=options["on_conflict"],
            types=_types(types),
            dates=options["dates"],
            encoding=options["encoding"],
            columns=None if options["columns"] is None else options["columns"].split(","),
            dialect=_dialect(options["dialects"]),
            pickle="allow" if "allow" in pickles else list(pickles) or "deny",
            strict=options["strict"],
            dry_run=options["dry_run"],
            verify=options["verify"],
            batch=options["batch"],
            progress=not options["quiet"],
        )
    except (pellucid.NotADatabase, pellucid.SourceError, FileNotFoundError):
        if source == "-" or not _is_of_others(file) or _is_of_others(source):
            raise
        swapped = f"pellucid import {shlex.quote(source)} {shlex.quote(file)}"
        raise Refused(f"{file} is not a database, and the database comes first: {swapped}") from None


def _selected(text: str | None) -> dict[str, Any] | None:
    """The argument `select` of `export_to`."""
    return None if text is None else {name: pellucid.parse(piece) for name, piece in selected(text).items()}


@click.command("export")
@database_argument()
@table_argument(is_required=False)
@click.argument("target", type=click.Path(allow_dash=True), metavar="TARGET", required=False)
@click.option(
    "--format",
    "form",
    type=click.Choice(TARGETS),
    metavar="FORMAT",
    help=f"What to write, if the suffix of TARGET says nothing: {', '.join(TARGETS)}.",
)
@click.option("--key", metavar="FIELD", help="Write the keys as this field. Without it, they are left out.")
@click.option("--where", help="Only rows for which this condition is true.")
@click.option("--select", help="Only these: expressions with commas, each with `as NAME` if you like.")
@click.option("--flatten", is_flag=True, help="Write the fields of dicts as fields with dots in their names.")
@click.option("--overwrite", is_flag=True, help="Replace a TARGET that is there.")
@click.option(
    "--spreadsheet", is_flag=True, help="In CSV, write an apostrophe before texts that look like formulas."
)
@click.option("--nan-as-null", is_flag=True, help="In JSON, write null for NaN and infinity.")
@click.option("--quiet", is_flag=True, help="Show no progress.")
@click.pass_context
def export_command(
    ctx: click.Context,
    /,
    file: str,
    table: str | None,
    target: str | None,
    form: str | None,
    key: str | None,
    select: str | None,
    quiet: bool,
    **options: Any,
) -> None:
    """Write TABLE to TARGET: JSON Lines, JSON, CSV, Parquet, Arrow, SQLite or a shelf. `-` writes to stdout.

    Without TABLE, SQLite gets all tables, and the other formats the only one that has rows.

    The suffix of TARGET says which: .jsonl .json .csv .tsv .parquet .arrow .sqlite .shelf. A text may be
    compressed, as .csv.gz or .jsonl.zst. The file gets its name when it is complete. Rows that cannot be
    written are listed with the reason, and the exit code is then 3.

    \b
    Examples:
      pellucid export people.pel people people.csv --key email
      pellucid export people.pel people adults.json.gz --where "age >= 21" --select "name, at.city as city"
      pellucid export shop.pel shop.sqlite --key id
    """
    if target is None:
        # The word before TARGET may be left out.
        table, target = None, table
    if target is None:
        raise click.UsageError("Missing argument 'TARGET'.")
    with opened(file) as database, database.snapshot() as snapshot:
        rows: Any = snapshot if table is None else snapshot.table(the_table(database, table).name)
        if target == "-" and form is None:
            form = "jsonl"
        if target == "-" and form in BYTES and sys.stdout.isatty():
            raise Refused(f"{form} is bytes for a program; redirect them to a file or a pipe")
        report = pellucid.export_to(
            rows,
            sys.stdout.buffer if target == "-" else target,
            format=form,
            key=key,
            select=_selected(select),
            progress=not quiet,
            **options,
        )
        firsts = [found for name in report.tables if (found := snapshot.table(name).first()) is not None]
    if target != "-" or report.skipped_count or report.notes:
        write(str(report), err=True)
    if key is None and report.format != "shelve" and any(not isinstance(key, int) for key, _ in firsts):
        write("the keys were left out; --key FIELD writes them as a field", err=True)
    if report.skipped_count:
        ctx.exit(SKIPPED)
