"""This module has the subcommands on whole files: info, copy, check, compact, backup, restore."""

from __future__ import annotations

import os

import click

import pellucid
from pellucid.cli import show
from pellucid.cli.app import Refused, write
from pellucid.cli.parameters import database_argument, is_url, opened, policy, progress_line, the_table
from pellucid.transfer.copying import copy_tables, shown

__all__ = [
    "backup_command",
    "check_command",
    "compact_command",
    "copy_command",
    "info_command",
    "restore_command",
]


BACKUP = "pg_dump saves the schema of a server, and `pellucid copy URL FILE` copies its tables to a file"
RESTORE = "`pellucid copy BACKUP URL --existing replace` puts the tables of a backup on a server"


@click.command("info")
@database_argument()
@click.option("--json", "is_json", is_flag=True, help="Write JSON, with all figures of Database.stats().")
def info_command(file: str, is_json: bool) -> None:
    """Show the tables, the indexes and the size of the database FILE.

    \b
    Example:
      pellucid info people.pel
    """
    with opened(file) as database:
        figures = database.stats()
        tables = {name: database.table(name) for name in database.tables()}
        if is_json:
            show.as_json(
                {
                    "path": shown(database),
                    "tables": {
                        name: {"rows": len(table), "indexes": [index.name for index in table.indexes()]}
                        for name, table in tables.items()
                    },
                    "stats": figures,
                }
            )
            return
        size = show.human_size(figures["file_size"])
        version = ("version", f"{figures['version']:,}")
        if is_url(file):
            # The server alone knows what is free in its files.
            show.lines([("server", shown(database)), ("size", size), version])
        else:
            free = show.human_size(figures["free_pages"] * figures["page_size"])
            show.lines(
                [
                    ("file", str(database.path)),
                    ("size", f"{size}, of which {free} are free"),
                    ("in the log", show.human_size(figures["log_pending"])),
                    version,
                ]
            )
        write("")
        show.rows(
            ["table", "rows", "indexes"],
            [
                [name, f"{len(table):,}", ", ".join(index.name for index in table.indexes()) or None]
                for name, table in tables.items()
            ],
        )


@click.command("copy")
@database_argument()
@click.argument("target", type=click.Path(dir_okay=False))
@click.option(
    "--table", "tables", multiple=True, metavar="NAME", help="Copy only this table; may be repeated."
)
@click.option(
    "--existing",
    type=click.Choice(["refuse", "replace", "merge", "resume"]),
    default="refuse",
    show_default=True,
    metavar="WORD",
    help="What becomes of a table that TARGET has, with rows: refuse, replace, merge or resume.",
)
@click.option("--verify", is_flag=True, help="Read both again, and compare each row.")
def copy_command(file: str, target: str, tables: tuple[str, ...], existing: str, verify: bool) -> None:
    """Copy the tables of FILE, with their indexes, to the database TARGET.

    Each is a path or the URL of a PostgreSQL server. TARGET is created if necessary. It may have other
    tables. Where it has rows in those that are copied, --existing says what becomes of them. All of it is
    one transaction. To copy a whole file while it is in use, `pellucid backup` is faster.

    \b
    Examples:
      pellucid copy people.pel archive.pel --table people
      pellucid copy people.pel postgresql://ann@host/db --verify
    """
    if target == "-":
        raise Refused("a copy is a database, and cannot go to stdout; name a file, or ./- for that name")
    try:
        with opened(file) as database:
            names = list(dict.fromkeys(the_table(database, name).name for name in tables)) or None
            report = pellucid.copy(
                database,
                target,
                tables=names,
                existing=existing,
                verify=verify,
                pickle=policy(),
                progress=True,
            )
    except ValueError as error:
        raise Refused(str(error)) from error
    count = len(report.tables)
    end = ", and compared them" if verify else ""
    write(f"copied {report.rows:,} rows in {count} table{'s' * (count != 1)} to {report.name}{end}")


@click.command("check")
@database_argument()
def check_command(file: str) -> None:
    """Read all pages and records of FILE, and report damage.

    The exit code is 1 if there is any. Nothing is changed.
    """
    with opened(file) as database:
        with progress_line("entries") as progress:
            # A server does not say how many entries it has read.
            problems = database.check() if is_url(file) else database.check(progress=progress)
        for problem in problems:
            write(problem)
        if problems:
            raise Refused(f"{file} has {len(problems):,} problem{'s' * (len(problems) != 1)}")
        write(f"{file} is sound: {database.stats()['rows']:,} rows")


@click.command("compact")
@database_argument()
@click.option("--online", is_flag=True, help="Shorten FILE in small steps, while others use it.")
def compact_command(file: str, online: bool) -> None:
    """Rewrite FILE without its free space. No other process may have it open, unless with --online.

    On a server, it frees the room of old rows (VACUUM), while others use the tables.
    """
    with opened(file, "w") as database:
        before = database.stats()["file_size"]
        with progress_line("pages" if online else "entries") as progress:
            if is_url(file):
                database.compact(online=True)
            else:
                database.compact(online=online, progress=progress)
        after = database.stats()["file_size"]
    write(f"{file}: {show.human_size(before)} before, {show.human_size(after)} now")


@click.command("backup")
@database_argument()
@click.argument("target", type=click.Path())
@click.option(
    "--overwrite", is_flag=True, help="Replace a backup that is there, once the new one is complete."
)
def backup_command(file: str, target: str, overwrite: bool) -> None:
    """Copy FILE to the new file TARGET while it is in use. The copy equals a snapshot.

    \b
    Example:
      pellucid backup people.pel people-$(date +%F).pel
    """
    if target == "-":
        raise Refused(
            "a backup is written in pieces, and cannot go to stdout; name a file, or ./- for that name"
        )
    with opened(file, on_servers=BACKUP) as database, progress_line("entries") as progress:
        database.backup(target, overwrite=overwrite, progress=progress)
    write(f"{target}: {show.human_size(os.path.getsize(target))}")


@click.command("restore")
@click.argument("backup", type=click.Path(dir_okay=False))
@database_argument()
@click.option(
    "--replace", is_flag=True, help="Replace all tables of a FILE that is there, in one transaction."
)
def restore_command(backup: str, file: str, replace: bool) -> None:
    """Put the BACKUP back as FILE. The backup is checked first.

    With --replace, FILE may be there and in use: other processes see the old tables until they see those of
    the backup.

    \b
    Example:
      pellucid restore people-2026-01-31.pel people.pel --replace
    """
    if is_url(file):
        raise Refused(f"this command is for files; {RESTORE}")
    with opened(backup, on_servers=BACKUP) as source:
        with progress_line("entries") as progress:
            problems = source.check(progress=progress)
        if problems:
            raise Refused(f"{backup} is damaged, and {file} is as it was: {problems[0]}")
        if not os.path.exists(file):
            with progress_line("entries") as progress:
                source.backup(file, progress=progress)
        elif not replace:
            raise Refused(f"{file} exists already; pass --replace to replace its tables, or move it away")
        else:
            with opened(file, "w") as database, source.snapshot() as state:
                names = state.tables()
                with database.transaction():
                    for name in database.tables():
                        database.drop_table(name)
                    copy_tables(state, database, names)
        rows = source.stats()["rows"]
    write(f"restored {rows:,} rows of {backup} to {file}")
