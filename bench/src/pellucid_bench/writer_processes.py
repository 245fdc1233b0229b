"""This module has the processes that write together, and the process that dies after its puts.

    trade WRITER PATH NUMBER SECONDS       put, and read what the other one put
    exchange WRITER PATH NUMBER COUNT      put a time, wait for the other's, in turn
    commit WRITER PATH NUMBER SECONDS      transactions of ten puts, each on the disk before it returns
    crash WRITER PATH COUNT                single puts, then SIGKILL
    recover WRITER PATH COUNT              open what was left, and read all of it

These are verbs of `pellucid_bench.child`. The first three print "ready", wait for a line, do their work and
print one JSON object. They exit when their standard input ends, because then their parent process is dead.
"""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pellucid_bench.contenders.writers import Names, Writer, repeated, row, writers
from pellucid_bench.rivals import Rivals
from pellucid_bench.runner import compiled, function

KEYS = 1_000
"""Rows of one process. The rows of process 1 come after those of process 0."""
BLOCK = 100
"""Turns between two reads of the clock."""
PUTS = 10
"""Puts in one transaction."""

TRADE = """
def work(own, other, seconds, row, clock{names}):
 done, started = 0, clock()
 while True:
  for n in range(done, done + 100):
   k, v = own + n % 1000, {{"name": "a trader", "age": n}}
{put}
   k = other + n % 1000
   seen = {age}
  done += 100
  elapsed = clock() - started
  if elapsed > seconds:
   return {{"done": done, "seconds": elapsed, "seen": seen}}
"""

EXCHANGE = """
def work(own, other, count, is_first, clock{names}):
 delays, last = [], 0
 for turn in range(count):
  if is_first:
   k, v = own, {{"name": "a clock", "age": clock()}}
{put}
  k = other
  seen = {age}
  while seen == last:
   seen = {age}
  delays.append(clock() - seen)
  last = seen
  if not is_first:
   k, v = own, {{"name": "a clock", "age": clock()}}
{put}
 return {{"delays": delays}}
"""

COMMIT = """
def work(own, seconds, row, clock{names}):
 done, started = 0, clock()
 while True:
  base = done * 10
  pairs = [(own + n % 1000, row(n)) for n in range(base, base + 10)]
{transaction}
  done += 1
  elapsed = clock() - started
  if elapsed > seconds:
   return {{"done": done, "seconds": elapsed}}
"""


def made(template: str, writer: Writer, names: Names) -> Callable[..., Any]:
    """Compile one of the loops above with the lines of a writer."""
    lines = {"age": writer.age}
    for name, depth in (("put", 3), ("transaction", 2)):
        lines[name] = "\n".join(" " * depth + line for line in getattr(writer, name).splitlines())
    known = "".join(f", {name}=_names[{name!r}]" for name in names)
    return compiled(template.format(names=known, **lines), names)


def trade(writer: Writer, names: Names, number: int, seconds: float) -> dict[str, Any]:
    """Put, and read what the other process put, for some seconds."""
    work = made(TRADE, writer, names)
    found: dict[str, Any] = work(number * KEYS, (1 - number) * KEYS, seconds, row, time.perf_counter)
    return found


def exchange(writer: Writer, names: Names, number: int, count: int) -> dict[str, Any]:
    """Put the time, then wait for the time of the other process. Return how old each was when it was seen."""
    work = made(EXCHANGE, writer, names)
    # This clock belongs to the system, so all processes have the same.
    found: dict[str, Any] = work(number * KEYS, (1 - number) * KEYS, count, number == 0, time.perf_counter_ns)
    return found


def commit(writer: Writer, names: Names, number: int, seconds: float) -> dict[str, Any]:
    """Commit transactions of ten puts, for some seconds."""
    found: dict[str, Any] = made(COMMIT, writer, names)(number * KEYS, seconds, row, time.perf_counter)
    return found


def crash(writer: Writer, path: Path, count: int) -> None:
    """Put rows one by one, and die without closing the database."""
    put = repeated("for k, v in pairs:", writer.put, writer.open(path).names(), "pairs")
    put([(number, row(number)) for number in range(count)])
    os.kill(os.getpid(), signal.SIGKILL)


def recover(writer: Writer, path: Path, count: int) -> dict[str, Any]:
    """Open the database after a crash and read the first row. Then return what is there."""
    started = time.perf_counter()
    opened = writer.open(path)
    names = opened.names()
    function("k", writer.age, names)(count - 1)
    seconds = time.perf_counter() - started
    total = repeated("if True:", writer.loop, names)()
    recovered = opened.stats().get("log_recovered")
    opened.close()
    return {"seconds": seconds, "total": total, "recovered": recovered}


def main(verb: str, writer_name: str, path: str, *arguments: str) -> None:
    """Run one verb."""
    writer = next(writer for writer in writers(Rivals()) if writer.name == writer_name)
    if verb == "crash":
        crash(writer, Path(path), int(arguments[0]))
    if verb == "recover":
        print(json.dumps(recover(writer, Path(path), int(arguments[0]))))
        return
    number, amount = int(arguments[0]), float(arguments[1])
    opened = writer.open(Path(path), full=verb == "commit")
    names = opened.names()
    wait_for_the_others()
    if verb == "trade":
        found = trade(writer, names, number, amount)
    elif verb == "exchange":
        found = exchange(writer, names, number, int(amount))
    else:
        found = commit(writer, names, number, amount)
    print(json.dumps(found), flush=True)
    opened.close()


def wait_for_the_others() -> None:
    """Say that this process is ready, and wait until all are."""
    print("ready", flush=True)
    if not os.read(0, 1):
        raise SystemExit("the process that started this one is gone")
    threading.Thread(target=_end_with_the_parent, daemon=True).start()


def _end_with_the_parent() -> None:
    # Do not use sys.stdin: an interpreter that exits needs the lock of its buffer.
    while os.read(0, 1):
        pass
    os._exit(1)
