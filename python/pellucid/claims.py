"""Claims: one caller gets a row of a table for some time, as a worker gets a job of a queue.

A claim is a change of fields and a lease, in one commit. The lease is in the row itself, in the field
`_lease`: until when it holds, a token that no other claim has, and the former values of the fields. So it
goes with the row into a copy, and holds for every process that reads the row. A lease that has run out is
undone by the next claim that looks. Not for results of functions, which `pellucid.cache` has.

A row is read and decided about first, and then changed if it still is the same (`update_same`). In files and
memory that holds the writer lock for the change alone, and callers who are after the same rows take the next
one. On a server, all is in one transaction.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from collections.abc import Callable, Mapping
from datetime import timedelta
from math import isfinite
from time import monotonic, time
from types import TracebackType
from typing import Any

from pellucid import KEY, Expression, F, Record, Table
from pellucid._native import _claim_first, _update_same
from pellucid.classes import EXPIRES, LEASE
from pellucid.errors import (
    CorruptRecord,
    DatabaseWarning,
    Error,
    HistoryGone,
    LeaseLost,
    RecordTooLarge,
    StaleRecord,
    TransactionError,
    UniqueError,
)
from pellucid.handles import Recent, untyped
from pellucid.seconds import seconds_of

INDEX = "_leases"
# Leases that have run out are looked for this often, and always where there is nothing else to claim.
LOOK_SECONDS = 0.1
ENDED_COUNT_MAX = 100
# In seconds since 1970: a `_lease` that ends later is another program's, and its end is not waited for.
LATEST = 1e12
# What is wrong with one row, and not with the others.
OF_A_ROW = (UniqueError, RecordTooLarge, CorruptRecord)
# Rows that an attempt reads: first 2, which takes a third of the time of 8, and then 8, because other callers
# may have taken the first ones.
FOUND_COUNT, MORE_COUNT = 2, 8
LOOKED = Recent(LOOK_SECONDS)


def claim(
    table: Any,
    where: Any,
    given: Any,
    order_by: Any,
    lease: float,
    timeout: float | None,
    cls: type | None,
) -> Claim | None:
    """Do `table.claim`; `given` are the fields to set."""
    if cls is object:
        raise TypeError(
            f"a claim sets fields of a record, and table {table.name!r} was opened with type=object, whose "
            f"values are whole objects: if they are dicts of plain values, claim from a handle without it, "
            f"db.table({table.name!r})"
        )
    fields = checked(given)
    check_lease(lease)
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout={timeout} is no number of seconds from 0 on; None waits without limit")
    if timeout != 0 and table._is_in_transaction:
        raise TransactionError(
            "claim() in a transaction sees no row that another caller puts meanwhile, and does not wait: "
            "leave out timeout=, or claim outside of the transaction"
        )
    # What the fields of a typed table may be, its class says; all else is done with records.
    rows = table if cls is None else untyped(table)
    query = (table if isinstance(table, Table) else rows).where(where)
    if order_by is not None:
        query = query.order_by(*(order_by if is_several(order_by) else (order_by,)))
    query = query.limit(FOUND_COUNT if isinstance(table, Table) else 1)
    queue = Queue(table, rows, query, fields, lease)
    found: Claim | None = while_open(table, queue.next)
    if found is None and timeout != 0:
        stop = None if timeout is None else monotonic() + timeout
        found = while_open(table, lambda: queue.wait(stop))
    return found


def is_several(order_by: Any) -> bool:
    """Return whether these are several expressions or paths; a tuple of names is one path."""
    if isinstance(order_by, tuple):
        return not all(isinstance(step, str | int) for step in order_by)
    return isinstance(order_by, list)


def check_lease(lease: float) -> None:
    """Raise `ValueError` for what is no time of a lease."""
    if not (lease > 0 and isfinite(lease)):
        raise ValueError(
            f"lease={lease} is no number of seconds above 0, after which the row can be claimed anew"
        )


def checked(given: Any, more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return the fields to set: constants, and expressions that are computed from the row."""
    if given is None and more is not None:
        given = {}
    if not isinstance(given, Mapping):
        raise TypeError(f"the fields to set are a dict, such as {{'state': 'running'}}, not {given!r}")
    fields: dict[str, Any] = {**given, **(more or {})}
    for name in fields:
        if not is_settable(name):
            raise ValueError(
                f"{name!r} cannot be set here: a name is a str without dots, {LEASE!r} is for claims, and "
                f"{EXPIRES!r} for rows that expire"
            )
    return fields


def is_settable(name: object) -> bool:
    """Return whether a claim may set a field of this name."""
    return isinstance(name, str) and "." not in name and name not in (LEASE, EXPIRES)


def update_same(
    table: Any, rows: Any, key: Any, row: Any, fields: Mapping[str, Any], removed: tuple[str, ...] = ()
) -> Any:
    """Set fields of a row and remove others, and return it; None if it is not as it was read any more.

    `rows` is `table` without its class, and `row` a record. Raises `WrongClass` for what the class refuses.
    """
    if isinstance(table, Table):
        return _update_same(table, row, {(name,): value for name, value in fields.items()}, removed)
    # The transaction that has read the row sees no changes of others.
    by_query = {
        (name,): value
        for name, value in fields.items()
        if isinstance(value, Expression) or (table is not rows and name != LEASE)
    }
    if by_query:
        # What is computed is computed from the row as it was.
        table.where(KEY == key).update(by_query)  # noqa: SIM300 - `KEY` is no constant
        row = rows[key]
    row.update({name: value for name, value in fields.items() if (name,) not in by_query})
    for name in removed:
        del row[name]
    return row


def run(table: Any, function: Callable[[], Any]) -> Any:
    """Call a function that ends with `update_same`: on a server in a transaction."""
    return while_open(table, function) if isinstance(table, Table) else table._run(function)


def while_open(table: Any, function: Callable[[], Any]) -> Any:
    """Call a function that reads rows; raise `Closed` if another thread closes the database meanwhile."""
    try:
        return function()
    except StaleRecord:
        len(table)
        raise


class Queue:
    """The rows of a table that can be claimed, in order."""

    def __init__(self, table: Any, rows: Any, first: Any, fields: dict[str, Any], lease: float) -> None:
        self._table = table
        self._rows = rows
        self._first = first
        self._fields = fields
        self._lease = lease

    def next(self) -> Claim | None:
        """Claim the first row; None if there is none now."""
        is_due = self._table not in LOOKED
        if is_due:
            self._look()
        found = self._take()
        if found is None and not is_due and self._look():
            found = self._take()
        if found is not None and is_due:
            self._index()
        return found

    def _look(self) -> Any:
        """Undo leases that have run out; return how many there were."""
        LOOKED.add(self._table)
        table, now, until = self._rows, time(), F[LEASE].until
        keys = list(table.where(until <= now).limit(ENDED_COUNT_MAX).keys())

        def end(key: Any) -> bool:
            return undo(table, key, lambda lease: has_run_out(lease, now))

        try:
            return table._run(lambda: sum(map(end, keys))) if keys else 0
        except OF_A_ROW:
            return sum(self._end_alone(key, end) for key in keys)

    def _end_alone(self, key: Any, end: Callable[[Any], bool]) -> bool:
        """Undo one lease; a row that refuses its former values does not keep others from being claimed."""
        try:
            done: bool = self._rows._run(lambda: end(key))
        except OF_A_ROW as error:
            warnings.warn(
                f"the lease of row {key!r} of table {self._table.name!r} has run out, and the row does not "
                f"take its former values back, so that it cannot be claimed: {error}",
                DatabaseWarning,
                stacklevel=2,
            )
            return False
        return done

    def _index(self) -> None:
        """Create the index that finds leases: it has entries for the claimed rows alone."""
        table = self._rows
        if not table._is_in_transaction and INDEX not in [index.name for index in table.indexes()]:
            # The claim is committed: without the index it holds as well. Another client may be at it, or this
            # one may not be allowed to.
            with contextlib.suppress(Error):
                table.create_index(INDEX, F[LEASE].until)

    def _take(self) -> Claim | None:
        take = self._take_natively if isinstance(self._table, Table) else self._take_by_verbs
        query, is_of_free = self._first, False
        while True:
            found, is_lost, has_claimed = take(query)
            if found is not None:
                return found
            if has_claimed and not is_of_free:
                # The condition is true of claimed rows, too.
                query, is_of_free = query.where(~F[LEASE].exists()), True
            elif not is_lost:
                return None
            query = query.limit(MORE_COUNT)

    def _take_natively(self, query: Any) -> tuple[Claim | None, bool, bool]:
        token, until = new_token(), time() + self._lease
        found, is_lost, has_claimed = _claim_first(query, self._fields, {"until": until, "token": token})
        if found is None:
            return None, is_lost, has_claimed
        claimed = self._claim(*found, token, until)
        return claimed, is_lost or claimed is None, has_claimed

    def _take_by_verbs(self, query: Any) -> tuple[Claim | None, bool, bool]:
        claimed: tuple[Claim | None, bool, bool] = self._table._run(lambda: self._take_first(query))
        return claimed

    def _take_first(self, query: Any) -> tuple[Claim | None, bool, bool]:
        """Claim a row on a server, in a transaction."""
        table, rows, has_claimed = self._table, self._rows, False
        for key, row in query.items():
            if not isinstance(row, Record):
                raise TypeError(
                    f"claim() sets fields of records, and row {key!r} of table {table.name!r} is of type "
                    f"{type(row).__name__}: let the condition be about a field"
                )
            if LEASE in row:
                has_claimed = True
                continue
            # The row is changed in several steps, and a record would read large values when they are gone.
            before = row.to_dict()
            constants = [name for name, value in self._fields.items() if not isinstance(value, Expression)]
            former = {name: before[name] for name in constants if name in before}
            token, until = new_token(), time() + self._lease
            facts = {"until": until, "token": token, "former": former}
            if len(former) < len(constants):
                facts["missing"] = [name for name in constants if name not in former]
            changed = update_same(table, rows, key, row, {**self._fields, LEASE: facts})
            return self._claim(key, changed, token, until), False, False
        return None, False, has_claimed

    def _claim(self, key: Any, row: Any, token: int, until: float) -> Claim | None:
        """Return the claim of a row; None if another program has taken the row from it already."""
        table, rows, held = self._table, self._rows, (token, self._lease, until)
        if table is not rows:
            instance = table.get(key)
            if isinstance(instance, dict):
                instance.pop(LEASE, None)
            return Claim(table, rows, key, instance, held) if held_by(rows.get(key), token) else None
        while True:
            try:
                value = row.to_dict()
            except StaleRecord:
                # A large value was replaced by a program that did not claim the row.
                row = table.get(key)
                if held_by(row, token):
                    continue
                return None
            del value[LEASE]
            return Claim(table, rows, key, value, held)

    def wait(self, stop: float | None) -> Claim | None:
        """Claim the first row as soon as there is one; None if there is none until a moment."""
        table = self._rows
        while True:
            # From here on, no commit is missed.
            version = table.watch(timeout=0).version
            found = self.next()
            left = None if stop is None else stop - monotonic()
            if found is not None or (left is not None and left <= 0):
                return found
            until = F[LEASE].until
            for row in table.where(until > 0, until < LATEST).order_by(until).limit(1):
                # A lease that cannot be undone has run out long ago.
                next_end = max(LOOK_SECONDS, float(row[LEASE].until) - time())
                left = next_end if left is None else min(left, next_end)
            try:
                next(table.watch(since=version, timeout=left), None)
            except HistoryGone:
                # There were many commits, so there may be a row.
                continue


def new_token() -> int:
    """Return a number that no other claim has."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def held_by(row: Any, token: int) -> bool:
    """Return whether a row has the lease with this token."""
    lease = row.get(LEASE) if isinstance(row, Record) else None
    return isinstance(lease, Record) and bool(lease.get("token") == token)


def has_run_out(lease: Any, now: float) -> bool:
    """Return whether a lease has run out; False for a `_lease` that is no lease."""
    until = lease.get("until")
    return isinstance(until, int | float) and until <= now


def undo(rows: Any, key: Any, is_meant: Callable[[Any], bool]) -> bool:
    """Give the fields that a claim has set their former values; False if the row has no such lease."""
    while True:
        row = rows.get(key)
        lease = row.get(LEASE) if isinstance(row, Record) else None
        if not isinstance(lease, Record) or not is_meant(lease):
            return False
        try:
            facts = lease.to_dict()
        except StaleRecord:
            # Another caller has replaced a large value.
            continue
        missing = [name for name in facts.get("missing", ()) if name in row]
        if update_same(rows, rows, key, row, facts.get("former", {}), (*missing, LEASE)) is not None:
            return True


class Claim:
    """A claimed row: what `table.claim` returns.

    As a context manager, it gives the row back at the end of the block, unless the block has finished or
    deleted it. A forked child that leaves the block gives nothing back. Every method raises `LeaseLost` once
    the lease has run out: another caller may have the row.

    >>> import pellucid
    >>> from pellucid import F
    >>> jobs = pellucid.open(":memory:").table("jobs")
    >>> jobs.append({"state": "new", "n": 6})
    0
    >>> with jobs.claim(F.state == "new", {"state": "running"}) as job:
    ...     job.finish(state="done", result=job.value["n"] * 7)
    >>> jobs[0]
    {'state': 'done', 'n': 6, 'result': 42}
    """

    __slots__ = ("_has_ended", "_lease", "_process", "_rows", "_table", "_token", "key", "until", "value")

    def __init__(self, table: Any, rows: Any, key: Any, value: Any, held: tuple[int, float, float]) -> None:
        self._table = table
        self._rows = rows
        self._token, self._lease, self.until = held
        self._has_ended = False
        self._process = os.getpid()
        self.key = key
        self.value = value

    def __repr__(self) -> str:
        state = "ended" if self._has_ended else f"for {max(0.0, self.until - time()):.0f} s"
        return f"<pellucid.claims.Claim of {self.key!r}, {state}>"

    def finish(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set fields of the row, and end the lease, in one commit."""
        self._change(checked(fields, more), (LEASE,))
        self._end()

    def update(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set fields of the row, and keep it.

        When the lease runs out, those that the claim has set get their former values, and the others stay.
        """
        self._change(checked(fields, more))

    def _change(self, fields: dict[str, Any], removed: tuple[str, ...] = ()) -> None:
        def change() -> None:
            is_done = False
            while not is_done:
                # Another caller may change a field of the row meanwhile.
                changed = update_same(self._table, self._rows, self.key, self._row(), fields, removed)
                is_done = changed is not None

        run(self._table, change)

    def delete(self) -> None:
        """Delete the row."""

        def delete() -> None:
            self._row()
            del self._rows[self.key]

        self._table._run(delete)
        self._end()

    def give_back(self) -> None:
        """End the lease, and give the fields that the claim has set their former values."""

        def give_back() -> None:
            self._row()
            undo(self._rows, self.key, self._is_own)

        run(self._table, give_back)
        self._end()

    def renew(self, lease: float | timedelta | None = None) -> None:
        """Let the lease hold from now for as long as at first, or for `lease` seconds."""
        seconds = self._lease if lease is None else seconds_of(lease, "lease")
        check_lease(seconds)
        until = time() + seconds

        def renew() -> None:
            while True:
                row = self._row()
                facts = {**row[LEASE].to_dict(), "until": until}
                if update_same(self._rows, self._rows, self.key, row, {LEASE: facts}) is not None:
                    return

        run(self._table, renew)
        # A transaction may be rolled back, and an early end is the safe side.
        if not self._table._is_in_transaction:
            self.until = until

    def _is_own(self, lease: Any) -> bool:
        return bool(lease.get("token") == self._token)

    def _row(self) -> Any:
        """Return the row; raise `LeaseLost` where it is not the caller's any more."""
        if self._has_ended:
            raise self._lost(
                "was claimed, and the claim has ended: finish(), delete() or give_back() was called",
                "claim a row again to change it",
            )
        row = self._rows.get(self.key)
        if row is None:
            raise self._lost("was deleted while it was claimed")
        if not held_by(row, self._token):
            raise self._lost(
                "has no lease of this claim any more: it was finished or given back, or the lease ran out "
                "and the row was taken back, or another program has put the row anew"
            )
        now = time()
        if has_run_out(row[LEASE], now):
            late = now - row[LEASE]["until"]
            raise self._lost(f"was claimed, and the lease ran out {late:.1f} s ago, before a renew()")
        return row

    def _lost(self, why: str, advice: str = "claim again, with a longer lease= if need be") -> LeaseLost:
        where = f"row {self.key!r} of table {self._table.name!r}"
        return LeaseLost(f"{where} {why}; nothing was written: {advice}")

    def _end(self) -> None:
        # A transaction may be rolled back, and the row is claimed again then: its lease says that.
        self._has_ended = not self._table._is_in_transaction

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._has_ended or self._process != os.getpid():
            return
        try:
            self.give_back()
        except LeaseLost:
            # The row was given back by the time that has run out.
            self._has_ended = True
