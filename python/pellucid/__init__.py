"""pellucid is an embedded database that works like a dict and reads its records in place."""

import sys as _sys

from pellucid._native import (
    KEY,
    Aggregate,
    ArrowStream,
    Change,
    Database,
    Expression,
    F,
    Groups,
    Index,
    IndexInfo,
    Query,
    Record,
    RecordList,
    Snapshot,
    SortBy,
    Table,
    Watch,
    count,
    counters,
    dumps,
    json_bytes,
    json_dumps,
    key_of,
    loads,
    open,
    parse,
    set_threads,
    table_of,
    validate,
    view,
)
from pellucid._native import __version__ as __version__
from pellucid._native import _imported as _imported
from pellucid.builtin_values import to_builtin
from pellucid.errors import (
    Busy,
    Closed,
    CommitUnknown,
    CorruptRecord,
    DatabaseCorrupt,
    DatabaseError,
    DatabaseWarning,
    DiskFull,
    Error,
    HistoryGone,
    IndexNotReady,
    LeaseLost,
    LostCommitsWarning,
    NetworkFilesystemWarning,
    NewerFormat,
    NoSuchIndex,
    NotADatabase,
    NotOneRow,
    ParseError,
    PickleDenied,
    ReadOnly,
    RecordTooLarge,
    SourceError,
    StaleRecord,
    StaleTable,
    StreamError,
    TooManyGroups,
    TransactionError,
    UniqueError,
    UnreadableValue,
    UnregisteredType,
    UnsupportedKey,
    UnsupportedValue,
    WrongClass,
)
from pellucid.objects import register
from pellucid.renames import rename_classes
from pellucid.transfer import copy, export_to, import_from

# Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from pellucid.cache import Cache as Cache
    from pellucid.digests import digest as digest
del TYPE_CHECKING

__all__ = [
    "KEY",
    "Aggregate",
    "ArrowStream",
    "Busy",
    "Cache",
    "Change",
    "Closed",
    "CommitUnknown",
    "CorruptRecord",
    "Database",
    "DatabaseCorrupt",
    "DatabaseError",
    "DatabaseWarning",
    "DiskFull",
    "Error",
    "Expression",
    "F",
    "Groups",
    "HistoryGone",
    "Index",
    "IndexInfo",
    "IndexNotReady",
    "LeaseLost",
    "LostCommitsWarning",
    "NetworkFilesystemWarning",
    "NewerFormat",
    "NoSuchIndex",
    "NotADatabase",
    "NotOneRow",
    "ParseError",
    "PickleDenied",
    "Query",
    "ReadOnly",
    "Record",
    "RecordList",
    "RecordTooLarge",
    "Snapshot",
    "SortBy",
    "SourceError",
    "StaleRecord",
    "StaleTable",
    "StreamError",
    "Table",
    "TooManyGroups",
    "TransactionError",
    "UniqueError",
    "UnreadableValue",
    "UnregisteredType",
    "UnsupportedKey",
    "UnsupportedValue",
    "Watch",
    "WrongClass",
    "copy",
    "count",
    "counters",
    "digest",
    "dumps",
    "export_to",
    "import_from",
    "json_bytes",
    "json_dumps",
    "key_of",
    "loads",
    "open",
    "parse",
    "register",
    "rename_classes",
    "set_threads",
    "table_of",
    "to_builtin",
    "validate",
    "view",
]


def __getattr__(name: str) -> object:
    """Import what many programs do not use when it is used."""
    if name == "Cache":
        from pellucid.cache import Cache

        return Cache
    if name == "digest":
        from pellucid.digests import digest

        return digest
    raise AttributeError(
        f"module 'pellucid' has no attribute {name!r}", name=name, obj=_sys.modules[__name__]
    )


def _reopen(path: str, mode: str, options: dict[str, object]) -> Database:
    """Open the database of a pickled handle."""
    return open(path, mode, **options)  # type: ignore[arg-type]


def _meet_ipython() -> None:
    """Tell IPython how records are shown."""
    from pellucid.look import notebook

    notebook.register()


if "IPython" in _sys.modules:
    _meet_ipython()

# A later import of the package, if it was dropped from sys.modules, gives these very modules.
_imported(_sys.modules[__name__])
