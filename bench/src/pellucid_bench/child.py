"""This module measures what needs a process of its own.

A process imports a module only once, and anonymous memory belongs to the whole process. So these measures run
as `python -m pellucid_bench.child VERB ...`, and print one JSON object.

    open KIND PATH           seconds to open an existing database of another library (or ours)
    scan PATH FIELD HOW      peak anonymous memory while a field of every row is read; HOW: loop, sum, nothing

The verbs of `writer_processes.py` run in the same way. Some of them run at the same time: see `together`.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from subprocess import PIPE
from typing import Any

ROWS_BETWEEN_LOOKS = 20_000
TOGETHER_SECONDS_MAX = 120.0
"""Processes that work together are killed if they need longer than this."""


def command(*arguments: str) -> list[str]:
    """Return the command of a new process that runs one verb."""
    return [sys.executable, "-m", "pellucid_bench.child", *arguments]


def environment() -> dict[str, str]:
    """Return the environment of a new process, in which it finds this package."""
    folders = [str(Path(__file__).parent.parent), os.environ.get("PYTHONPATH")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, folders))}


def run(*arguments: str) -> dict[str, Any]:
    """Run one verb in a new process and return what it printed."""
    done = subprocess.run(command(*arguments), env=environment(), check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"`{' '.join(arguments)}` in a new process failed:\n{done.stderr}")
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def run_module(module: str, *arguments: object) -> Any:
    """Run a module of this package in a new process as a child of its experiment. Return what it printed."""
    return answer([sys.executable, "-m", f"pellucid_bench.{module}", "--child", *map(str, arguments)])


def answer(words: Sequence[str]) -> Any:
    """Run a command, and return the JSON that it prints. If it fails, the error is its last line."""
    done = subprocess.run(words, env=environment(), check=False, capture_output=True, text=True)
    if done.returncode < 0:
        raise RuntimeError(f"its process was ended by {signal.Signals(-done.returncode).name}")
    if done.returncode != 0:
        lines = done.stderr.strip().splitlines() or [f"its process failed with exit code {done.returncode}"]
        raise RuntimeError(lines[-1])
    return json.loads(done.stdout)


def killed(*arguments: str) -> None:
    """Run one verb in a new process that must die by SIGKILL."""
    done = subprocess.run(command(*arguments), env=environment(), check=False, capture_output=True, text=True)
    if done.returncode != -signal.SIGKILL:
        raise RuntimeError(f"`{' '.join(arguments)}` did not end as it should have:\n{done.stderr}")


def together(*commands: Sequence[str]) -> list[dict[str, Any]]:
    """Start verbs at the same time, when all are ready. Return what each printed."""
    with contextlib.ExitStack() as stack:
        processes = []
        for arguments in commands:
            process = subprocess.Popen(
                command(*arguments), env=environment(), stdin=PIPE, stdout=PIPE, stderr=PIPE, text=True
            )
            stack.enter_context(process)
            # Register this first. Otherwise a process could wait for ever for another one that failed.
            stack.callback(process.kill)
            processes.append(process)
        timer = threading.Timer(TOGETHER_SECONDS_MAX, _kill, [processes])
        timer.start()
        stack.callback(timer.cancel)
        for process in processes:
            _line(process)
        for process in processes:
            assert process.stdin is not None
            process.stdin.write("go\n")
            process.stdin.flush()
        answers: list[dict[str, Any]] = [json.loads(_line(process)) for process in processes]
        # Keep standard input open until now: the processes exit when it ends, before they have closed their
        # files.
        for process in processes:
            process.wait()
    return answers


def _kill(processes: Sequence[subprocess.Popen[str]]) -> None:
    """Kill the processes that still run."""
    for process in processes:
        process.kill()


def _line(process: subprocess.Popen[str]) -> str:
    """Return the next line that a process prints."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        assert process.stderr is not None
        process.kill()
        raise RuntimeError(f"one of several processes failed:\n{process.stderr.read()}")
    return line


def time_import(module_name: str) -> float:
    """Return the seconds of the first import of a module, in a new interpreter.

    The interpreter may keep compiled code, as it does for a package that pip has installed. Without it, most
    of the time would be that of compiling the source.
    """
    code = f"import time; t = time.perf_counter(); import {module_name}; print(time.perf_counter() - t)"
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, env=variables
    )
    return float(done.stdout)


def time_open_apart(kind: str, path: Path) -> float:
    """Run `time_open` in a new process."""
    return float(run("open", kind, str(path))["seconds"])


def time_open(kind: str, path: str) -> float:
    """Return the seconds to open an existing database, until it can be read."""
    module = importlib.import_module(kind)
    started = time.perf_counter()
    if kind == "pellucid":
        opened = module.open(path, mode="w")
    elif kind == "lmdb":
        opened = module.open(path, subdir=False, map_size=1 << 40)
    else:
        # sqlite3 opens the file at the first statement.
        opened = module.connect(path)
        opened.execute("SELECT 1 FROM people LIMIT 1").fetchone()
    seconds = time.perf_counter() - started
    opened.close()
    return seconds


def anonymous_memory() -> int | None:
    """Return the bytes of this process that no file backs, or None if the system does not report them."""
    status = Path("/proc/self/status")
    if not status.exists():
        return None
    for line in status.read_text().splitlines():
        if line.startswith("RssAnon"):
            return int(line.split()[1]) * 1024
    return None


def scan(path: str, field: str, how: str) -> dict[str, Any]:
    """Read `field` of every row and measure the anonymous memory of this process."""
    import pellucid

    with pellucid.open(path, mode="r") as database:
        table = database.table("people")
        total, rows, peak = 0, 0, anonymous_memory() or 0
        started = time.perf_counter()
        if how == "sum":
            total, rows = table.sum(field), len(table)
        elif how == "loop":
            for record in table.values():
                total += record[field]
                rows += 1
                if rows % ROWS_BETWEEN_LOOKS == 0:
                    peak = max(peak, anonymous_memory() or 0)
        seconds = time.perf_counter() - started
        peak = max(peak, anonymous_memory() or 0)
    return {"total": total, "rows": rows, "peak": peak, "seconds": seconds}


def main() -> None:
    """Run the verb of the command line."""
    verb, *arguments = sys.argv[1:]
    if verb == "open":
        print(json.dumps({"seconds": time_open(*arguments)}))
    elif verb == "scan":
        print(json.dumps(scan(*arguments)))
    elif verb in ("trade", "exchange", "commit", "crash", "recover"):
        # Import this only here: the other verbs measure a process without all of this.
        from pellucid_bench import writer_processes

        writer_processes.main(verb, *arguments)
    elif verb in ("claim", "count"):
        from pellucid_bench import queue_processes

        queue_processes.main(verb, *arguments)
    else:
        raise SystemExit(f"unknown verb {verb!r}; this module is run by bench")


if __name__ == "__main__":
    main()
