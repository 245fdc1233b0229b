"""This module starts the demo from the command line."""

from __future__ import annotations

import argparse
import platform
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from pellucid.demo import lookups, show, tour


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the tour and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m pellucid.demo",
        description="Store all functions and classes of the standard library; find some, change some.",
    )
    parser.add_argument("--limit", type=int, metavar="N", help="stop after N definitions")
    parser.add_argument(
        "--keep", type=Path, metavar="FILE", help="keep the database in FILE (default: remove it)"
    )
    options = parser.parse_args(arguments)
    if options.limit is not None and options.limit < 1:
        parser.error("--limit must be at least 1")
    if options.keep and options.keep.exists():
        parser.error(f"{str(options.keep)!r} exists; name a new file, or remove it")
    try:
        from rich.console import Console
    except ImportError:
        parser.error("the demo draws its tables with rich: pip install rich")
    console = Console(highlight=False, width=None if sys.stdout.isatty() else 110)
    started = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="pellucid-demo-") as directory:
        path = options.keep or Path(directory) / "library.pel"
        with show.progress(console, options.limit) as on_file:
            stored = tour.store(path, options.limit, on_file)
        show.stored(console, f"Python {platform.python_version()}", stored)
        result = tour.read(path)
        if (result.rows, result.lines) != (stored.storing.count, stored.lines):
            raise AssertionError(f"stored {stored.storing.count} records, found {result.rows}")
        show.read(console, result)
        show.asked(console, tour.ask(path))
        show.found(console, lookups.find(path))
        show.changed(console, tour.change(path))
    console.print(f"[green]The demo took {time.perf_counter() - started:.1f} s.[/]")
    if options.keep:
        console.print(f"The database is {options.keep}.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
