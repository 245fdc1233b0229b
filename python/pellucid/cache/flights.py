"""This module lets one caller of many compute a result, while the others sleep until it is there.

The claim of a key is a lock in the process, and between processes a lock on one byte of a file. The system
wakes the next waiter when the lock is released, and releases it itself when the process dies. All claims of a
process have one open file, for tasks may have thousands of claims at once. Where the system has no such
locks, or the cache is in memory, the claims hold among the threads of the process alone.
"""

from __future__ import annotations

import fcntl
import os
import struct
import threading

# Do not import this from typing: that import takes longer than all of ours. Type checkers know the name.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["Claim", "claim"]

# Behind all that a file can hold, so that the bytes are never there.
BASE = 1 << 40
SPAN = (1 << 62) - 1

HAS_FILE_LOCKS = hasattr(fcntl, "F_OFD_SETLKW")
# The layout of `struct flock` on Linux: type, whence, start, length, PID.
LAYOUT = "hhqqi4x"

# The claims of this process: each with its lock, and how many callers have or want it.
_in_process: dict[tuple[str, int], list[Any]] = {}
# The open files by their paths.
_files: dict[str, _File] = {}
# A garbage collection may end a claim while its thread has the guard.
_guard = threading.RLock()
# What each thread has claimed: a function that asks for its own result again must not wait for itself.
_held = threading.local()


class _File:
    """A file whose bytes are locked, open while there are claims."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.count = 0

    def lock(self, kind: int, offset: int, waits: bool) -> None:
        wanted = struct.pack(LAYOUT, kind, os.SEEK_SET, BASE + offset, 1, 0)
        fcntl.fcntl(self.descriptor, fcntl.F_OFD_SETLKW if waits else fcntl.F_OFD_SETLK, wanted)


class Claim:
    """The right of this caller to compute the result of a key; `release` ends it."""

    def __init__(self, name: tuple[str, int], entry: list[Any] | None, file: _File | None) -> None:
        self._name = name
        self._entry = entry
        self._file = file

    def release(self) -> None:
        """Let the next caller in."""
        _mine().discard(self._name)
        file, self._file = self._file, None
        entry, self._entry = self._entry, None
        if file is not None:
            _unlock(self._name, file)
        if entry is not None:
            entry[0].release()
            _leave(self._name, entry)


def _mine() -> set[Any]:
    names: set[Any] | None = getattr(_held, "names", None)
    if names is None:
        names = _held.names = set()
    return names


def _leave(name: tuple[str, int], entry: list[Any]) -> None:
    with _guard:
        entry[1] -= 1
        if not entry[1] and _in_process.get(name) is entry:
            del _in_process[name]


def claim(
    path: str | None, key: bytes, waits: bool, in_thread: bool = True, *, scope: str | None = None
) -> Claim | None:
    """Claim a key of the cache whose file of claims is `path`, by eight bytes that name it.

    `scope` names a cache in memory, which has no path.

    With `waits`, sleep until no other caller has it. Without, return None if another one has it. A thread
    that has the claim already gets an empty one, unless the claim is not the thread's but a task's
    (`in_thread`).
    """
    offset = int.from_bytes(key[:8], "little") & SPAN
    name = (path or scope or "", offset)
    if in_thread and name in _mine():
        return Claim(("", -1), None, None)
    with _guard:
        entry = _in_process.setdefault(name, [threading.Lock(), 0])
        entry[1] += 1
    is_claimed, file = False, None
    try:
        is_claimed = entry[0].acquire(blocking=waits)
        if is_claimed and path is not None and HAS_FILE_LOCKS:
            file = _locked(path, name, waits)
            is_claimed = file is not None
            if not is_claimed:
                entry[0].release()
    except BaseException:
        if is_claimed:
            entry[0].release()
        _leave(name, entry)
        raise
    if not is_claimed:
        _leave(name, entry)
        return None
    if in_thread:
        _mine().add(name)
    return Claim(name, entry, file)


def _locked(path: str, name: tuple[str, int], waits: bool) -> _File | None:
    """The file with the byte of this name locked; None if another process has it, unless this one waits."""
    with _guard:
        file = _files.get(path)
        if file is None:
            flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
            file = _files[path] = _File(os.open(path, flags, 0o666))
        file.count += 1
    try:
        file.lock(fcntl.F_WRLCK, name[1], waits)
    except BaseException as error:
        _unlock(name, file)
        if isinstance(error, (BlockingIOError, PermissionError)) and not waits:
            return None
        raise
    return file


def _unlock(name: tuple[str, int], file: _File) -> None:
    with _guard:
        if _files.get(name[0]) is not file:
            # Of the parent of this process.
            return
        file.count -= 1
        # Closing would not be enough: a child that has just been forked may have the file open as well.
        file.lock(fcntl.F_UNLCK, name[1], waits=False)
        if not file.count:
            del _files[name[0]]
            os.close(file.descriptor)


def _in_a_child() -> None:
    """Close what a forked child has of its parent's claims: the parent's release must end them."""
    _held.names = set()
    for file in _files.values():
        os.close(file.descriptor)
    _files.clear()
    _in_process.clear()
    _guard.release()


# The thread that forks holds the guard meanwhile: each open file is in `_files` then, which the child closes.
os.register_at_fork(before=_guard.acquire, after_in_parent=_guard.release, after_in_child=_in_a_child)
