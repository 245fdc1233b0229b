"""This module has the reports of imports, exports and copies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

__all__ = ["SKIPPED_KEPT", "CopyReport", "ExportReport", "ImportReport", "Skipped", "listed"]

# Most reasons and most notes that a report keeps: a file of nothing but broken rows must not fill memory.
SKIPPED_KEPT = 1000
SHOWN = 10
NAMES_SHOWN = 20
# What becomes of a row with a key: the table did not have the key; the row is stored in place of another
# one, or merged with it; the table had the same row; it was left out for the row that the table had.
OUTCOMES = ("new", "changed", "same", "ignored")


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
        self.notes_count = 0
        self._noted: set[str] = set()
        self.seconds = 0.0

    def skip(self, place: str, reason: str) -> None:
        """Note a row that is left out."""
        self.skipped_count += 1
        if len(self.skipped) < SKIPPED_KEPT:
            self.skipped.append(Skipped(place, reason))

    def note(self, what: str) -> None:
        """Note once what the reader of the report should know of the whole."""
        if what in self._noted:
            return
        self.notes_count += 1
        if len(self.notes) < SKIPPED_KEPT:
            self.notes.append(what)
            self._noted.add(what)

    def _end(self) -> str:
        return f", {self.skipped_count:,} skipped" if self.skipped_count else ""

    def __str__(self) -> str:
        lines = [repr(self)[1:-1].partition(": ")[2], *(f"  {note}" for note in self.notes[:SHOWN])]
        if self.notes_count > SHOWN:
            lines.append(f"  and {self.notes_count - SHOWN:,} more notes")
        lines += [f"  skipped {place}: {reason}" for place, reason in self.skipped[:SHOWN]]
        if self.skipped_count > SHOWN:
            lines.append(f"  and {self.skipped_count - SHOWN:,} more")
        return "\n".join(lines)


class ImportReport(_Report):
    """What an import did; `str` has the reasons of the first skipped rows."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tables: dict[str, int] = {}
        # The types of the columns, for a source that has none and so got them from the values.
        self.columns: dict[str, str] = {}
        self.replaced = 0
        # What became of rows with keys, if `on_conflict` asks for that: see `OUTCOMES`.
        self.on_conflict: str | None = None
        self.new = self.changed = self.same = self.ignored = 0
        self.made_dicts = 0
        self.dry_run = False
        self.verified = False

    def __repr__(self) -> str:
        into = f"table{'s' if len(self.tables) > 1 else ''} {listed(self.tables)}"
        tables = into if self.tables else "no table"
        if self.on_conflict is not None:
            counts = [(what, getattr(self, what)) for what in OUTCOMES]
            notes = "".join(f", {count:,} {what}" for what, count in counts if count)
        else:
            notes = (
                f", {self.replaced:,} of them in place of others with the same key" if self.replaced else ""
            )
        notes += ", verified" if self.verified else ""
        notes += " (dry run: nothing was stored)" if self.dry_run else ""
        head = f"{_rows(self.rows)} of {self.name} ({self.format}) in {tables}"
        return f"<ImportReport: {head}{self._end()}{notes}>"

    def became(self, what: str) -> None:
        """Count what became of a row with a key: one of `OUTCOMES`."""
        setattr(self, what, getattr(self, what) + 1)

    def end(self) -> None:
        """Note what is known at the end only."""
        if self.made_dicts:
            self.note(
                f"{_rows(self.made_dicts)} got a dict in place of an OrderedDict, defaultdict or Counter; "
                'these stay what they are in a database opened with pickle="allow"'
            )


class ExportReport(_Report):
    """What an export wrote."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.tables: dict[str, int] = {}

    def __repr__(self) -> str:
        tables = f" of {len(self.tables):,} tables" if len(self.tables) > 1 else ""
        return f"<ExportReport: {_rows(self.rows)}{tables} in {self.name} ({self.format}){self._end()}>"


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


def listed(names: Iterable[str]) -> str:
    """Names in quotes and with commas, as a message has them; of very many, the first ones."""
    names = list(names)
    more = f" and {len(names) - NAMES_SHOWN:,} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(map(repr, names[:NAMES_SHOWN])) + more
