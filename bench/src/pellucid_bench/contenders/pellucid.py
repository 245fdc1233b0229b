"""This module uses pellucid itself."""

from __future__ import annotations

import contextlib
from functools import partial
from pathlib import Path

import pellucid

from pellucid_bench.contenders.dicts import Player, Session
from pellucid_bench.contenders.readers import Reader
from pellucid_bench.rivals import Rivals
from pellucid_bench.sample_records import Population


def players(_rivals: Rivals) -> list[Player]:
    """Return the ways to use a table as a dict."""
    put, get = "table[k] = v", "table[k]"
    in_transaction = partial(_open_ours, in_transaction=True)
    in_memory = partial(_open_ours, in_memory=True)
    return [
        Player("pellucid", _open_ours, put, get, "kill -9", is_ours=True),
        Player("pellucid, full", partial(_open_ours, full=True), put, get, "power loss", is_ours=True),
        Player("pellucid, one transaction", in_transaction, put, get, "nothing", is_ours=True),
        Player(
            "pellucid, update()",
            _open_ours,
            "table.update(block)",
            get,
            "kill -9",
            is_ours=True,
            puts_blocks=True,
        ),
        Player("pellucid, in memory", in_memory, put, get, "nothing", is_ours=True, in_memory=True),
    ]


def _open_ours(
    path: Path, *, in_transaction: bool = False, in_memory: bool = False, full: bool = False
) -> Session:
    database = pellucid.open(":memory:" if in_memory else path, durability="full" if full else "process")
    transaction = contextlib.ExitStack()
    if in_transaction:
        transaction.enter_context(database.transaction())
    table = database.table("words")
    names = {"table": table}
    return Session(names, transaction.close, lambda: names, database.close, table.update)


def readers(_rivals: Rivals, population: Population) -> list[Reader]:
    """Return the view of bytes."""
    return [
        Reader(
            "pellucid",
            pellucid.dumps,
            f"view(buf){population.by_attribute}",
            "view(buf).mydict.c.num",
            {"view": pellucid.view},
            is_ours=True,
        )
    ]
