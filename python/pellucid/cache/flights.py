"""This module lets one caller of many compute a result, while the others sleep until it is there.

Between processes, the claim of a key is a lock on one byte of a file. The system wakes the next waiter when
the lock is released, and releases it itself when the process dies. Each claim opens the file anew, so that
threads of one process exclude each other as well. Where the system has no such locks, or the cache is in
memory, the claims hold among the threads of the process alone.
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

# The claims of a cache in memory: each with its lock, and how many callers have or want it.
_in_process: dict[tuple[str, int], list[Any]] = {}
_guard = threading.Lock()
# What each thread has claimed: a function that asks for its own result again must not wait for itself.
_held = threading.local()
_open_claims: set[int] = set()


class Claim:
    """The right of this caller to compute the result of a key; `release` ends it."""

    def __init__(self, name: tuple[str, int], file: int | None, lock: threading.Lock | None) -> None:
        self._name = name
        self._file = file
        self._lock = lock

    def release(self) -> None:
        """Let the next caller in."""
        _mine().discard(self._name)
        file, self._file = self._file, None
        if file is not None and file in _open_claims:
            _open_claims.discard(file)
            os.close(file)
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()
            _leave(self._name)


def _mine() -> set[Any]:
    names: set[Any] | None = getattr(_held, "names", None)
    if names is None:
        names = _held.names = set()
    return names


def _leave(name: tuple[str, int]) -> None:
    with _guard:
        entry = _in_process.get(name)
        if entry is not None:
            entry[1] -= 1
            if not entry[1]:
                del _in_process[name]


def _claim_in_process(name: tuple[str, int], waits: bool) -> Claim | None:
    with _guard:
        entry = _in_process.setdefault(name, [threading.Lock(), 0])
        entry[1] += 1
    try:
        is_claimed = entry[0].acquire(blocking=waits)
    except BaseException:
        _leave(name)
        raise
    if not is_claimed:
        _leave(name)
        return None
    return Claim(name, None, entry[0])


def claim(path: str | None, key: bytes, waits: bool, in_thread: bool = True) -> Claim | None:
    """Claim a key of the cache whose file of claims is `path`, by eight bytes that name it.

    With `waits`, sleep until no other caller has it. Without, return None if another one has it. A thread
    that has the claim already gets an empty one, unless the claim is not the thread's but a task's
    (`in_thread`).
    """
    offset = int.from_bytes(key[:8], "little") & SPAN
    name = (path or "", offset)
    if in_thread and name in _mine():
        return Claim(("", -1), None, None)
    if path is None or not HAS_FILE_LOCKS:
        found = _claim_in_process(name, waits)
    else:
        found = _claim_file(path, name, waits)
    if found is not None and in_thread:
        _mine().add(name)
    return found


def _claim_file(path: str, name: tuple[str, int], waits: bool) -> Claim | None:
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    _open_claims.add(file)
    wanted = struct.pack(LAYOUT, fcntl.F_WRLCK, os.SEEK_SET, BASE + name[1], 1, 0)
    try:
        fcntl.fcntl(file, fcntl.F_OFD_SETLKW if waits else fcntl.F_OFD_SETLK, wanted)
    except BaseException as error:
        _open_claims.discard(file)
        os.close(file)
        if isinstance(error, (BlockingIOError, PermissionError)) and not waits:
            return None
        raise
    return Claim(name, file, None)


def _in_a_child() -> None:
    """Close what a forked child has of its parent's claims: the parent's release must end them."""
    _guard.acquire(blocking=False)
    _guard.release()
    _held.names = set()
    for file in _open_claims:
        os.close(file)
    _open_claims.clear()
    _in_process.clear()


os.register_at_fork(after_in_child=_in_a_child)
