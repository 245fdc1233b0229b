"""This module reports the progress of long work: to a function of the caller, or as a line on a terminal."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import TextIO

__all__ = ["Line", "Pace", "Report"]

Report = Callable[[int, "float | None"], object]

PAUSE_SECONDS = 0.1
WIDTH_OF_BAR = 20


class Pace:
    """Calls a function with the progress, at most ten times a second and once at the end."""

    def __init__(self, progress: bool | Report) -> None:
        self.line = Line(sys.stderr) if progress is True else None
        self.report: Report | None = self.line or (progress if callable(progress) else None)
        self.due = 0.0

    def step(self, rows: int, share: float | None) -> None:
        """Report the number of rows that are done, and which part of all that is."""
        if self.report is not None and (now := time.monotonic()) >= self.due:
            self.due = now + PAUSE_SECONDS
            self.report(rows, share)

    def end(self, rows: int) -> None:
        """Say that everything is done."""
        if self.report is not None:
            self.report(rows, 1.0)

    def clear(self) -> None:
        """Remove the line, whether or not the work came to its end."""
        if self.line is not None:
            self.line.clear()


class Line:
    """A line with the rows, the rate and the time left. It is drawn on a terminal only."""

    def __init__(self, stream: TextIO, unit: str = "rows") -> None:
        self.stream = stream
        self.unit = unit
        self.begun = time.monotonic()
        self.is_shown = stream.isatty()
        self.is_drawn = False

    def __call__(self, done: int, share: float | None) -> None:
        """Draw the line again."""
        if self.is_shown:
            width = shutil.get_terminal_size().columns - 1
            self.stream.write("\r\x1b[K" + self.text(done, share, time.monotonic() - self.begun, width))
            self.stream.flush()
            self.is_drawn = True

    def text(self, done: int, share: float | None, seconds: float, width: int) -> str:
        """The line, with as many of its parts as the width has room for."""
        rate = done / seconds if seconds > 0 else 0.0
        parts = [f"{done:,} {self.unit}"]
        if share is not None:
            left = seconds / share * (1 - share) if share > 0 else 0.0
            parts = [f"{share:4.0%}", *parts, f"{_clock(left)} left"]
        parts.append(f"{rate:,.0f} {self.unit}/s")
        while len(parts) > 1 and len("  ".join(parts)) > width:
            parts.pop()
        text = "  ".join(parts)
        if share is not None and len(text) + WIDTH_OF_BAR + 2 <= width:
            filled = round(share * WIDTH_OF_BAR)
            text = "#" * filled + "." * (WIDTH_OF_BAR - filled) + "  " + text
        return text[:width]

    def clear(self) -> None:
        """Remove the line from the terminal."""
        if self.is_drawn:
            self.stream.write("\r\x1b[K")
            self.stream.flush()
            self.is_drawn = False


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
