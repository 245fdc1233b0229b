"""This module describes the machine on which the benchmarks run, and what is wrong with it.

Figures mean nothing without the machine. The load, and a file system in memory, change them more than most
code does. So every dataset has both.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import time
from pathlib import Path

from pellucid_bench import collect
from pellucid_bench.dataset import Interpreter, Machine

TICK_COARSE = 1e-6
"""A clock whose step is longer is too coarse for short samples. They are made longer."""
LOAD_SHARE_MAX = 0.5
"""With a greater load for each core, other work disturbs the samples."""


def describe(directory: Path) -> Machine:
    """Return the machine, and the file system of `directory`."""
    fields = {
        "processor": _processor(),
        "cores": core_count(),
        "memory_bytes": memory_size(),
        "system": platform.system(),
        "kernel": platform.release(),
        "file_system": file_system(directory),
    }
    code = json.dumps(fields, sort_keys=True).encode()
    return Machine(**fields, load=_load(), id=hashlib.sha256(code).hexdigest()[:12])  # type: ignore[arg-type]


def interpreter() -> Interpreter:
    """Return this Python, and how it was built."""
    return Interpreter(**collect.interpreter())


def warnings(machine: Machine, tick: float) -> list[str]:
    """Return what makes the figures of this machine less certain."""
    found = []
    if machine.cores == 1:
        found.append(
            "one core: processes and threads take turns, so measures with several of them say little"
        )
    if tick > TICK_COARSE:
        found.append(f"the clock advances in steps of {tick * 1e6:.0f} us, so short samples are made longer")
    if machine.load is not None and machine.load > LOAD_SHARE_MAX * machine.cores:
        cores = f"{machine.cores} core{'' if machine.cores == 1 else 's'}"
        found.append(f"load {machine.load:.1f} on {cores}: other work disturbs the samples")
    return found


def clock_tick() -> float:
    """Return the smallest step of the clock that samples are taken with, in seconds."""
    steps = []
    for _ in range(20):
        started = ended = time.perf_counter()
        while ended == started:
            ended = time.perf_counter()
        steps.append(ended - started)
    return min(steps)


def memory_size() -> int | None:
    """Return the size of the machine's memory in bytes, if the system reports it."""
    if "SC_PHYS_PAGES" not in os.sysconf_names:
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def file_system(directory: Path) -> str:
    """Return the type of the file system of `directory` ("ext4", "tmpfs"), or "?" if the system hides it."""
    mounts = Path("/proc/self/mounts")
    if not mounts.exists():
        return "?"
    found, kind = "", "?"
    for line in mounts.read_text().splitlines():
        _, point, mounted_kind = line.split()[:3]
        point = point.replace("\\040", " ")
        if len(point) >= len(found) and directory.resolve().is_relative_to(point):
            found, kind = point, mounted_kind
    return kind


def core_count() -> int:
    """Return how many processors this process may use; a container may have fewer than the machine."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _load() -> float | None:
    return round(os.getloadavg()[0], 1) if hasattr(os, "getloadavg") else None
