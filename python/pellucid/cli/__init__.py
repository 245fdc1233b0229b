"""This package is the command `pellucid`. It uses the public names of the library alone.

It needs click and rich, which the extra `pellucid[cli]` brings.
"""

from __future__ import annotations

import os
import sys

# Do not import this from typing: the command starts fast. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NoReturn

__all__ = ["main"]


def main() -> NoReturn:
    """Run the command line of this process, and end it with the exit code."""
    try:
        from pellucid.cli import app
    except ImportError as error:
        if error.name not in ("click", "rich"):
            raise
        sys.stderr.write('pellucid: the command needs click and rich: pip install "pellucid[cli]"\n')
        sys.exit(1)
    try:
        app.command.main(prog_name="pellucid")
    except OSError as error:
        # A help text that cannot be written. Python must not try to write the rest at its end.
        app.say(app.message_of(error))
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
