"""This module starts the demo from the command line, and prints what its parts come to."""

from __future__ import annotations

import argparse
import os
import shlex
import shutil
import sys
import tempfile
import textwrap
import time
from collections.abc import Sequence
from pathlib import Path

import pellucid
from pellucid.demo.library import FIELDS, library
from pellucid.demo.tour import MORE, PARTS, TABLE, TABLES, Part, Tour, near

FILE = Path("demo.pel")
CODE_WIDTH = 43
"""Columns of the code in the short demo."""
CLONE = Path(pellucid.__file__).parents[2]
"""The folder of the clone, if the package runs from its source."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    by_dev = Path.cwd() == CLONE and (CLONE / "dev").is_file()
    command = "./dev demo" if by_dev else f"{near(sys.executable)} -m pellucid.demo"
    parser = argparse.ArgumentParser(prog=command, description="Show in ten lines what pellucid does.")
    parser.add_argument("file", nargs="?", type=Path, default=FILE, help=f"the database (default: {FILE})")
    parser.add_argument("--more", action="store_true", help="show every line that runs, and go on")
    options = parser.parse_args(arguments)
    try:
        tell(options.file, with_more=options.more)
        more = (
            f"{command} --more"
            if options.file == FILE
            else f"{command} --more {shlex.quote(str(options.file))}"
        )
        tell_what_next(options.file, "" if options.more else more)
    except KeyboardInterrupt:
        print(f"{command}: stopped, and nothing is half made", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # Whatever reads the lines has enough of them. Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (pellucid.Error, OSError) as error:
        print(f"{command}: {error}", file=sys.stderr)
        return 1
    return 0


def tell(path: Path, *, with_more: bool) -> None:
    """Print what the parts come to over a file, which is made if it is missing."""
    seconds = make(path)
    with pellucid.open(path, mode="w") as db:
        clear(db, path)
        how = f"read in {seconds:.1f} s" if seconds else "read before"
        say(f"{path}: {len(db.table(TABLE)):,} lines of Python's own library, a record each; {how}.")
        for part in [*PARTS, *MORE] if with_more else PARTS:
            (show_all if with_more else show_line)(Tour(db, path), part)


def tell_what_next(path: Path, more: str) -> None:
    """Print where the file is, what to type next, and which page to read."""
    prompt = (
        f"{near(sys.executable)} -ic {shlex.quote(f'import pellucid; db = pellucid.open({json_of(path)})')}"
    )
    page = CLONE / "docs/tutorial.md"
    # Commands are not broken, so that they can be pasted.
    for label, text in (
        ("File:", f"{path}, {path.stat().st_size / 1e6:.0f} MB; delete it when you like"),
        ("Next:", more or prompt),
        ("Read:", f"{near(page) if page.is_file() else 'docs/tutorial.md in the clone'}, ten minutes"),
    ):
        print(colour(label, "1"), text, flush=True)


def json_of(path: Path) -> str:
    """Return the path as a string of Python with double quotes: the shell has single ones around it."""
    return '"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"'


def make(path: Path) -> float:
    """Make the file, unless it is there; return the seconds that this took.

    It is made in a folder of its own beside its place, so it is there with all rows or not at all.
    """
    if path.exists():
        return 0.0
    if not path.parent.is_dir():
        raise FileNotFoundError(f"there is no folder {str(path.parent)!r}")
    started = time.perf_counter()
    if sys.stdout.isatty():
        # The first line, which is longer, takes its place.
        print("reading Python's own library ...", end="\r", flush=True)
    with tempfile.TemporaryDirectory(prefix="pellucid-demo-", dir=path.parent) as folder:
        new = Path(folder) / path.name
        with pellucid.open(new) as db:
            db.table(TABLE).extend(library())
        new.replace(path)
    return time.perf_counter() - started


def clear(db: pellucid.Database, path: Path) -> None:
    """Remove what an earlier run has left, except for the lines of the library.

    FileExistsError if no demo has made the file.
    """
    code = db.table(TABLE) if TABLE in db.tables() else None
    example = code.first() if code is not None else None
    if code is None or example is None or not set(db.tables()) <= TABLES or list(example[1]) != FIELDS:
        raise FileExistsError(f"{str(path)!r} is not a file of the demo; name another one, or move it away")
    db.clear()
    for name in set(db.tables()) - {TABLE, "default"}:
        db.drop_table(name)
    for index in code.indexes():
        code.drop_index(index.name)


def show_line(tour: Tour, part: Part) -> None:
    """Print a line of the code and what it came to, on two lines where the terminal is narrow."""
    code, said = part(tour)
    columns, _ = terminal()
    for gap in (max(2, CODE_WIDTH - len(code)), 2):
        if len(code) + gap + len(said) <= columns:
            print(f"{colour(code, '36')}{' ' * gap}{said}", flush=True)
            return
    print(colour(code, "36"))
    say(said, "    ")


def show_all(tour: Tour, part: Part) -> None:
    """Print the part's title, all lines that it ran, and what they came to."""
    _, said = part(tour)
    print(f"\n{colour(part.__doc__ or '', '1')}")
    for line in tour.lines:
        print(colour(line, "36"))
    say(said)


def say(text: str, indent: str = "") -> None:
    """Print a text, broken where the terminal ends."""
    columns, _ = terminal()
    for line in text.splitlines():
        print(textwrap.fill(line, columns, initial_indent=indent, subsequent_indent="    "), flush=True)


def terminal() -> tuple[int, bool]:
    """Return the columns of the terminal (80 in a pipe), and whether it shows colours."""
    is_plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return max(20, shutil.get_terminal_size().columns), sys.stdout.isatty() and not is_plain


def colour(text: str, code: str) -> str:
    """Return a text in a colour, if the terminal has any."""
    return f"\x1b[{code}m{text}\x1b[0m" if terminal()[1] else text


if __name__ == "__main__":
    sys.exit(main())
