"""Import the driver where a server is used, and say how to install it where it is missing."""

from __future__ import annotations

import functools
from typing import Any


@functools.cache
def psycopg() -> Any:
    """Return the module `psycopg`.

    Raises `ModuleNotFoundError` with the command that installs it.
    """
    try:
        import psycopg
        import psycopg.adapt
        import psycopg.conninfo
        import psycopg.errors
        import psycopg.sql
        import psycopg.types.numeric
    except ImportError as error:
        raise ModuleNotFoundError(
            f"postgresql:// needs the driver psycopg 3: pip install 'pellucid[postgres]' ({error})",
            name="psycopg",
        ) from error
    if int(psycopg.__version__.split(".")[0]) < 3 or psycopg.__version__.startswith("3.1"):
        raise ModuleNotFoundError(
            f"postgresql:// needs psycopg 3.2 or newer, and this is {psycopg.__version__}: "
            "pip install -U 'pellucid[postgres]'",
            name="psycopg",
        )
    if not psycopg.Pipeline.is_supported():
        raise ModuleNotFoundError(
            "postgresql:// needs libpq 14 or newer, which psycopg's binary package has: "
            "pip install -U 'psycopg[binary]'",
            name="psycopg",
        )
    return psycopg
