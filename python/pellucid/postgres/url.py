"""Read the URL of a server: what libpq gets, and what pellucid adds to it."""

from __future__ import annotations

import dataclasses
import urllib.parse
from typing import Any

from pellucid.postgres.driver import psycopg

SCHEMA = "pellucid"
CONNECTIONS_MAX = 10
# Seconds after which the system gives up a connection whose other end does not answer.
SILENCE_SECONDS_MAX = 30
FLAGS = {
    "true": True,
    "1": True,
    "yes": True,
    "on": True,
    "false": False,
    "0": False,
    "no": False,
    "off": False,
}


@dataclasses.dataclass(frozen=True, repr=False)
class Place:
    """Where a database is, and how it is reached. Its repr has no password."""

    parameters: dict[str, Any]
    schema: str
    connections_max: int
    prepares: bool

    def __repr__(self) -> str:
        return self.shown

    @property
    def shown(self) -> str:
        """The URL without password and settings, for messages."""
        known = self.parameters
        host = str(known.get("host") or known.get("hostaddr") or known.get("service") or "")
        user = f"{known['user']}@" if known.get("user") else ""
        port = f":{known['port']}" if known.get("port") else ""
        if "/" in host:
            host = urllib.parse.quote(host, safe="")
        return f"postgresql://{user}{host}{port}/{known.get('dbname') or ''}?schema={self.schema}"


def parse(url: str, timeout: float) -> Place:
    """Return what a URL says.

    Raises `ValueError` for one that libpq cannot read. The message does not repeat it, since it may have a
    password.
    """
    head, _, query = url.partition("?")
    own: dict[str, str] = {}
    passed = []
    for pair in query.split("&") if query else []:
        name, _, value = pair.partition("=")
        if name in ("schema", "max_connections", "prepare"):
            own[name] = urllib.parse.unquote(value)
        else:
            passed.append(pair)
    try:
        parameters = dict(
            psycopg().conninfo.conninfo_to_dict(head + ("?" + "&".join(passed) if passed else ""))
        )
    except psycopg().ProgrammingError:
        raise ValueError(
            "the URL is no connection URI of libpq (it is not repeated here, since it may have a password): "
            "postgresql://user:password@host:port/database?sslmode=require, with each of @ : / ? # % in a "
            "user or "
            "password written as %40 %3A %2F %3F %23 %25"
        ) from None
    parameters.setdefault("connect_timeout", max(2, int(timeout + 0.999)))
    parameters.setdefault("tcp_user_timeout", SILENCE_SECONDS_MAX * 1000)
    parameters.setdefault("application_name", "pellucid")
    return Place(parameters, _schema(own), _connections_max(own), _flag(own, "prepare"))


def _schema(own: dict[str, str]) -> str:
    schema = own.get("schema", SCHEMA)
    if not schema or "\0" in schema or len(schema.encode()) > 63:
        raise ValueError(f"schema={schema!r} in the URL is no name of a schema: 1 to 63 bytes, without NUL")
    return schema


def _connections_max(own: dict[str, str]) -> int:
    given = own.get("max_connections", str(CONNECTIONS_MAX))
    if not given.isascii() or not given.isdigit() or int(given) < 1:
        raise ValueError(f"max_connections={given!r} in the URL is no number from 1 on")
    return int(given)


def _flag(own: dict[str, str], name: str) -> bool:
    given = own.get(name, "true").lower()
    if given not in FLAGS:
        raise ValueError(f"{name}={given!r} in the URL is neither true nor false")
    return FLAGS[given]
