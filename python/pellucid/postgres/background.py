"""Work that runs in a thread, whose result is asked for later.

Each piece of work has a thread of its own, which ends with it. A pool would keep its threads: in a forked
child it still counts those of the parent, and after its end it takes no more work.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

from pellucid.errors import TransactionError

T = TypeVar("T")


def of_parent() -> TransactionError:
    """Return the exception for a forked child that goes on with what its parent has begun."""
    return TransactionError(
        "this transaction, snapshot or iterator belongs to the parent process; begin a new one after a fork"
    )


class Task(Generic[T]):
    """Work in a thread."""

    def __init__(self, work: Callable[[], T]) -> None:
        self._process = os.getpid()
        self._done = threading.Event()
        self._results: list[T] = []
        self._error: BaseException | None = None
        # This object does not refer to the work, which may refer to this object.
        threading.Thread(target=self._run, args=(work,), name="pellucid").start()

    def _run(self, work: Callable[[], T]) -> None:
        try:
            self._results.append(work())
        except BaseException as error:
            self._error = error
        finally:
            self._done.set()

    def wait(self) -> None:
        """Wait for its end. Raises `TransactionError` in a forked child, which does not have the thread."""
        if self._process != os.getpid():
            raise of_parent()
        self._done.wait()

    def result(self) -> T:
        """Wait for its end, and return what it has returned, or raise what it has raised."""
        self.wait()
        if self._error is not None:
            raise self._error
        return self._results[0]


def started(work: Callable[[], T]) -> Task[T] | None:
    """Start work in a thread; None where no thread can be started, and the caller has to do the work itself.

    That is so while the interpreter ends, and beyond the system's limit of threads.
    """
    try:
        return Task(work)
    except RuntimeError:
        return None
