"""What can go wrong, and as which class?

Every exception that pellucid raises of its own is in this table. Each is also the built-in that a
caller would catch without knowing pellucid; a missing key is plain `KeyError`, a missing field plain
`KeyError` or `AttributeError`, as with a dict or an object.

    Error
    |-- UnsupportedKey          TypeError        a key that has no place in the order
    |-- UnsupportedValue        TypeError        a value that cannot be stored as it is
    |-- WrongClass              TypeError        a value, or a record, that is not of its table's class
    |-- RecordTooLarge          ValueError       a record beyond 4 GiB, or nested deeper than 64
    |-- CorruptRecord           ValueError       bytes that are not a record
    |-- PickleDenied            ValueError       a stored pickle that the policy does not allow
    |-- UnregisteredType        LookupError      a stored object whose class is not registered
    |-- UnreadableValue         ValueError       a stored object that could not be made
    |-- ParseError              ValueError       a text that is no expression
    |-- StaleRecord             ReferenceError   a record of a closed snapshot or database
    |-- StaleTable              ReferenceError   a table that was dropped since
    |-- StreamError             ValueError       columns from elsewhere that broke off or are damaged
    |-- HistoryGone             LookupError      changes that are not kept any more
    |-- UniqueError             ValueError       a value that another row has in a unique index
    |-- NoSuchIndex             LookupError      an index that was never created, or was dropped
    |-- IndexNotReady           RuntimeError     an index that has not been built to its end
    |-- NotOneRow               LookupError      a query that should have one row, and has none or many
    |-- TooManyGroups           ValueError       a group-by that memory has no room for
    |-- ReadOnly                TypeError        a change of something that cannot be changed
    |-- Closed                  ValueError       a handle used after close
    |-- Busy                    TimeoutError     a lock that others hold
    |-- TransactionError        RuntimeError     a transaction used where it does not belong
    `-- DatabaseError           OSError          the file itself
        |-- NotADatabase                         a foreign file
        |-- DatabaseCorrupt                      truncated or damaged
        |-- NewerFormat                          written by a newer release
        `-- DiskFull                             no space left for the write
    DatabaseWarning             UserWarning      what is to be known of a database that works
    LostCommitsWarning          UserWarning      the last commits are gone, or a copy lacks them
    NetworkFilesystemWarning    UserWarning      a database where locks may not hold
"""

__all__ = [
    "Busy",
    "Closed",
    "CorruptRecord",
    "DatabaseCorrupt",
    "DatabaseError",
    "DatabaseWarning",
    "DiskFull",
    "Error",
    "HistoryGone",
    "IndexNotReady",
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
    """The base of everything that pellucid raises of its own."""


class UnsupportedKey(Error, TypeError):
    """A key that cannot be stored: of another type, or NaN; the message names the place in it."""


class UnsupportedValue(Error, TypeError):
    """A value that cannot be stored as it is; the message names its path and the way out."""


class WrongClass(Error, TypeError):
    """A value of another class than its table's, or a record that does not make an instance of that."""


class RecordTooLarge(Error, ValueError):
    """A value beyond the limits of a record: 4 GiB, or containers nested deeper than 64."""


class CorruptRecord(Error, ValueError):
    """Bytes that are not a record; the message names the table, the key and the offset."""


class PickleDenied(Error, ValueError):
    """A stored pickle that the database's pickle policy does not allow to be loaded."""


class UnregisteredType(Error, LookupError):
    """A stored object whose class has not been registered in this process."""


class UnreadableValue(Error, ValueError):
    """A stored object whose decode function, or what its pickle calls, raised `AttributeError` or `KeyError`.

    That error is its `__cause__`: passed on as it is, it would say that the record has no such field.
    """


class ParseError(Error, ValueError):
    """A text that is no expression; the message says what was expected, and shows the place.

    `line` and `column`, in characters, are counted from 1.
    """

    line: int
    column: int


class StaleRecord(Error, ReferenceError):
    """A record of a snapshot or a database that has been closed."""


class StaleTable(Error, ReferenceError):
    """A table that was dropped, here or by another process, after this handle on it was made."""


class StreamError(Error, ValueError):
    """Columns from elsewhere that broke off or are damaged; nothing of them was stored."""


class ReadOnly(Error, TypeError):
    """A change of what cannot be changed: a snapshot, a database opened `r`, a view of bytes."""


class Closed(Error, ValueError):
    """A database, snapshot or iterator used after it was closed."""


class Busy(Error, TimeoutError):
    """A lock that another process or thread held for longer than the timeout."""


class TransactionError(Error, RuntimeError):
    """A transaction used where it does not belong: another thread, or after its end."""


class HistoryGone(Error, LookupError):
    """Changes to be watched that are not kept any more.

    `since` is the version behind which they were asked for, `oldest` the oldest behind which all are there.
    """

    since: int
    oldest: int


class UniqueError(Error, ValueError):
    """A value that another row has in a unique index; nothing was written.

    `index` is the name of the index, `value` what both would have, `key` the key of the row that was
    refused, `existing_key` that of the row that has the value. Where `in_batch` is true, both are rows of the
    batch that was refused (`extend`, `update`, the changes of a query): neither was written. Of a batch,
    `position` says which of its rows was refused, counted from 0; else it is None.
    """

    index: str
    value: object
    key: object
    existing_key: object
    in_batch: bool
    position: int | None


class NoSuchIndex(Error, LookupError):
    """An index that was never created, or was dropped, here or by another process."""


class IndexNotReady(Error, RuntimeError):
    """An index that has not all rows yet: it is being built, or its build was broken off."""


class NotOneRow(Error, LookupError):
    """A query of which `one` row was asked, and which has none, or more than one."""


class TooManyGroups(Error, ValueError):
    """A query whose rows fall into so many groups that they take more memory than a query may: 1 GiB."""


class DatabaseError(Error, OSError):
    """The file cannot be opened, read or written."""


class NotADatabase(DatabaseError):
    """A path that holds something else than a pellucid database."""


class DatabaseCorrupt(DatabaseError):
    """A database file that is truncated or damaged."""


class NewerFormat(DatabaseError):
    """A database that only a newer release of pellucid can read."""


class DiskFull(DatabaseError):
    """No space was left for a write; the transaction was dropped, all before it is intact."""


class DatabaseWarning(UserWarning):
    """Something to know of a database that works: its log stays there, no lock file, an old snapshot.

    Or of a call that does what it says, and perhaps not what was meant: `table.update(age=5)`.
    """


class LostCommitsWarning(UserWarning):
    """A database whose last commits a power cut took, or that was copied without its log."""


class NetworkFilesystemWarning(UserWarning):
    """A database whose locks may not hold: on a network file system, or open in another container."""
