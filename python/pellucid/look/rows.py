"""This module has the list of rows that a prompt and a notebook show as a table."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from pellucid.look import show

__all__ = ["Rows"]

V = TypeVar("V")


class Rows(list[V]):
    """A list of rows, which a prompt and a notebook show as a table.

    `table.head()` and its kin return it. It is a list in all else.
    """

    __slots__ = ("_keys", "_note")

    def __init__(self, rows: Iterable[V] = (), keys: list[Any] | None = None, note: str = "") -> None:
        super().__init__(rows)
        self._keys = keys
        self._note = note

    @property
    def note(self) -> str:
        """What is to be said of the rows, such as that they are a sample; else an empty text."""
        return self._note

    def _shown(self) -> tuple[list[V], list[Any] | None, str]:
        # After a change of the list, the keys would be those of other rows.
        keys = self._keys if self._keys is not None and len(self._keys) == len(self) else None
        return self, keys, self._note

    def __repr__(self) -> str:
        return show.text_of_rows(*self._shown())

    def _repr_html_(self) -> str:
        return show.html_of_rows(*self._shown())
