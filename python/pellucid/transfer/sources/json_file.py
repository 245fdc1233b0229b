"""This module reads JSON: an array of rows, the rows under a name, or documents; and the files of TinyDB."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import Input, Job, Part, in_chunks
from pellucid.transfer.report import listed
from pellucid.transfer.sources.csv_dialect import encoding_of
from pellucid.transfer.sources.json_values import Decoder
from pellucid.transfer.sources.jsonl import SPACE, reason_of

__all__ = ["is_tinydb", "parts", "parts_of_tinydb"]

PIECE = 1 << 16
ID = re.compile(r"(0|[1-9]\d*)\Z", re.ASCII)


def parts(job: Job) -> Iterator[Part]:
    """The one table of the file. At a path, an array has rows, and an object has keys and rows."""
    with _opened(job) as text:
        if job.path is not None:
            sign = _enter(text, job.path)
            kind, word = ("rows", "element") if sign == "[" else ("pairs", "key")
            yield Part(None, kind, in_chunks(_at_path(text, job.path, sign), word))
        elif text.peek() == "[":
            yield Part(None, "rows", in_chunks(_only(text, _elements(text)), "element"))
        else:
            yield Part(None, "rows", in_chunks(_documents(text), "document"))


def _only(text: Text, rows: Iterator[Any]) -> Iterator[Any]:
    """The rows of a container after which nothing may follow."""
    yield from rows
    if text.peek():
        raise text.error(
            "expected the end; format='jsonl' reads values that follow each other, each of them as a row"
        )


def _documents(text: Text) -> Iterator[tuple[int, Any]]:
    """The values of a text that has any number of them."""
    count = 0
    value: Any = None
    while text.peek():
        value = text.value()
        yield count, value
        count += 1
    if count == 1 and isinstance(value, dict) and (name := _name_of_rows(value)) is not None:
        what = (
            f"path={name!r} stores those under {name!r}"
            if name
            else 'path="" stores its values by their keys'
        )
        text.job.note(f"it is one object, and is stored as one row; {what}")


def _name_of_rows(document: dict[str, Any]) -> str | None:
    """The path under which a document seems to have rows; it is empty if each of its values is one."""
    if len(document) > 1 and all(isinstance(value, dict) for value in document.values()):
        return ""
    lists = [name for name, value in document.items() if isinstance(value, list) and value]
    return next((name for name in lists if isinstance(document[name][0], dict)), None)


def _enter(text: Text, path: tuple[str, ...]) -> str:
    """Read up to the value at a path, and return its first character."""
    for name in path:
        if (sign := text.peek()) != "{":
            raise text.error(f"path= wants an object with {name!r} here, and found {sign or 'the end'!r}")
        others = []
        text.next_sign()
        is_over = text.ends("}")
        while not is_over and (found := _name(text)) != name:
            others.append(found)
            text.value()
            is_over = text.closes("}")
        if is_over:
            has = f"has {listed(others)}" if others else "is empty"
            raise text.error(f"path= wants {name!r}, and the object that ends here {has}")
    sign = text.peek()
    if sign not in ("[", "{"):
        raise text.error(f"path= wants an array or an object here, and found {sign or 'the end'!r}")
    return sign


def _at_path(text: Text, path: tuple[str, ...], sign: str) -> Iterator[tuple[object, Any]]:
    """The rows of the container that begins here; and those at the same path of the documents that follow."""
    while True:
        if sign == "[":
            yield from _elements(text)
        else:
            yield from ((key, (key, row)) for key, row in _members(text))
        for name in reversed(path):
            while not text.closes("}"):
                if _name(text) == name:
                    text.job.note(
                        f"line {text.place()[0]}: the name {name!r:.40} of path= is there twice; the rows "
                        "under the first one are stored"
                    )
                text.value()
        if not text.peek():
            return
        if (found := _enter(text, path)) != sign:
            raise text.error(f"path= found {sign!r} in the document before, and {found!r} here")


def is_tinydb(source: Input) -> bool:
    """Whether a file is one object of tables, each an object of objects whose names are all ids of TinyDB.

    One of them has documents, or is the default table: `{"x": {}}` alone says nothing.
    """
    job = Job(source, None, None, "deny", None, lambda _place, _reason: None, lambda _what: None)
    is_sure = False
    with source.ahead() as file:
        wrapper = io.TextIOWrapper(file, _encoding(job))
        text = Text(job, wrapper)
        try:
            for name, table in _only(text, _members(text)):
                if not isinstance(table, dict) or not all(map(ID.match, table)):
                    return False
                if not all(isinstance(document, dict) for document in table.values()):
                    return False
                is_sure = is_sure or bool(table) or name == "_default"
        except SourceError:
            # What is wrong is said when it is read as JSON.
            return False
        finally:
            wrapper.detach()
    return is_sure


def parts_of_tinydb(job: Job) -> Iterator[Part]:
    """The tables of a TinyDB; the ids of its documents become keys."""
    with _opened(job) as text:
        if text.peek() != "{":
            raise job.damaged("it is no object of tables")
        names = set()
        for name, documents in _only(text, _members(text)):
            if name in names:
                raise job.damaged(f"it has two tables {name!r}")
            names.add(name)
            pairs = _of_table(job, name, documents)
            table = "default" if name == "_default" else name
            yield Part(table, "pairs", in_chunks(((pair[0], pair) for pair in pairs), "document", len(pairs)))


def _of_table(job: Job, table: str, documents: Any) -> list[tuple[int, Any]]:
    if not isinstance(documents, dict):
        raise job.damaged(f"table {table!r} is no object of documents")
    pairs = []
    for number, document in documents.items():
        try:
            pairs.append((int(number), document))
        except ValueError:
            job.skip(f"document {number!r:.40}", f"its id in table {table!r} is no number")
    return pairs


def _encoding(job: Job) -> str:
    return job.encoding or encoding_of(job.input.head)


@contextmanager
def _opened(job: Job) -> Iterator[Text]:
    with job.input.text(_encoding(job)) as file:
        text = Text(job, file)
        yield text
        text.decoder.note(job)


def _elements(text: Text) -> Iterator[tuple[int, Any]]:
    count = 0
    text.next_sign()
    is_over = text.ends("]")
    while not is_over:
        yield count, text.value()
        count += 1
        is_over = text.closes("]")


def _members(text: Text) -> Iterator[tuple[str, Any]]:
    text.next_sign()
    is_over = text.ends("}")
    while not is_over:
        yield _name(text), text.value()
        is_over = text.closes("}")


def _name(text: Text) -> str:
    """The name of a member, up to its colon."""
    key = text.value()
    if not isinstance(key, str):
        raise text.error("expected a name in quotes")
    if (sign := text.next_sign()) != ":":
        raise text.error(f"expected ':' and found {sign or 'the end'!r}")
    return key


class Text:
    """The text of a file, in pieces, from which JSON values are taken one by one."""

    def __init__(self, job: Job, file: io.TextIOWrapper) -> None:
        self.job = job
        self.file = file
        self.decoder = Decoder(job)
        self.decode, self.twice = self.decoder.decode, self.decoder.twice
        self.buffer = ""
        self.position = 0
        self.line = 1
        # How much of the line is before the buffer.
        self.column = 0
        self.is_whole = False

    def fill(self) -> bool:
        """Read on; False at the end of the file."""
        done = self.buffer[: self.position]
        self.line += done.count("\n")
        self.column = len(done) - (done.rfind("\n") + 1) + (0 if "\n" in done else self.column)
        rest = self.buffer[self.position :]
        try:
            # A value that is longer than the buffer is read in pieces that double.
            piece = self.file.read(max(PIECE, len(rest)))
        except UnicodeDecodeError as error:
            raise self.job.damaged(reason_of(error)) from error
        self.buffer, self.position = rest + piece, 0
        self.is_whole = not piece
        return not self.is_whole

    def peek(self) -> str:
        """The next character that is not space; empty at the end."""
        while True:
            found = SPACE.match(self.buffer, self.position)
            self.position = found.end() if found else self.position
            if self.position < len(self.buffer):
                return self.buffer[self.position]
            if not self.fill():
                return ""

    def next_sign(self) -> str:
        """The next character that is not space, which is then behind us."""
        sign = self.peek()
        self.position += len(sign)
        return sign

    def ends(self, closing: str) -> bool:
        """Whether the container is empty; then it is behind us."""
        if self.peek() != closing:
            return False
        self.next_sign()
        return True

    def closes(self, closing: str) -> bool:
        """Whether the container ends here; else a comma must follow."""
        sign = self.next_sign()
        if sign == closing:
            return True
        if sign != ",":
            raise self.error(f"expected ',' or {closing!r} and found {sign or 'the end'!r}")
        return False

    def value(self) -> Any:
        """The next value."""
        self.peek()
        while True:
            start = self.position
            try:
                value, end = self.decode(self.buffer, self.position)
            except RecursionError:
                raise self.error("nested too deeply") from None
            except ValueError as error:
                if self.fill():
                    continue
                if isinstance(error, json.JSONDecodeError):
                    self.position = min(self.position + error.pos - start, len(self.buffer))
                    raise self.error(error.msg[0].lower() + error.msg[1:]) from None
                raise self.error(str(error)) from None
            # A number at the end of the buffer may go on.
            if end < len(self.buffer) or not self.fill():
                if self.twice:
                    self.decoder.place(f"line {self.place()[0]}")
                self.position = end
                return value

    def place(self) -> tuple[int, int]:
        """The line and the column of the current position."""
        before = self.buffer[: self.position]
        column = self.position - (before.rfind("\n") + 1) + 1 + (0 if "\n" in before else self.column)
        return self.line + before.count("\n"), column

    def error(self, what: str) -> SourceError:
        """The `SourceError` for the current position."""
        line, column = self.place()
        return self.job.damaged(f"line {line}, column {column}: {what}")
