"""This module has the subcommand that opens a Python prompt."""

from __future__ import annotations

import builtins
import keyword
import sys
from contextlib import suppress
from typing import Any

import click

import pellucid
from pellucid.cli.parameters import database_argument, opened

__all__ = ["shell_command"]


@click.command("shell")
@database_argument()
@click.option("--read-only", is_flag=True, help="Refuse changes.")
def shell_command(file: str, read_only: bool) -> None:
    """Open a Python prompt with the tables of FILE by their names.

    It also has db, pellucid, F, KEY and count. A table whose name means something else in Python, such as
    list, is db.table("list"). If stdin is not a terminal, what it says is run as a program.

    \b
    Examples:
      pellucid shell people.pel
      echo 'print(people.where(F.age > 30).count())' | pellucid shell people.pel
    """
    with opened(file, "r" if read_only else "w") as database:
        names: dict[str, Any] = {
            "__name__": "__main__",
            "db": database,
            "pellucid": pellucid,
            "F": pellucid.F,
            "KEY": pellucid.KEY,
            "count": pellucid.count,
        }
        bound = [name for name in database.tables() if _is_free(name) and name not in names]
        names.update({name: database.table(name) for name in bound})
        if not sys.stdin.isatty():
            _run(sys.stdin.read(), names)
            return
        _prompt(names, file, bound)


def _is_free(name: str) -> bool:
    """Whether a table may have this name in the prompt: `print` and `__builtins__` keep their meaning."""
    is_taken = hasattr(builtins, name) or name.startswith("__") or name == "_"
    return name.isidentifier() and not keyword.iskeyword(name) and not is_taken


def _run(program: str, names: dict[str, Any]) -> None:
    try:
        exec(compile(program, "<stdin>", "exec"), names)  # noqa: S102  it is what the user typed
    except (KeyboardInterrupt, BrokenPipeError):
        raise
    except Exception:  # An error of the program, which wants its traceback.
        import traceback

        traceback.print_exc()
        click.get_current_context().exit(1)


def _prompt(names: dict[str, Any], file: str, bound: list[str]) -> None:
    import code

    with suppress(ImportError):
        # A Python without readline has a prompt without completion.
        import readline
        import rlcompleter

        readline.set_completer(rlcompleter.Completer(names).complete)
        readline.parse_and_bind("tab: complete")
    tables = ", ".join(bound) or "none yet; db.table(name) makes one"
    banner = f"pellucid {pellucid.__version__}, {file}\ntables: {tables}\nalso: db, F, KEY, count, pellucid"
    code.interact(banner, local=names, exitmsg="")
