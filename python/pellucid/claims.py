"""Claims: one caller gets a row of a table for some time, as a worker gets a job of a queue.

A claim is a change of fields and a lease, in one commit. The lease is in the row itself, in the field
`_lease`: until when it holds, a token that no other claim has, and the former values of the fields. So it
goes with the row into a copy, and holds for every process that reads the row. A lease that has run out is
undone by the next claim that looks. Not for results of functions, which `pellucid.cache` has.

It uses the verbs of tables, so that files, memory and servers have the same claims. In files and memory, what
is done for each row (`Queue._take`, `Claim._change`) is native, and reads and writes the row once.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Mapping
from math import isfinite
from time import monotonic, time
from types import TracebackType
from typing import Any

from pellucid import KEY, Expression, F, Record, Table
from pellucid._native import _change_claimed, _claim_first
from pellucid.errors import Error, HistoryGone, LeaseLost, TransactionError

LEASE = "_lease"
INDEX = "_leases"
# Leases that have run out are looked for this often, and always where there is nothing else to claim.
LOOK_SECONDS = 0.1
ENDED_COUNT_MAX = 100
# When leases were looked for, by the id of the handle: it has no hash. Another one may have its id later.
LOOKED: dict[int, tuple[weakref.ref[Any], float]] = {}
LOOKED_COUNT_MAX = 1000


def claim(
    table: Any,
    where: Any,
    given: Any,
    order_by: Any,
    lease: float,
    timeout: float | None,
    is_typed: bool,
) -> Claim | None:
    """Do `table.claim`; `given` are the fields to set."""
    if is_typed:
        raise TypeError(
            f"a claim keeps its lease in the row, as the field {LEASE!r}, and the class of table "
            f"{table.name!r} has none: claim from a handle without type=, db.table({table.name!r})"
        )
    fields = Fields(given)
    check_lease(lease)
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout={timeout} is no number of seconds from 0 on; None waits without limit")
    if timeout != 0 and table._is_in_transaction:
        raise TransactionError(
            "claim() in a transaction sees no row that another caller puts meanwhile, and does not wait: "
            "leave out timeout=, or claim outside of the transaction"
        )
    query = table.where(where)
    if order_by is not None:
        query = query.order_by(*(order_by if isinstance(order_by, tuple | list) else (order_by,)))
    queue = Queue(table, query.limit(1), fields, lease)
    found = queue.next()
    if found is not None or timeout == 0:
        return found
    return queue.wait(None if timeout is None else monotonic() + timeout)


def check_lease(lease: Any) -> None:
    """Raise `ValueError` for what is no time of a lease."""
    if not (lease > 0 and isfinite(lease)):
        raise ValueError(
            f"lease={lease} is no number of seconds above 0, after which the row can be claimed anew"
        )


class Fields:
    """Fields to set: constants, and expressions that are computed from the row."""

    def __init__(self, given: Any) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(f"the fields to set are a dict, such as {{'state': 'running'}}, not {given!r}")
        self.given = dict(given)
        self.constants: dict[str, Any] = {}
        self.computed: dict[Any, Any] = {}
        for name, value in given.items():
            if not isinstance(name, str) or "." in name or name == LEASE:
                raise ValueError(
                    f"{name!r} is not the name of a field that can be set here: a str without dots"
                )
            (self.computed if isinstance(value, Expression) else self.constants)[name] = value

    def set(self, table: Any, key: Any, more: Mapping[str, Any]) -> Any:
        """Set them and more constants in a row, and return the row."""
        if self.computed:
            # All are computed from the row as it was.
            computed = {(name,): value for name, value in self.computed.items()}
            table.where(KEY == key).update(computed)  # noqa: SIM300 - `KEY` is no constant
        row = table[key]
        row.update({**self.constants, **more})
        return row


class Queue:
    """The rows of a table that can be claimed, in order."""

    def __init__(self, table: Any, first: Any, fields: Fields, lease: float) -> None:
        self._table = table
        self._first = first
        self._fields = fields
        self._lease = lease

    def next(self) -> Claim | None:
        """Claim the first row; None if there is none now."""
        handle, looked = LOOKED.get(id(self._table), (None, 0.0))
        is_due = handle is None or handle() is not self._table or monotonic() - looked >= LOOK_SECONDS
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
        if len(LOOKED) >= LOOKED_COUNT_MAX:
            LOOKED.clear()
        LOOKED[id(self._table)] = (weakref.ref(self._table), monotonic())
        table, now, until = self._table, time(), F[LEASE].until
        keys = list(table.where(until <= now).limit(ENDED_COUNT_MAX).keys())

        def end() -> int:
            return sum(undo(table, key, lambda lease: has_run_out(lease, now)) for key in keys)

        return table._run(end) if keys else 0

    def _index(self) -> None:
        """Create the index that finds leases: it has entries for the claimed rows alone."""
        table = self._table
        if not table._is_in_transaction and INDEX not in [index.name for index in table.indexes()]:
            # The claim is committed: without the index it holds as well. Another client may be at it, or this
            # one may not be allowed to.
            with contextlib.suppress(Error):
                table.create_index(INDEX, F[LEASE].until)

    def _take(self) -> Claim | None:
        table = self._table
        if not isinstance(table, Table):
            claimed: Claim | None = table._run(self._take_by_verbs)
            return claimed
        token = new_token()
        found = _claim_first(self._first, self._fields.given, self._lease, token)
        if found is False:
            # The condition is true of claimed rows, too.
            free = self._first.where(~F[LEASE].exists())
            found = _claim_first(free, self._fields.given, self._lease, token)
        if not found:
            return None
        key, value, until = found
        return Claim(table, key, value, (token, self._lease, until))

    def _take_by_verbs(self) -> Claim | None:
        table, lease = self._table, self._lease
        found = next(iter(self._first.items()), None)
        if found is not None and isinstance(found[1], Record) and LEASE in found[1]:
            # The condition is true of claimed rows, too.
            found = next(iter(self._first.where(~F[LEASE].exists()).items()), None)
        if found is None:
            return None
        key, row = found
        if not isinstance(row, Record):
            raise TypeError(
                f"claim() sets fields of records, and row {key!r} of table {table.name!r} is of type "
                f"{type(row).__name__}: let the condition be about a field"
            )
        constants = self._fields.constants
        # Plain values: a record would read its large values when they are gone.
        before = row.to_dict()
        former = {name: before[name] for name in constants if name in before}
        token, until = new_token(), time() + lease
        facts = {"until": until, "token": token, "former": former}
        if len(former) < len(constants):
            facts["missing"] = [name for name in constants if name not in former]
        value = self._fields.set(table, key, {LEASE: facts}).to_dict()
        del value[LEASE]
        return Claim(table, key, value, (token, lease, until))

    def wait(self, stop: float | None) -> Claim | None:
        """Claim the first row as soon as there is one; None if there is none until a moment."""
        table = self._table
        while True:
            # From here on, no commit is missed.
            version = table.watch(timeout=0).version
            found = self.next()
            left = None if stop is None else stop - monotonic()
            if found is not None or (left is not None and left <= 0):
                return found
            until = F[LEASE].until
            for row in table.where(until > 0).order_by(until).limit(1):
                next_end = max(0.0, row[LEASE].until - time())
                left = next_end if left is None else min(left, next_end)
            try:
                next(table.watch(since=version, timeout=left), None)
            except HistoryGone:
                # There were many commits, so there may be a row.
                continue


def new_token() -> int:
    """Return a number that no other claim has."""
    return int.from_bytes(os.urandom(8), "little") >> 1


def has_run_out(lease: Any, now: float) -> bool:
    """Return whether a lease has run out, unless another program has put what is none."""
    until = lease.get("until")
    return isinstance(until, int | float) and until <= now


def undo(table: Any, key: Any, is_meant: Callable[[Any], bool]) -> bool:
    """Give the fields that a claim has set their former values; False if the row has no such lease."""
    row = table.get(key)
    lease = row.get(LEASE) if isinstance(row, Record) else None
    if not isinstance(lease, Record) or not is_meant(lease):
        return False
    former = lease.to_dict()
    for name in former.get("missing", ()):
        if name in row:
            del row[name]
    row.update(former.get("former", {}))
    del row[LEASE]
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

    __slots__ = ("_has_ended", "_lease", "_process", "_table", "_token", "key", "until", "value")

    def __init__(self, table: Any, key: Any, value: dict[str, Any], held: tuple[int, float, float]) -> None:
        self._table = table
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
        self._change(Fields({**(fields or {}), **more}), ends=True)
        self._has_ended = True

    def update(self, fields: Mapping[str, Any] | None = None, /, **more: Any) -> None:
        """Set fields of the row, and keep it.

        When the lease runs out, those that the claim has set get their former values, and the others stay.
        """
        self._change(Fields({**(fields or {}), **more}), ends=False)

    def _change(self, fields: Fields, *, ends: bool) -> None:
        """Set fields of the row, and perhaps end the lease."""
        table, key = self._table, self.key

        def change() -> None:
            self._check()
            row = fields.set(table, key, {})
            if ends:
                del row[LEASE]

        is_native = isinstance(table, Table) and not self._has_ended
        if not (is_native and _change_claimed(table, key, self._token, fields.given, ends)):
            table._run(change)

    def delete(self) -> None:
        """Delete the row."""

        def delete() -> None:
            self._check()
            del self._table[self.key]

        self._table._run(delete)
        self._has_ended = True

    def give_back(self) -> None:
        """End the lease, and give the fields that the claim has set their former values."""

        def give_back() -> None:
            self._check()
            undo(self._table, self.key, self._is_own)

        self._table._run(give_back)
        self._has_ended = True

    def renew(self, lease: float | None = None) -> None:
        """Let the lease hold from now for as long as at first, or for `lease` seconds."""
        if lease is not None:
            check_lease(lease)
        until = time() + (lease or self._lease)

        def renew() -> None:
            self._check()
            self._table[self.key][LEASE]["until"] = until

        self._table._run(renew)
        self.until = until

    def _is_own(self, lease: Any) -> bool:
        return bool(lease.get("token") == self._token)

    def _check(self) -> None:
        """Raise `LeaseLost` where the row is not the caller's any more."""
        where = f"row {self.key!r} of table {self._table.name!r}"
        if self._has_ended:
            raise LeaseLost(
                f"the claim of {where} has ended: it was finished, deleted or given back; claim again"
            )
        row = self._table.get(self.key)
        lease = row.get(LEASE) if isinstance(row, Record) else None
        if not isinstance(lease, Record) or not self._is_own(lease):
            raise LeaseLost(
                f"the lease of {where} has run out, and the row was taken back; nothing was written"
            )
        now = time()
        if has_run_out(lease, now):
            raise LeaseLost(
                f"the lease of {where} ran out {now - lease['until']:.1f} s ago; nothing was written: "
                "claim with a longer lease=, or renew() it meanwhile"
            )

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
