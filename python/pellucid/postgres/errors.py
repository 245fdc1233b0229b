"""Turn what the driver raises into pellucid's exceptions.

A message has what the server says first (`message_primary`), and never its details: those may have a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pellucid.errors import (
    Busy,
    CommitUnknown,
    DatabaseError,
    DiskFull,
    NotADatabase,
    ReadOnly,
    RecordTooLarge,
    TransactionError,
)

if TYPE_CHECKING:
    from pellucid.postgres.url import Place

# After these, the same transaction may well succeed when it runs again.
CONFLICTS = {"40001", "40P01"}
LATE = {"55P03", "57014"}
# The server ends the connection.
ENDINGS = {"57P01", "57P02", "57P03", "57P05"}
NO_RELATION = {"42P01", "42703"}
NO_SPACE = {"53100", "58030"}


CONFLICT = (
    "another client has changed the same row since this transaction began; nothing was stored: run the "
    "transaction "
    "again, as db.run(function) does"
)


CATALOG_MOVED = (
    "the first distributed table of this database was made since this transaction began, so it does not see "
    "the catalog any more; nothing was stored: run the transaction again, as db.run(function) does"
)


ENDED = "an earlier error has ended this transaction; leave its block and begin another one"


class LayoutChanged(DatabaseError):
    """A relation that the statement names is not there: another client has changed or dropped the table.

    Tables read the catalog again. A caller gets it if it is the catalog that is gone.
    """


def sqlstate(error: BaseException | None) -> str:
    """Return the SQLSTATE of a driver's exception; empty if it has none."""
    return str(getattr(error, "sqlstate", None) or "")


def is_lost(error: BaseException) -> bool:
    """Return whether the connection has ended."""
    state = sqlstate(error)
    if state:
        return state.startswith("08") or state in ENDINGS
    return type(error).__name__ in ("OperationalError", "ConnectionTimeout", "InterfaceError")


def is_internal(error: BaseException) -> bool:
    """Return whether a server may have lost another one of its cluster, of which it says no more."""
    return sqlstate(error) == "XX000" and "invalid memory alloc" not in said(error)


def is_conflict(error: BaseException) -> bool:
    """Return whether a transaction that raised this may succeed when it runs again."""
    cause = error.__cause__
    is_ours = error.args[:1] in ((CONFLICT,), (CATALOG_MOVED,))
    return isinstance(error, Busy) and (is_ours or sqlstate(cause) in CONFLICTS | NO_RELATION)


def said(error: BaseException) -> str:
    """Return what the server or the driver says, in one line and without details."""
    diagnosis: Any = getattr(error, "diag", None)
    primary = getattr(diagnosis, "message_primary", None)
    if primary:
        return str(primary)
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def of_connect(error: BaseException, place: Place) -> Exception:
    """Return the exception for a connection that could not be made."""
    return DatabaseError(f"cannot connect to {place.shown}: {said(error)}")


def of_lost(error: BaseException, place: Place, *, was_sent: bool) -> Exception:
    """Return the exception for a connection that ended; `was_sent`: with a write that no one has answered."""
    if was_sent:
        return CommitUnknown(
            f"the connection to {place.shown} ended while a write was under way ({said(error)}): it may be "
            "stored "
            "or not; read the rows to find out"
        )
    return DatabaseError(f"the connection to {place.shown} ended ({said(error)}); nothing of it was stored")


def of_statement(error: BaseException, place: Place, user: str) -> Exception:
    """Return the exception for a statement that the server has refused."""
    state, text = sqlstate(error), said(error)
    if state in NO_RELATION:
        return LayoutChanged(f"{place.shown}: {text}: another program has dropped or changed it")
    if state in CONFLICTS:
        return Busy(
            f"another client has changed the same rows meanwhile ({text}); nothing was stored: run the "
            "transaction "
            "again, as db.run(function) does"
        )
    if state in LATE:
        return Busy(
            f"a lock was held by another client for longer than the timeout ({text}); nothing was stored"
        )
    if state == "25P02":
        return TransactionError(ENDED)
    if state == "34000":
        return TransactionError("this iterator began inside a savepoint that was rolled back")
    if state in ("26000", "42P05"):
        return DatabaseError(
            f"{place.shown}: {text}; a connection pooler between does not keep prepared statements: add "
            "prepare=false "
            "to the URL"
        )
    if state == "42P07":
        return DatabaseError(
            f"{place.shown}: {text}: another program has made it, and pellucid needs this name; rename it "
            "there, or name another schema with ?schema= in the URL"
        )
    if state == "42501":
        return ReadOnly(f"{text}; {_missing_grant(text, place.schema, user)}")
    if state == "25006":
        return ReadOnly(f"the server only reads ({text}): it is a standby, or was opened with mode='r'")
    if state in NO_SPACE:
        return DiskFull(f"the server has no space left ({text}); nothing was stored")
    if state == "54000" or (state == "XX000" and "invalid memory alloc" in text):
        return RecordTooLarge(f"the server takes 1 GiB for a row at most ({text})")
    if state in ("22P05", "22021"):
        return NotADatabase(f"the server's encoding is not UTF-8 ({text})")
    return DatabaseError(f"{place.shown}: {text}")


def _missing_grant(text: str, schema: str, user: str) -> str:
    whom = f'TO "{user}"'
    if "schema" in text or "database" in text:
        return f'its owner grants it: GRANT USAGE, CREATE ON SCHEMA "{schema}" {whom}'
    return (
        f'its owner grants it: GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "{schema}" '
        f"{whom} "
        f'(SELECT alone to read), and for tables to come: ALTER DEFAULT PRIVILEGES IN SCHEMA "{schema}" '
        "GRANT ... ON "
        f"TABLES {whom}"
    )
