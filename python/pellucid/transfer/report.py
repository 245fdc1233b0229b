"""This module has the reports of imports, exports and copies."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SKIPPED_KEPT", "CopyReport", "ExportReport", "ImportReport", "Skipped"]

# Most rows whose reasons a report keeps: a file of nothing but broken rows must not fill memory.
SKIPPED_KEPT = 1000
SHOWN = 10


class Skipped(NamedTuple):
    """A row that was left out: where it is in the source, and why it was left out."""

    place: str
    reason: str


class _Report:
    def __init__(self, name: str) -> None:
        self.name = name
        self.format = ""
        self.rows = 0
        self.skipped: list[Skipped] = []
        self.skipped_count = 0
        self.notes: list[str] = []
        self.seconds = 0.0

    def skip(self, place: str, reason: str) -> None:
        """Note a row that is left out."""
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_KEPT:
            self.skipped.append(Skipped(place, reason))

    def note(self, what: str) -> None:
        """Note once what the reader of the report should know of the whole."""
        if what not in self.notes:
            self.notes.append(what)

    def _end(self) -> str:
        return f", {self.skipped_count:,} skipped" if self.skipped_count else ""

    def __str__(self) -> str:
        lines = [repr(self)[1:-1].partition(": ")[2], *(f"  {note}" for note in self.notes)]
        lines += [f"  skipped {place}: {reason}" for place, reason in self.skipped[:SHOWN]]
        if self.skipped_count > SHOWN:
            lines.append(f"  and {self.skipped_count - SHOWN:,} more")
        return "\n".join(lines)


class ImportReport(_Report):
    """What an import did; `str` has the reasons of the first skipped rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tables: dict[str, int] = {}
        self.replaced = 0
        # What became of rows with keys, if `on_conflict` asks for that.
        self.on_conflict: str | None = None
        self.counts = dict.fromkeys(("new", "changed", "same", "ignored"), 0)
        self.made_dicts = 0
        self.dry_run = False
        self.verified = False

    def __repr__(self) -> str:
        into = [repr(table) for table in self.tables]
        tables = f"table{'s' if len(into) > 1 else ''} {', '.join(into)}" if into else "no table"
        if self.on_conflict is not None:
            notes = "".join(f", {count:,} {what}" for what, count in self.counts.items() if count)
        else:
            notes = self._replaced()
        notes += ", verified" if self.verified else ""
        notes += " (dry run: nothing was stored)" if self.dry_run else ""
        head = f"{_rows(self.rows)} of {self.name} ({self.format}) in {tables}"
        return f"<ImportReport: {head}{self._end()}{notes}>"

    def _replaced(self) -> str:
        return f", {self.replaced:,} of them in place of others with the same key" if self.replaced else ""

    @property
    def new(self) -> int:
        """How many rows have keys that the table did not have. Without `on_conflict`, it is 0."""
        return self.counts["new"]

    @property
    def changed(self) -> int:
        """How many rows are stored in place of another one, or merged with it."""
        return self.counts["changed"]

    @property
    def same(self) -> int:
        """How many rows were there already, and are the same."""
        return self.counts["same"]

    @property
    def ignored(self) -> int:
        """How many rows of the source were left out for one that was there."""
        return self.counts["ignored"]

    def end(self) -> None:
        """Note what is known at the end only."""
        if self.made_dicts:
            self.note(
                f"{_rows(self.made_dicts)} got a dict in place of an OrderedDict, defaultdict or Counter; "
                'these stay what they are in a database opened with pickle="allow"'
            )


class ExportReport(_Report):
    """What an export wrote."""

    def __repr__(self) -> str:
        return f"<ExportReport: {_rows(self.rows)} in {self.name} ({self.format}){self._end()}>"


class CopyReport(_Report):
    """What a copy stored."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tables: dict[str, int] = {}
        self.verified = False

    def __repr__(self) -> str:
        tables = "1 table" if len(self.tables) == 1 else f"{len(self.tables):,} tables"
        notes = ", verified" if self.verified else ""
        return f"<CopyReport: {_rows(self.rows)} in {tables} of {self.name}{notes}>"


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"
