"""This module defines every exception and warning of pellucid.

Each exception is also the built-in that a caller would catch without knowing pellucid. Two cases are plain
built-ins, as with a dict or an object: a missing key is a `KeyError`, and a missing field is a `KeyError` or
an `AttributeError`.

    Error
    |-- UnsupportedKey          TypeError        a key that has no place in the order
    |-- UnsupportedValue        TypeError        a value that cannot be stored as it is
    |-- WrongClass              TypeError        a value or a record that is not of the class of its table
    |-- RecordTooLarge          ValueError       a record beyond 4 GiB, or nested deeper than 64
    |-- CorruptRecord           ValueError       bytes that are not a record
    |-- PickleDenied            ValueError       a stored pickle that the policy does not allow
    |-- UnregisteredType        LookupError      a stored object whose class is not registered
    |-- UnreadableValue         ValueError       a stored object that could not be made
    |-- ParseError              ValueError       a text that is not an expression
    |-- StaleRecord             ReferenceError   a record of a closed snapshot or database
    |-- StaleTable              ReferenceError   a table that has been dropped
    |-- StreamError             ValueError       columns that end early or are damaged
    |-- SourceError             ValueError       a file of another program that cannot be imported
    |-- HistoryGone             LookupError      changes that are not kept any more
    |-- UniqueError             ValueError       a value that another row has in a unique index
    |-- NoSuchIndex             LookupError      an index that was never created, or was dropped
    |-- IndexNotReady           RuntimeError     an index that does not have all rows yet
    |-- NotOneRow               LookupError      `one()` on a query with no row, or with more than one
    |-- TooManyGroups           ValueError       a group-by that needs more memory than it may use
    |-- ReadOnly                TypeError        a change of something that cannot be changed
    |-- Closed                  ValueError       a handle used after close
    |-- Busy                    TimeoutError     a lock that another process or thread holds
    |-- LeaseLost               TimeoutError     a claim of a row whose lease has run out
    |-- TransactionError        RuntimeError     a transaction used in another thread, or after its end
    |-- CommitUnknown           ConnectionError  a write to a server that may be stored, or not
    `-- DatabaseError           OSError          the file itself
        |-- NotADatabase                         a file of another program
        |-- DatabaseCorrupt                      truncated or damaged
        |-- NewerFormat                          written by a newer release
        `-- DiskFull                             no space left for the write
    DatabaseWarning             UserWarning      a problem of a database that works
    LostCommitsWarning          UserWarning      the last commits are lost, or a copy lacks them
    NetworkFilesystemWarning    UserWarning      a database whose locks may not work
"""

__all__ = [
    "Busy",
    "Closed",
    "CommitUnknown",
    "CorruptRecord",
    "DatabaseCorrupt",
    "DatabaseError",
    "DatabaseWarning",
    "DiskFull",
    "Error",
    "HistoryGone",
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
    "ReadOnly",
    "RecordTooLarge",
    "StaleRecord",
    "StaleTable",
    "StreamError",
    "TooManyGroups",
    "TransactionError",
    "UniqueError",
    "UnreadableValue",
    "UnregisteredType",
    "UnsupportedKey",
    "UnsupportedValue",
    "WrongClass",
]


class Error(Exception):
    """The base of all exceptions of pellucid."""


class UnsupportedKey(Error, TypeError):
    """A key that cannot be stored: it has a wrong type, or is NaN. The message names the place in the key."""


class UnsupportedValue(Error, TypeError):
    """A value that cannot be stored as it is. The message names its path and says what to do."""


class WrongClass(Error, TypeError):
    """A value of another class than that of its table, or a record that makes no instance of that class."""


class RecordTooLarge(Error, ValueError):
    """A value beyond the limits of a record: 4 GiB, and 64 levels of containers."""


class CorruptRecord(Error, ValueError):
    """Bytes that are not a record. The message names the table, the key and the offset."""


class PickleDenied(Error, ValueError):
    """A stored pickle that the pickle policy of the database does not allow."""


class UnregisteredType(Error, LookupError):
    """A stored object whose class is not registered in this process."""


class UnreadableValue(Error, ValueError):
    """A stored object whose decode function, or what its pickle calls, raised `AttributeError` or `KeyError`.

    That error is its `__cause__`: passed on as it is, it would say that the record has no such field.
    """


class ParseError(Error, ValueError):
    """A text that is not an expression. The message says what was expected, and shows the place.

    `line` and `column` count from 1. A column is a character.
    """

    line: int
    column: int


class StaleRecord(Error, ReferenceError):
    """A record of a snapshot or database that has been closed."""


class StaleTable(Error, ReferenceError):
    """A table that this or another process dropped after this handle was made."""


class StreamError(Error, ValueError):
    """Columns that end early or are damaged. Nothing of them was stored."""


class SourceError(Error, ValueError):
    """A file of another program that cannot be imported: unknown, damaged, or changed while it was read."""


class ReadOnly(Error, TypeError):
    """A change of something read-only: a snapshot, a database opened with `r`, a view of bytes."""


class Closed(Error, ValueError):
    """A database, snapshot or iterator that was used after it was closed."""


class Busy(Error, TimeoutError):
    """A lock that another process or thread held for longer than the timeout."""


class LeaseLost(Error, TimeoutError):
    """A claim whose lease has run out, or that has ended. Nothing was written.

    Another caller may have the row.
    """


class TransactionError(Error, RuntimeError):
    """A transaction that was used in another thread, or after its end."""


class CommitUnknown(Error, ConnectionError):
    """A write to a server whose connection ended before the answer came: it may be stored, or not.

    It is raised only if the server cannot be asked afterwards. Read the rows to find out, and write
    again if they are not there.
    """


class HistoryGone(Error, LookupError):
    """Changes that a watch asked for and that are not kept any more.

    `since` is the version after which the watch was to begin. `oldest` is the oldest version after which all
    changes are kept.
    """

    since: int
    oldest: int


class UniqueError(Error, ValueError):
    """A value that another row has in a unique index. Nothing was written.

    `index` is the name of the index. `value` is the value of both rows. `key` is the key of the refused row,
    and `existing_key` is the key of the row that has the value.

    If `in_batch` is true, both rows are of the refused batch (`extend`, `update`, the changes of a query),
    and neither was written. For a batch, `position` says which of its rows was refused, counted from 0.
    Otherwise, `position` is None.
    """

    index: str
    value: object
    key: object
    existing_key: object
    in_batch: bool
    position: int | None


class NoSuchIndex(Error, LookupError):
    """An index that was never created, or that this or another process dropped."""


class IndexNotReady(Error, RuntimeError):
    """An index that does not have all rows yet: its build is running, or was interrupted."""


class NotOneRow(Error, LookupError):
    """A query whose `one` was called, and which has no row, or more than one."""


class TooManyGroups(Error, ValueError):
    """A query whose groups need more memory than a query may use: 1 GiB."""


class DatabaseError(Error, OSError):
    """A file that pellucid cannot open, read or write."""


class NotADatabase(DatabaseError):
    """A path to something that is not a pellucid database."""


class DatabaseCorrupt(DatabaseError):
    """A database file that is truncated or damaged."""


class NewerFormat(DatabaseError):
    """A database that only a newer release of pellucid can read."""


class DiskFull(DatabaseError):
    """A write that found no space left. The transaction was dropped; everything before it is intact."""


class DatabaseWarning(UserWarning):
    """The database works, but has a problem that you should know about.

    Examples: its log stays beside it, it has no lock file, or an old snapshot keeps its pages. The warning is
    also issued for a call that may not do what you mean: `table.update(age=5)`.
    """


class LostCommitsWarning(UserWarning):
    """A database that lost its last commits in a power cut, or that was copied without its log."""


class NetworkFilesystemWarning(UserWarning):
    """A database whose locks may not work: it is on a network file system, or open in another container."""
