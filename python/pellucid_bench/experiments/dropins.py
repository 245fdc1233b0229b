"""This experiment measures pellucid.shelve and pellucid.dbm against shelve and dbm over each backend.

    pellucid bench dropins [--quick] [--rounds 5] [--python /usr/bin/python3 ...] [--directory FOLDER]

Each sample is a new process, and the contenders take turns. No Python has all backends: Debian has GDBM in a
package of its own, and dbm.sqlite3 came with 3.13. So each contender runs on the first Python that can import
what it needs: this one, those given as `--python`, and those on the path. The report names it.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

# The module that a contender needs, and the backend that it makes dbm use.
CONTENDERS = {
    "pellucid": ("pellucid.shelve", None),
    "dbm.gnu": ("dbm.gnu", "dbm.gnu"),
    "dbm.sqlite3": ("dbm.sqlite3", "dbm.sqlite3"),
    "dbm.ndbm": ("dbm.ndbm", "dbm.ndbm"),
    "dbm.dumb": ("dbm.dumb", "dbm.dumb"),
}
# What the release notes promise: their time divided by ours is at least this.
WANTED = {"shelve": {"dbm.gnu": 3.0, "dbm.sqlite3": 10.0}, "dbm": {"dbm.gnu": 2.0, "dbm.sqlite3": 20.0}}
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


def kill_one(python: str, contender: str, folder: Path, count: int) -> str:
    """Have two processes write through one shelf, kill one of them, and say what is left."""
    path = str(folder / "shared")
    if contender == "pellucid" or contender == "dbm.sqlite3":
        # Both begin with the same file.
        first = [python, __file__, "--child", "put", contender, path, "first", "1", "-1"]
        subprocess.run(first, check=True, stdout=subprocess.DEVNULL)
    writers = [
        subprocess.Popen(
            [python, __file__, "--child", "put", contender, path, name, str(count), last],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for name, last in (("killed", str(count // 2)), ("other", "-1"))
    ]
    killed, other = writers
    acknowledged, killed_errors = killed.communicate()
    out, errors = other.communicate()
    wanted = {"killed": len(acknowledged.splitlines()), "other": len(out.splitlines())}
    failures = []
    for writer, said, code in ((killed, killed_errors, -signal.SIGKILL), (other, errors, 0)):
        if writer.returncode != code:
            failures.append("a writer failed: " + said.strip().splitlines()[-1][:70])
    found = subprocess.run(
        [python, __file__, "--child", "count", contender, path, json.dumps(wanted)],
        capture_output=True,
        text=True,
        check=False,
    )
    if found.returncode:
        failures.append("cannot be read: " + found.stderr.strip().splitlines()[-1][:70])
    elif int(found.stdout):
        failures.append(f"{found.stdout.strip()} of {sum(wanted.values())} acknowledged values are lost")
    return "; ".join(failures) or f"all {sum(wanted.values())} acknowledged values are there"


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


def child(arguments: list[str]) -> None:
    """Do what the parent asks of one process."""
    task, contender, path, *rest = arguments
    if task == "measure":
        print(json.dumps(measure(contender, rest[0], int(rest[1]), path, float(rest[2]))))
    elif task == "put":
        put_values(contender, path, rest[0], int(rest[1]), int(rest[2]))
    else:
        print(count_lost(contender, path, json.loads(rest[0])))


def pythons(given: list[str]) -> Iterator[str]:
    """Yield the Pythons to try, best first."""
    yield sys.executable
    yield from given
    for name in ("python3.15", "python3.14", "python3.13", "python3.12", "python3.11", "python3"):
        for folder in os.environ["PATH"].split(os.pathsep):
            if (found := shutil.which(name, path=folder)) is not None:
                yield found


def python_for(module: str, candidates: list[str]) -> str | None:
    """Return the first Python that has a module; None if there is none."""
    for candidate in candidates:
        if (
            subprocess.run([candidate, "-c", f"import {module}"], capture_output=True, check=False).returncode
            == 0
        ):
            return candidate
    return None


def sample(
    python: str, contender: str, kind: str, count: int, budget: float, folder: Path
) -> dict[str, float]:
    """Return the seconds of one write and of one read, in a new process with a new database."""
    home = folder / "sample"
    home.mkdir()
    command = [python, __file__, "--child", "measure", contender, str(home / "database"), kind]
    out = subprocess.run([*command, str(count), str(budget)], capture_output=True, text=True, check=False)
    shutil.rmtree(home)
    if out.returncode:
        raise SystemExit(f"{contender} failed:\n{out.stderr}")
    found: dict[str, float] = json.loads(out.stdout)
    return found


def compare(options: argparse.Namespace, found: dict[str, str], kind: str, count: int, folder: Path) -> None:
    """Measure all contenders in turn, and print their best times."""
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in found}
    for _ in range(options.rounds):
        for name, python in found.items():
            # One sample of a contender that was stopped is enough.
            if not samples[name] or samples[name][0]["done"] == count:
                samples[name].append(sample(python, name, kind, count, options.budget, folder))
    print(
        f"\n{kind}: {count:,} writes and reads, with open and close; best of {options.rounds}, in us for each"
    )
    print(f"{'':14}{'write':>10}{'read':>10}{'both':>10}{'ratio':>9}  wanted")
    best = {
        name: {part: min(one[part] for one in of) * 1e6 for part in ("write", "read")}
        for name, of in samples.items()
    }
    both = {name: parts["write"] + parts["read"] for name, parts in best.items()}
    for name in sorted(both, key=both.__getitem__):
        wanted = WANTED[kind].get(name)
        ratio = both[name] / both["pellucid"]
        stopped = samples[name][0]["done"]
        print(
            f"{name:14}{best[name]['write']:10.2f}{best[name]['read']:10.2f}{both[name]:10.2f}{ratio:8.2f}x"
            + (f"  {wanted:g}x" if wanted else "")
            + ("" if stopped == count else f"  (stopped after {stopped:,})")
        )


def main() -> int:
    """Run all of it, and print the report."""
    parser = argparse.ArgumentParser(description="Compare pellucid's shelve and dbm with Python's.")
    parser.add_argument("--quick", action="store_true", help="a short run whose figures mean nothing")
    parser.add_argument("--rounds", type=int, default=5, help="samples of each contender (default: 5)")
    parser.add_argument(
        "--budget", type=float, default=20.0, help="stop writing after these seconds (default: 20)"
    )
    parser.add_argument(
        "--python", action="append", default=[], help="another Python to look for backends in"
    )
    parser.add_argument(
        "--directory", type=Path, help="folder for the databases (default: the temporary one)"
    )
    options = parser.parse_args()
    candidates = list(dict.fromkeys(pythons(options.python)))
    found = {}
    for name, (module, _) in CONTENDERS.items():
        python = python_for(module, candidates)
        if python is None:
            print(f"{name:14}not measured: no Python here has {module}")
            continue
        found[name] = python
        version = subprocess.run([python, "-V"], capture_output=True, text=True, check=True).stdout.strip()
        print(f"{name:14}{version} ({python})")
    if "pellucid" not in found:
        parser.error("no Python here has pellucid")
    if options.quick:
        options.rounds, options.budget = 1, 0.1
    with tempfile.TemporaryDirectory(prefix="pellucid-dropins-", dir=options.directory) as directory:
        folder = Path(directory)
        compare(options, found, "shelve", 1_000 if options.quick else 10_000, folder)
        for count in (1_000, 2_000) if options.quick else (10_000, 1_000_000):
            compare(options, found, "dbm", count, folder)
        count = 40 if options.quick else 400
        print(f"\ntwo processes write {count} values each through one shelf, and one of them is killed")
        for name, python in found.items():
            home = folder / "killed"
            home.mkdir()
            print(f"{name:14}{kill_one(python, name, home, count)}")
            shutil.rmtree(home)
    return 0


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(sys.argv[2:])
    else:
        sys.exit(main())
