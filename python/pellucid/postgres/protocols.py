"""What the parts of a table on a server need of each other, as Protocols.

A table holds its parts as fields (`table/table.py`) and inherits none of them. A database, a snapshot and
the past that a watch shows have their own `Connection` and `Tables`; all else is the same for the three.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from pellucid._native import ServerCodec, ServerValidity
from pellucid.postgres.pool import Pool
from pellucid.postgres.schema.layout import CreateOptions, Layout
from pellucid.postgres.schema.statements import Statements
from pellucid.postgres.session import Parameters, Rows, Session, Statement
from pellucid.postgres.url import Place

if TYPE_CHECKING:
    from pellucid.postgres.schema.catalog import Catalog
    from pellucid.postgres.schema.tables import LayoutCache
    from pellucid.postgres.table.sequence import Block
    from pellucid.postgres.transaction import Running

Entries = list[list[tuple[bytes, bytes | None]]]
"""The entries of one row: for each index its codes and their spellings."""

OverflowValues = Sequence[tuple[int, bytes]]
"""Values that are stored beside their record, each with its id."""


class Connection(Protocol):
    """How the statements of a table reach the server."""

    place: Place
    codec: ServerCodec
    pool: Pool
    # How long to wait for a lock, in seconds.
    timeout: float
    # How long rows are valid that are read outside of a transaction.
    committed: ServerValidity

    @property
    def is_snapshot(self) -> bool:
        """Whether all reads see one state, and nothing can be written."""

    @property
    def is_read_only(self) -> bool:
        """Whether the database was opened to read."""

    @property
    def lock(self) -> contextlib.AbstractContextManager[Any]:
        """Held while a connection is used that threads share."""

    def check_open(self) -> None:
        """Raise `Closed` after `close`."""

    def check_writable(self) -> None:
        """Raise where nothing can be written."""

    def running(self) -> Running | None:
        """Return the caller's transaction; None if it has none."""

    def validity(self) -> ServerValidity:
        """Return how long rows that are read now are valid."""

    def read(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement that reads."""

    def write(self, statements: list[Statement]) -> list[Rows]:
        """Run statements that write, in the caller's transaction or in one of their own."""

    def cursor(self) -> tuple[Session, bytes]:
        """Return the connection of a snapshot, and a name for a cursor."""

    def transaction(self) -> contextlib.AbstractContextManager[None]:
        """Return a transaction, as a context manager."""

    def locking(self) -> contextlib.AbstractContextManager[None]:
        """As `transaction`, for work that locks its one row before it reads it."""

    def change_locked(self, lock: Statement, change: Callable[[Rows], Statement | None]) -> bool:
        """Lock a row and change it, outside of a transaction, in two round trips; false if not done."""

    def learn_up_to(self, count: int) -> None:
        """Learn the shapes of other clients, if there are `count` of them."""

    def register_shapes(self, shapes: list[bytes]) -> list[int] | None:
        """Return the ids of shapes, once the server has them; None if it cannot be asked now."""


class Tables(Protocol):
    """The tables of the catalog, as the caller sees them now."""

    catalog: Catalog
    cache: LayoutCache
    # Numbers for append(), by the id of the table.
    blocks: dict[int | None, Block]

    def statements(self, layout: Layout) -> Statements:
        """Return the statements for a layout, the same ones for the same layout."""

    def layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, as it was read last; None if it was dropped."""

    def known_layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, without asking the server; None if it is not known."""

    def layout_named(self, name: str) -> Layout | None:
        """Return the layout of the table with this name as the caller sees it now."""

    def read_again(self, number: int) -> Layout | None:
        """Read the layout of a table again; None if it was dropped."""

    def forget(self, number: int) -> None:
        """Read the layout of a table again in the next transaction; this one sees an older state."""

    def note(self, layout: Layout) -> None:
        """Take a layout as the present one, after this client has changed it."""

    def create(self, name: str, options: CreateOptions) -> Layout:
        """Create a table, in the transaction that runs or in one of its own."""

    def next_ints(self, layout: Layout, least: int, wanted: int, needed: int) -> tuple[int, int] | None:
        """Take numbers for rows; return the first one, and how many there are."""


class RowStore(Protocol):
    """How the rows of one table are read and stored."""

    def get(self, key: Any) -> tuple[Any] | None:
        """Return the value of a key; None if it has none."""

    def put(self, key: Any, value: Any) -> None:
        """Store a value."""

    def put_many(self, pairs: Iterable[tuple[Any, Any]]) -> None:
        """Store rows in the transaction that runs; of two with one key, the later."""

    def setdefault(self, key: Any, default: Any) -> Any:
        """Return the value of a key; where it has none, store `default` first."""

    def put_if_absent(self, key: Any, value: Any) -> bool:
        """Store a value where the key has none; return whether it had none."""

    def compare_and_set(self, key: Any, expected: Any, value: Any) -> bool:
        """Store a value if that of the key equals `expected`; return whether it did."""

    def pop(self, key: Any) -> tuple[Any, Any] | None:
        """Delete a row, and return its key and its value."""

    def pop_last(self) -> tuple[Any, Any] | None:
        """Delete the last row, and return its key and its value."""

    def delete(self, key: Any) -> bool:
        """Delete a row; return whether there was one."""

    def clear(self) -> None:
        """Delete all rows."""

    def lock(self, k: bytes) -> bool:
        """Wait until no other transaction can change a row; false if there is no such row."""

    def fetch(self, code: bytes) -> tuple[bytes, int] | None:
        """Return the stored bytes and the version of a row; None if there is none."""

    def validity(self) -> ServerValidity:
        """Return how long rows that are read now are valid."""

    def swap(
        self,
        code: bytes,
        data: bytes,
        version: int,
        kept: list[int],
        values: list[tuple[int, bytes]],
        attempt: int,
    ) -> int | tuple[bytes, int] | None:
        """Store a changed record, if the row has the version that it was read at.

        Returns the new version; or what the row has now, with its version; or None if the row is gone.
        """

    def swap_many(self, rows: list[tuple[bytes, bytes, int]]) -> Rows:
        """As `swap`, for rows of code, data and version; return which were stored.

        Each is a stored key, and whether the row has, or had, overflow values.
        """

    def sweep(self, key: bytes, kept: Sequence[int], version: int) -> None:
        """Delete the overflow values that a row had before this version."""

    def delete_many(self, codes: list[bytes]) -> int:
        """Delete the rows with these stored keys; return how many there were."""


class IndexEntries(Protocol):
    """How the entries of indexes are kept in step with the rows."""

    def change(
        self, make: Callable[[Statements], list[Statement]], *, creates: bool = False
    ) -> list[Rows] | None:
        """Run statements that write, with those for the entries of their rows.

        None if there is no table yet, and none was to be created.
        """

    def of_row(
        self,
        sql: Statements,
        key: tuple[bytes, bytes | None],
        value: bytes,
        overflow: OverflowValues = (),
    ) -> Entries:
        """Return the entries of a row."""

    def copy(
        self,
        sql: Statements,
        rows: list[tuple[Any, ...]],
        overflow: dict[bytes, list[tuple[int, bytes]]],
        count: int,
    ) -> None:
        """Store rows that are not there yet by COPY, with their entries, in the transaction that runs.

        `count` is how many rows of the same call were stored before.
        """


class Reader(Protocol):
    """The rows of a query in one state of a table; the native module calls it."""

    def indexes(self) -> list[tuple[str, str, bool, bool]]:
        """Return name and definition of each index, whether it is unique, and whether its codes are short."""

    def totals(self, places: Sequence[int]) -> list[bool]:
        """Return whether each row has an entry in these indexes."""

    def count(self, predicates: Sequence[tuple[Any, ...]], limit: int | None) -> int:
        """Return how many rows have the predicates, up to a limit."""

    def rows(
        self,
        predicates: Sequence[tuple[Any, ...]],
        order: tuple[int, bool] | None,
        offset: int,
        limit: int | None,
        has_records: bool,
        is_kept: bool,
    ) -> None:
        """Begin to read rows, in the order of an index or of keys."""

    def page(self) -> Rows | None:
        """Return the next rows; None at the end."""

    def named(self, codes: Sequence[bytes]) -> Rows:
        """Return the rows under these keys, in the order of the keys."""

    def large(self, number: int) -> bytes | None:
        """Return an overflow value of the rows that were read last; None if it is gone."""

    def check(self) -> None:
        """Raise where the transaction or the snapshot that the rows were read in has ended."""

    def end(self) -> None:
        """Give the connection back."""
