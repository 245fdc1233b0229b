"""What does pellucid offer? A database that is a dict, whose records are read in place."""

from pellucid._native import (
    Database,
    Record,
    RecordList,
    Snapshot,
    Table,
    counters,
    dumps,
    loads,
    open,
    validate,
    view,
)
from pellucid._native import __version__ as __version__
from pellucid.errors import (
    Busy,
    Closed,
    CorruptRecord,
    DatabaseCorrupt,
    DatabaseError,
    DiskFull,
    Error,
    LostCommitsWarning,
    NetworkFilesystemWarning,
    NewerFormat,
    NotADatabase,
    PickleDenied,
    ReadOnly,
    RecordTooLarge,
    StaleRecord,
    StaleTable,
    TransactionError,
    UnregisteredType,
    UnsupportedKey,
    UnsupportedValue,
    WrongClass,
)
from pellucid.objects import register

__all__ = [
    "Busy",
    "Closed",
    "CorruptRecord",
    "Database",
    "DatabaseCorrupt",
    "DatabaseError",
    "DiskFull",
    "Error",
    "LostCommitsWarning",
    "NetworkFilesystemWarning",
    "NewerFormat",
    "NotADatabase",
    "PickleDenied",
    "ReadOnly",
    "Record",
    "RecordList",
    "RecordTooLarge",
    "Snapshot",
    "StaleRecord",
    "StaleTable",
    "Table",
    "TransactionError",
    "UnregisteredType",
    "UnsupportedKey",
    "UnsupportedValue",
    "WrongClass",
    "counters",
    "dumps",
    "loads",
    "open",
    "register",
    "validate",
    "view",
]


def _reopen(path: str, mode: str, options: dict[str, object]) -> Database:
    """Open the database of a pickled handle."""
    return open(path, mode, **options)  # type: ignore[arg-type]
