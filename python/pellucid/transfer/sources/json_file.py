"""This module reads a JSON file of one array or object, element by element, and the files of TinyDB."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pellucid.errors import SourceError
from pellucid.transfer.job import Job, Part, in_chunks
from pellucid.transfer.sources.jsonl import BOMS_UTF16, reason_of

__all__ = ["parts", "parts_of_tinydb"]

PIECE = 1 << 16
SPACE = re.compile(r"[ \t\r\n]*")


def parts(job: Job) -> Iterator[Part]:
    """The one table of the file: an array has rows, an object has keys and rows."""
    with _opened(job) as text:
        opening = text.next_sign()
        if opening == "[":
            yield Part(None, "rows", in_chunks(_elements(text), "element"))
        elif opening == "{":
            yield Part(None, "pairs", in_chunks(((key, (key, row)) for key, row in _members(text)), "key"))
        else:
            raise job.damaged(f"it begins with {opening!r}, and not with an array or an object")


def parts_of_tinydb(job: Job) -> Iterator[Part]:
    """The tables of a TinyDB; the ids of its documents become keys."""
    with _opened(job) as text:
        if text.next_sign() != "{":
            raise job.damaged("it is no object of tables")
        for name, documents in _members(text):
            pairs = _documents(job, name, documents)
            table = "default" if name == "_default" else name
            yield Part(table, "pairs", in_chunks(((pair[0], pair) for pair in pairs), "document", len(pairs)))


def _documents(job: Job, table: str, documents: Any) -> list[tuple[int, Any]]:
    if not isinstance(documents, dict):
        raise job.damaged(f"table {table!r} is no object of documents")
    try:
        return [(int(number), document) for number, document in documents.items()]
    except ValueError:
        raise job.damaged(f"table {table!r} has a document whose id is no number") from None


@contextmanager
def _opened(job: Job) -> Iterator[Text]:
    encoding = job.encoding or ("utf-16" if job.input.head[:2] in BOMS_UTF16 else "utf-8-sig")
    with job.input.text(encoding) as file:
        yield Text(job, file)


def _elements(text: Text) -> Iterator[tuple[int, Any]]:
    count = 0
    if text.ends("]"):
        return
    while True:
        yield count, text.value()
        count += 1
        if text.closes("]"):
            return


def _members(text: Text) -> Iterator[tuple[str, Any]]:
    if text.ends("}"):
        return
    while True:
        key = text.value()
        if not isinstance(key, str):
            raise text.error("expected a name in quotes")
        if (sign := text.next_sign()) != ":":
            raise text.error(f"expected ':' and found {sign!r}")
        yield key, text.value()
        if text.closes("}"):
            return


class Text:
    """The text of a file, in pieces, from which JSON values are taken one by one."""

    def __init__(self, job: Job, file: io.TextIOWrapper) -> None:
        self.job = job
        self.file = file
        self.buffer = ""
        self.position = 0
        self.line = 1
        # How much of the line is before the buffer.
        self.column = 0
        self.is_whole = False
        self.decoder = json.JSONDecoder()

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
        self.check_end()
        return True

    def closes(self, closing: str) -> bool:
        """Whether the container ends here; else a comma must follow."""
        sign = self.next_sign()
        if sign == closing:
            self.check_end()
            return True
        if sign != ",":
            raise self.error(f"expected ',' or {closing!r} and found {sign or 'the end'!r}")
        return False

    def check_end(self) -> None:
        """Raise if anything follows."""
        if self.peek():
            raise self.error("expected the end; a file of one JSON value in each line has format='jsonl'")

    def value(self) -> Any:
        """The next value."""
        self.peek()
        while True:
            start = self.position
            try:
                value, end = self.decoder.raw_decode(self.buffer, self.position)
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
                self.position = end
                return value

    def error(self, what: str) -> SourceError:
        """The `SourceError` for the current position."""
        before = self.buffer[: self.position]
        line = self.line + before.count("\n")
        column = self.position - (before.rfind("\n") + 1) + 1 + (0 if "\n" in before else self.column)
        return self.job.damaged(f"line {line}, column {column}: {what}")
