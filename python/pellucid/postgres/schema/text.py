"""Texts of SQL: names in quotes, and parameters whose type the server must know."""

from __future__ import annotations

from typing import Any

from pellucid.postgres.driver import psycopg


def quoted(*names: str) -> bytes:
    """Return a name, or a name in a schema, as SQL has it."""
    return b".".join(b'"' + name.replace('"', '""').encode() + b'"' for name in names)


def formed(text: str, **names: bytes) -> bytes:
    """Return a text of SQL with quoted names in it."""
    return text.format(**{name: quoted.decode() for name, quoted in names.items()}).encode()


def big_int(number: int) -> Any:
    """Return a parameter that is a bigint, however small it is."""
    return psycopg().types.numeric.Int8(number)
