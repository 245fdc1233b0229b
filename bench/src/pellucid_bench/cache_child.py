"""This program is one process of the experiment `cache`. It prints one JSON object.

python cache_child.py use LIBRARY PATH SECONDS MOMENT NUMBER        # gets and sets from a moment on
python cache_child.py stampede LIBRARY PATH THREADS MOMENT NUMBER   # threads that call one slow function
python cache_child.py flood PATH LIMIT TOTAL                        # sets of TOTAL MB under a limit in MB
python cache_child.py loop PATH TOTAL                               # an asyncio loop beside a writer
python cache_child.py write PATH TOTAL                              # that writer
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

KEYS = 1_000
VALUE = bytes(range(100))


def opened(library: str, path: str) -> Any:
    """Open the cache of a library."""
    if library == "pellucid":
        import pellucid

        return pellucid.Cache(f"{path}.pel")
    import diskcache

    return diskcache.Cache(path)


def use(library: str, path: str, seconds: str, moment: str, number: str) -> dict[str, Any]:
    """Get and set for some seconds, nine to one."""
    cache = opened(library, path)
    chance = random.Random(int(number))
    keys = [f"user {chance.randrange(KEYS)}" for _ in range(10_000)]
    time.sleep(max(0, float(moment) - time.time()))
    begun, done, end = time.perf_counter(), 0, time.perf_counter() + float(seconds)
    while (now := time.perf_counter()) < end:
        start = done % 9_990
        for key in keys[start : start + 9]:
            cache.get(key)
        cache[keys[start + 9]] = VALUE
        done += 10
    cache.close()
    return {"per_second": done / (now - begun)}


def stampede(library: str, path: str, threads: str, moment: str, _number: str) -> dict[str, Any]:
    """Call a slow function from several threads at once."""
    cache, calls = opened(library, path), []

    @cache.memoize(name="slow")  # type: ignore[untyped-decorator]
    def slow(key: int) -> int:
        calls.append(key)
        time.sleep(0.2)
        return key

    workers = [threading.Thread(target=slow, args=(1,)) for _ in range(int(threads))]
    time.sleep(max(0, float(moment) - time.time()))
    begun = time.perf_counter()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.perf_counter() - begun
    cache.close()
    return {"seconds": seconds, "calls": len(calls)}


def size_of(path: str) -> int:
    """What the files of a cache take on the disk."""
    total = 0
    for suffix in ("", "-log", "-uses"):
        try:
            total += os.stat(path + suffix).st_blocks * 512
        except FileNotFoundError:
            continue
    return total


def flood(path: str, limit: str, total: str) -> dict[str, Any]:
    """Set values of mixed sizes, and note the most that the files take."""
    import pellucid

    chance, blob, most, is_done = random.Random(1), os.urandom(4 << 20), [0], threading.Event()

    def watch() -> None:
        while not is_done.wait(0.005):
            most[0] = max(most[0], size_of(path))

    watcher = threading.Thread(target=watch)
    with pellucid.Cache(path, size_limit=int(limit) * 10**6, policy="least-recently-used") as cache:
        watcher.start()
        done, sets, begun = 0, 0, time.perf_counter()
        while done < int(total) * 10**6:
            size = int(10 ** chance.uniform(1.5, 6.3))
            offset = chance.randrange(len(blob) - size)
            cache[sets] = blob[offset : offset + size]
            cache.get(chance.randrange(sets + 1))
            done, sets = done + size, sets + 1
        seconds = time.perf_counter() - begun
        is_done.set()
        watcher.join()
    return {"most": most[0], "sets": sets, "seconds": seconds}


def write(path: str, total: str) -> dict[str, Any]:
    """Write values to another table of the file."""
    import pellucid

    value = os.urandom(100_000)
    with pellucid.open(path) as database:
        table = database.table("other")
        for number in range(int(total) * 10):
            table[number % 1_000] = value
    return {}


def loop(path: str, total: str) -> dict[str, Any]:
    """How late the steps of a loop are, 999 of 1,000: while it does nothing, and while it uses a cache."""
    import pellucid

    with pellucid.Cache(path) as cache:
        for number in range(KEYS):
            cache[number] = VALUE

        async def measured(uses: bool) -> float:
            late = []
            words = [sys.executable, __file__, "write", path, total]
            writer = subprocess.Popen(words, stdout=subprocess.DEVNULL)
            number = 0
            while writer.poll() is None:
                begun = time.perf_counter()
                await asyncio.sleep(0.001)
                late.append(time.perf_counter() - begun - 0.001)
                if uses:
                    number += 1
                    await cache.aget(number % KEYS)
                    if number % 10 == 0:
                        await cache.aset(number % KEYS, VALUE)
            return sorted(late)[int(len(late) * 0.999)]

        idle = asyncio.run(measured(uses=False))
        using = asyncio.run(measured(uses=True))
    return {"idle": idle, "using": using}


VERBS: dict[str, Callable[..., dict[str, Any]]] = {
    "use": use,
    "stampede": stampede,
    "flood": flood,
    "write": write,
    "loop": loop,
}

if __name__ == "__main__":
    print(json.dumps(VERBS[sys.argv[1]](*sys.argv[2:])))
