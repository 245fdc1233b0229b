"""What a table reads from and writes to: a database on a server, or a snapshot of one."""

from __future__ import annotations

import contextlib
import weakref
from typing import TYPE_CHECKING, Any

from pellucid._native import ServerCodec, ServerGate
from pellucid.errors import ReadOnly
from pellucid.postgres.pool import Connections
from pellucid.postgres.schema.catalog import Catalog
from pellucid.postgres.schema.layout import Layout, Making
from pellucid.postgres.session import Parameters, Rows, Session, Statement
from pellucid.postgres.transaction import Running
from pellucid.postgres.url import Place

if TYPE_CHECKING:
    from pellucid.postgres.table.binding import Standing
    from pellucid.postgres.table.sequence import Block

FROZEN = "this belongs to a snapshot, which does not change; write through the database"


class Source:
    """What the tables of a database or a snapshot ask it for; only a database writes."""

    _is_snapshot: bool
    _mode: str
    _place: Place
    _codec: ServerCodec
    _catalog: Catalog
    _connections: Connections
    _closed: bool
    # How long to wait for a lock, in seconds.
    _timeout: float
    # Held while a connection is used that threads share.
    _lock: contextlib.AbstractContextManager[Any]
    # Grows when a layout changes that a handle may have, and when the source is closed.
    _epoch: int
    # How often a table was dropped or renamed here, and the handles on tables that are not there yet.
    _names_changed: int
    _pending: weakref.WeakValueDictionary[int, Standing]
    # Numbers for append(), by the id of the table.
    _blocks: dict[int | None, Block]

    def _check_open(self) -> None:
        """Raise `Closed` after `close`."""
        raise NotImplementedError

    def _check_writable(self) -> None:
        """Raise where nothing can be written."""
        raise NotImplementedError

    def _running(self) -> Running | None:
        """Return the caller's transaction; None if it has none."""
        raise NotImplementedError

    def _gate(self) -> ServerGate:
        """Return the gate of rows that are read now."""
        raise NotImplementedError

    def _read(self, statement: bytes, parameters: Parameters = ()) -> Rows:
        """Run a statement that reads."""
        raise NotImplementedError

    def _layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, as it was read last; None if it was dropped."""
        raise NotImplementedError

    def _known_layout(self, number: int) -> Layout | None:
        """Return the layout of the table with this id, without asking the server; None if it is not known."""
        raise NotImplementedError

    def _layout_named(self, name: str) -> Layout | None:
        """Return the layout of the table with this name as the caller sees it now."""
        raise NotImplementedError

    def _learn_up_to(self, count: int) -> None:
        """Learn the shapes of other clients, if there are `count` of them."""
        raise NotImplementedError

    def _scanning(self) -> tuple[Session, bytes]:
        """Return the connection of a snapshot, and a name for a cursor."""
        raise NotImplementedError

    def _write(self, statements: list[Statement]) -> list[Rows]:
        """Run statements that write, in the caller's transaction or in one of their own."""
        raise ReadOnly(FROZEN)

    def _layout_anew(self, number: int) -> Layout | None:
        """Read the layout of a table again."""
        raise ReadOnly(FROZEN)

    def _forget_layout(self, number: int) -> None:
        """Read the layout of a table again in the next transaction; this one sees an older state."""

    def _note_layout(self, layout: Layout) -> None:
        """Take a layout as the present one, after this client has changed it."""
        raise ReadOnly(FROZEN)

    def _create_table(self, name: str, making: Making) -> Layout:
        """Create a table, in the transaction that runs or in one of its own."""
        raise ReadOnly(FROZEN)

    def _admit(self, shapes: list[bytes]) -> list[int] | None:
        """Return the ids of shapes, once the server has them; None if it cannot be asked now."""
        raise ReadOnly(FROZEN)

    def _next_ints(self, layout: Layout, least: int, wanted: int, needed: int) -> tuple[int, int] | None:
        """Take numbers for rows; return the first one, and how many there are."""
        raise ReadOnly(FROZEN)

    def transaction(self) -> Any:
        """Return a transaction, as a context manager."""
        raise ReadOnly(FROZEN)
