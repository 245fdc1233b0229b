"""This module describes the machine on which the benchmarks run.

Figures mean nothing without the machine. The load, and a file system in memory, change them more than most
code does. So every report has both.
"""

from __future__ import annotations

import importlib.metadata
import os
import platform
from pathlib import Path


def describe(directory: Path) -> dict[str, str]:
    """Return the machine, the Python, and the file system of `directory`."""
    return {
        "cpu": _cpu_model(),
        "cores": str(_core_count()),
        "memory": _memory(),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": " ".join(
            [platform.python_implementation(), platform.python_version(), f"({platform.python_compiler()})"]
        ),
        "pellucid": _pellucid_version(),
        "file system": f"{file_system(directory)} (in {directory})",
        "load at start": " ".join(f"{load:.1f}" for load in os.getloadavg())
        if hasattr(os, "getloadavg")
        else "?",
    }


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


def _cpu_model() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _core_count() -> int:
    if hasattr(os, "sched_getaffinity"):  # the processors of this process; a container may have fewer
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _memory() -> str:
    size = memory_size()
    return f"{size / 2**30:.1f} GiB" if size else "?"


def _pellucid_version() -> str:
    try:
        return importlib.metadata.version("pellucid")
    except importlib.metadata.PackageNotFoundError:
        return "not installed as a package"
