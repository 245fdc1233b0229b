"""This module is the command with its subcommands, and says how errors end it.

A module of subcommands is imported when one of them runs, so that the command starts fast.
"""

from __future__ import annotations

import importlib
import os
import re
import shlex
import sys
import warnings
from collections.abc import Callable, Iterable
from errno import ENOSPC
from functools import partial
from typing import Any

import click

import pellucid
from pellucid.look.text import escaped

# Below this width of the terminal, the first column of help is this wide.
NARROW = 60
NARROW_COLUMN = 8
# The most digits of an int that are written, which takes Python 3.11 a fifth of a second.
DIGITS_MAX = 100_000

__all__ = ["Refused", "command", "message_of", "say", "with_options", "write"]

# Each subcommand, with its module and what it does.
SUBCOMMANDS = {
    "info": ("files", "Show the tables, the indexes and the size of a database."),
    "ls": ("rows", "List tables, or the rows of a table."),
    "get": ("rows", "Show the row under a key, or one of its fields."),
    "put": ("rows", "Store a row under a key."),
    "del": ("rows", "Delete rows by their keys, or by a condition."),
    "query": ("queries", "Find, sort, group and count rows."),
    "fields": ("queries", "Show which fields the rows of a table have."),
    "index": ("indexes", "List, create, rebuild or drop indexes."),
    "drop": ("tables", "Drop a table with its rows."),
    "rename": ("tables", "Give a table another name."),
    "watch": ("tables", "Write the changes of tables as they come."),
    "import": ("transfers", "Read a file of another program into a table."),
    "export": ("transfers", "Write a table to a file for other programs."),
    "copy": ("files", "Copy tables with their indexes to another database."),
    "check": ("files", "Read everything, and report damage."),
    "compact": ("files", "Rewrite the file without its free space."),
    "backup": ("files", "Copy a database while it is in use."),
    "restore": ("files", "Put a backup back."),
    "bench": ("bench", "Measure the speed of pellucid and of other libraries."),
    "shell": ("shell", "Open a Python prompt with the tables of a database."),
}

HELP = """A database that is a dict, in one file.

\b
From a file of JSON Lines to an indexed query:
  pellucid import people.pel people.jsonl --table people
  pellucid fields people.pel people
  pellucid index people.pel people by_age age
  pellucid query people.pel people --where "age >= 21" --limit 5

`pellucid COMMAND --help` explains a command, with examples.
"""

EPILOG = """\b
Exit codes: 0 done, 1 error, 2 wrong usage, 3 imported without some rows,
130 stopped by Ctrl-C, 141 the reader of the output is gone.

\b
Completion: eval "$(_PELLUCID_COMPLETE=bash_source pellucid)"
for zsh and fish, zsh_source and fish_source.
"""


def _nulls(found: re.Match[str]) -> str:
    """The options for the words of `dialect={"null": ...}`."""
    import json

    return " ".join(f"--dialect null={shlex.quote(word)}" for word in json.loads(f"[{found[1]}]"))


# What messages of the library call an argument, and what it is called here.
OPTIONS: tuple[tuple[str, str | Callable[[re.Match[str]], str]], ...] = (
    (
        r'open with pickle="allow", or with pickle=\[[^\]]*\], if you trust the file\'s author',
        "if you trust the file's author, say so before the command: pellucid --allow-pickle COMMAND",
    ),
    (r'in a database opened with pickle="allow"', "with --pickle allow"),
    (r'pickle="allow"(?! in open)', "--pickle allow"),
    (r"pickle=\['?([\w.*]+?)'?\](?! in open)", r"--pickle \1"),
    (r"pass overwrite=True, or another table=", "pass --overwrite"),
    (r"\boverwrite=True\b", "--overwrite"),
    (r"\bspreadsheet=True\b", "--spreadsheet"),
    (r'types="(\w+)"', r"--type \1"),
    (r'types=\{"(\w+)": "(\w+)"\}', r"--type \1=\2"),
    (r'on_conflict="(\w+)", "merge" or "ignore"', r"--on-conflict \1, merge or ignore"),
    (r'on_conflict="(\w+)"', r"--on-conflict \1"),
    (r"\bon_conflict=", "--on-conflict "),
    (r"\bpath='(\S+)'", r"--path \1"),
    (r'\bpath=""', "--path ''"),
    (r"\bpath= wants\b", "--path wants"),
    (r"\bverify=True\b", "--verify"),
    (r"choose with table= among", "name one of them before TARGET:"),
    (r"choose one with table=, as in export_to.*", "pellucid rename FILE TABLE NAME gives it another one"),
    (r"\b(encoding|format|key|table|batch|fields|columns|dialect|where|select)=(?=[\s:;,.]|$)", r"--\1"),
    (r'existing="replace", "merge" or "resume"', "--existing replace, merge or resume"),
    (r'drop_index\("(.*?)"\) first', r"pellucid index FILE TABLE \1 --drop first"),
    (r'dialect=\{"null": \[?(.*?)\]?\}', _nulls),
    (r"\btypes= ", "--type "),
    (r"\bformat='(\w+)'", r"--format \1"),
)


class Formatter(click.HelpFormatter):
    """Writes help. In a narrow terminal an explanation begins below its option, and not far to the right."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 30, col_spacing: int = 2) -> None:
        """Write options or commands with their explanations."""
        super().write_dl(list(rows), col_max if self.width >= NARROW else NARROW_COLUMN, col_spacing)


class Context(click.Context):
    """A call of the command or of a subcommand."""

    formatter_class = Formatter


class Commands(click.Group):
    """The subcommands, each from its module."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Return all names, in the order of the help."""
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Import a subcommand."""
        if cmd_name not in SUBCOMMANDS:
            return None
        module = importlib.import_module(f"pellucid.cli.{SUBCOMMANDS[cmd_name][0]}")
        found = getattr(module, f"{cmd_name}_command")
        assert isinstance(found, click.Command)
        found.context_class = Context
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand of the first word, or say what was perhaps meant."""
        name = args[0]
        if name not in SUBCOMMANDS:
            import difflib

            near = difflib.get_close_matches(name, SUBCOMMANDS, 1)
            if near:
                ctx.fail(f"there is no command {name!r}; did you mean {near[0]!r}?")
            if os.path.exists(name):
                ctx.fail(f"the command comes before the file, as in: pellucid info {shlex.quote(name)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the list of subcommands, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, does) for name, (_, does) in SUBCOMMANDS.items()])

    def invoke(self, ctx: click.Context) -> Any:
        """Run a subcommand, and turn errors into messages and exit codes."""
        try:
            with warnings.catch_warnings():
                warnings.showwarning = lambda message, *_: say(f"warning: {message}")
                result = super().invoke(ctx)
            sys.stdout.flush()
            return result
        except BrokenPipeError:
            # The reader is gone, as with `| head`. Python must not write the rest at its end either.
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
            ctx.exit(141)
        except KeyboardInterrupt:
            say("stopped")
            ctx.exit(130)
        except (Refused, pellucid.Error, OSError, ValueError, TypeError, ImportError, MemoryError) as error:
            # The library has a TypeError for what was typed, too: an order by each element, for example.
            say(message_of(error))
            ctx.exit(1)


class Refused(Exception):
    """What was asked for is not there, or cannot be done; the message says why."""


def write(text: str, err: bool = False) -> None:
    """Write a text and a line break, for people. It may have lines and tabs."""
    click.echo(escaped(text, "\n\t"), err=err)


def say(message: str) -> None:
    """Write a line to stderr."""
    write(f"pellucid: {message}", err=True)


def message_of(error: BaseException) -> str:
    """The message of an error, with the names that arguments have on the command line."""
    if (
        isinstance(error, OSError)
        and error.strerror
        and (error.filename is not None or error.errno == ENOSPC)
    ):
        # What is full and has no name is stdout.
        name = "the output" if error.filename is None else os.fsdecode(error.filename)
        message = f"{name}: {error.strerror}"
    elif isinstance(error, MemoryError):
        message = f"not enough memory {error}".strip()
    elif isinstance(error, ValueError) and "integer string conversion" in str(error):
        message = f"an int has more than {DIGITS_MAX:,} digits; --json and `export` write all of them"
    else:
        message = str(error) or type(error).__name__
    return with_options(message)


def with_options(text: str) -> str:
    """A text of the library, with the names that arguments have on the command line."""
    for pattern, option in OPTIONS:
        text = re.sub(pattern, option, text)
    return text


@click.group(cls=Commands, help=HELP, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--allow-pickle", is_flag=True, help="Load stored pickles. This runs code of their authors.")
@click.version_option(pellucid.__version__, prog_name="pellucid", message="%(prog)s %(version)s")
@click.pass_context
def command(ctx: click.Context, allow_pickle: bool) -> None:
    """Keep what all subcommands share."""
    ctx.obj = "allow" if allow_pickle else "deny"
    # Python writes 4,300 digits by default; before 3.10.7 it had no limit.
    if hasattr(sys, "set_int_max_str_digits"):
        ctx.call_on_close(partial(sys.set_int_max_str_digits, sys.get_int_max_str_digits()))
        sys.set_int_max_str_digits(DIGITS_MAX)
