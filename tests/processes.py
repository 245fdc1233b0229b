"""How do tests let another process use a database?"""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

# For a script whose memory is measured. Not ru_maxrss, which on Linux a program inherits from the one that
# started it: a test beside large ones would measure those.
PEAK_MEMORY = """
def peak_memory():
    # KiB that this program has had at most.
    try:
        with open("/proc/self/status") as status:
            return int(status.read().split("VmHWM:")[1].split()[0])
    except FileNotFoundError:  # macOS, which counts anew for each program, in bytes
        import resource
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
"""


def fork() -> int:
    """As `os.fork`, without its warning of threads: libraries have some, and a child of a test uses none."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def in_child(work: Callable[[], object]) -> None:
    """Do work in a forked child, which fails the test if it raises or does not end."""
    child = fork()
    if child == 0:
        status = 1
        try:
            signal.alarm(60)
            work()
            status = 0
        except BaseException:
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0


# Reads a line with a piece of code, does it, answers with a line. What it defines stays for the next piece.
CHILD = """
import os, sys, threading, time, warnings
import pellucid

room = {"pellucid": pellucid, "os": os, "threading": threading, "time": time}
for line in sys.stdin:
    code = eval(line)
    try:
        try:
            answer = ("gives", eval(code, room))
        except SyntaxError:
            exec(code, room)
            answer = ("gives", None)
    except BaseException as error:
        answer = ("raises", type(error).__name__, str(error))
    print(repr(answer), flush=True)
"""


class Raised(Exception):
    """What the code in the other process raised: the name of its class, and its message."""


class Child:
    """Another process. Calling it runs code there, and gives what an expression is worth."""

    def __init__(self, path: Path | None = None, *, preload: str = "", **options: Any) -> None:
        environment = {**os.environ, "LD_PRELOAD": preload} if preload else None
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        self.pid = self.process.pid
        self.preload = preload
        if path is not None:
            self(f"db = pellucid.open({str(path)!r}, **{options!r})")

    def send(self, code: str) -> None:
        """Begin to run code there, without waiting for the answer."""
        assert self.process.stdin is not None
        self.process.stdin.write(repr(code) + "\n")
        self.process.stdin.flush()

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the other process ended with {self.process.wait()}"
        kind, *rest = ast.literal_eval(line)
        if kind == "raises":
            raise Raised(*rest)
        return rest[0]

    def __call__(self, code: str) -> Any:
        self.send(code)
        return self.answer()

    def kill(self) -> None:
        """End it as a power cut would end it."""
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()
        if self.process.wait(60) != 0:
            assert self.process.returncode < 0
