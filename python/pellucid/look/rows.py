"""This module has the list of rows that a prompt and a notebook show as a table."""

from __future__ import annotations

from collections.abc import Iterable
from operator import is_
from typing import Any, TypeVar

from pellucid.look import show

__all__ = ["Rows"]

V = TypeVar("V")


class Rows(list[V]):
    """A list of rows, which a prompt and a notebook show as a table.

    `table.head()` and its kin return it. It is a list in all else.
    """

    __slots__ = ("_given", "_keys", "_note")

    def __init__(self, rows: Iterable[V] = (), keys: list[Any] | None = None, note: str = "") -> None:
        super().__init__(rows)
        self._keys = keys
        self._given = [] if keys is None else list(self)
        self._note = note

    @property
    def note(self) -> str:
        """What is to be said of the rows, such as that they are a sample; else an empty text."""
        return self._note

    def _shown(self) -> tuple[list[V], list[Any] | None, str]:
        # After a change of the list, the keys would be those of other rows.
        is_as_given = len(self._given) == len(self) and all(map(is_, self._given, self))
        return self, self._keys if is_as_given else None, self._note

    def __repr__(self) -> str:
        return show.text_of_rows(*self._shown())

    def _repr_html_(self) -> str:
        return show.html_of_rows(*self._shown())
