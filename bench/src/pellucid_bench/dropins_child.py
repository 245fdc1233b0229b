"""This program is one process of the experiment `dropins`: it uses one shelve or dbm, on any Python from 3.8.

python dropins_child.py measure CONTENDER PATH KIND COUNT BUDGET    # the seconds of a write and of a read
python dropins_child.py put CONTENDER PATH NAME COUNT LAST          # puts values, and may kill itself
python dropins_child.py count CONTENDER PATH WANTED                 # how many values are lost
"""

from __future__ import annotations

import functools
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

# The rows between two looks at the clock, for a contender that would take hours.
BATCH = 1_000


def modules(contender: str) -> tuple[Any, Any]:
    """Return the shelve and the dbm of a contender."""
    if contender == "pellucid":
        import pellucid.dbm
        import pellucid.shelve

        return pellucid.shelve, pellucid.dbm
    import dbm
    import importlib
    import shelve

    dbm._defaultmod = importlib.import_module(contender)  # type: ignore[attr-defined]
    dbm._modules[contender] = dbm._defaultmod  # type: ignore[attr-defined]
    return shelve, dbm


def value_of(number: int) -> dict[str, Any]:
    """Return the small dict that is stored under a number."""
    return {"name": f"person {number}", "age": number % 90, "city": "Bath", "tags": ["a", "b"]}


def measure(contender: str, kind: str, count: int, path: str, budget: float) -> dict[str, float]:
    """Write and read `count` values, each with its own open and close; the seconds of both.

    If writing takes longer than `budget` seconds, it stops, and the time counts for what was written.
    """
    shelve, dbm = modules(contender)
    opened: Callable[[str], Any] = functools.partial((shelve if kind == "shelve" else dbm).open, path)
    keys = [f"key {number}" for number in range(count)]
    values = [value_of(n) if kind == "shelve" else f"a small value {n}" for n in range(count)]
    begun = time.perf_counter()
    done = 0
    database = opened("n")
    while done < count and time.perf_counter() - begun < budget:
        for number in range(done, min(done + BATCH, count)):
            database[keys[number]] = values[number]
        done = min(done + BATCH, count)
    database.close()
    written = time.perf_counter()
    database = opened("r")
    for number in range(done):
        database[keys[number]]
    database.close()
    read = time.perf_counter()
    database = opened("r")
    last = values[done - 1]
    assert database[keys[done - 1]] == (last if kind == "shelve" else str(last).encode())
    assert len(database) == done
    database.close()
    return {"write": (written - begun) / done, "read": (read - written) / done, "done": done}


def put_values(contender: str, path: str, name: str, count: int, last: int) -> None:
    """Write values through a shelf that another process has open, too, and print each number after it.

    The process kills itself after the value of number `last`, as `kill -9` would.
    """
    shelve, _ = modules(contender)
    shelf = shelve.open(path, "c")
    for number in range(count):
        shelf[f"{name} {number}"] = value_of(number)
        if hasattr(shelf, "sync") and contender != "pellucid":
            # Their writes are in the process's memory until then.
            shelf.sync()
        print(number, flush=True)
        if number == last:
            os.kill(os.getpid(), signal.SIGKILL)
    shelf.close()


def count_lost(contender: str, path: str, wanted: dict[str, int]) -> int:
    """Return how many of the acknowledged values are missing or wrong."""
    shelve, _ = modules(contender)
    shelf = shelve.open(path, "r")
    lost = 0
    for name, count in wanted.items():
        for number in range(count):
            try:
                lost += shelf[f"{name} {number}"] != value_of(number)
            except KeyError:
                lost += 1
    shelf.close()
    return lost


def main(arguments: list[str]) -> None:
    """Do what the parent asks of one process."""
    task, contender, path, *rest = arguments
    if task == "measure":
        print(json.dumps(measure(contender, rest[0], int(rest[1]), path, float(rest[2]))))
    elif task == "put":
        put_values(contender, path, rest[0], int(rest[1]), int(rest[2]))
    else:
        print(count_lost(contender, path, json.loads(rest[0])))


if __name__ == "__main__":
    main(sys.argv[1:])
