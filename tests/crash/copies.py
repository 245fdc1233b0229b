"""Is a copy of a database's files that is too short, or of different moments, taken for what it is not?

Each image is cut at every page, its data file and its log. And a database is copied at several moments of its
life; the data file of one is used with the log of another, as in a backup that copies the two one after the
other. A copy may be refused. If it is not, it is what the database was at one moment, nothing that is whole
in the log is missing, and whoever opens it is warned of what is.
"""

from __future__ import annotations

import ast
import functools
import os
import signal
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pellucid
from pellucid._native import _testing

from crash.flips import PAGE, Expected, Tally, UnnoticedError, expected_of_log, use_copy, whole_without
from crash.images import (
    POPULATIONS,
    SEGMENT_SIZE,
    Image,
    commit_to,
    content_of,
    contents_after,
    done_in_child,
    images,
    log_of,
    rows_of,
)

MOMENTS = ["indexes", "large values", "compressed", "objects"]
"""The populations that are copied at several moments."""


@dataclass(frozen=True)
class Case:
    """A copy that is used."""

    name: str
    make: Callable[[], tuple[bytes, bytes]]
    """Gives the data file and the log."""
    expected: Expected


def run(seed: int, folder: Path, cases: list[Case]) -> Tally:
    """Use one of the copies in this process."""
    case = cases[seed]
    return use_copy(seed, folder, case.name, case.make(), case.expected, is_copy=True)


def cases(folder: Path, names: list[str] | None = None) -> list[Case]:
    """All copies, always in the same order."""
    made = [case for image in images(folder, names) for case in _cuts(image)]
    for name in names or MOMENTS:
        moments = moments_of(name, folder / "moments.pel")
        made += [_mixed(one, other) for one in moments for other in moments]
        made += [_mixed(one, None) for one in moments]
    return made


# Cut


def _cuts(image: Image) -> Iterator[Case]:
    whole = whole_without(image)
    for size in range(0, len(image.data), PAGE):
        contents = image.contents if size else [*image.contents, 0]
        yield Case(
            f"'{image.name}', the data file cut at {size}",
            functools.partial(_cut_data, image, size),
            Expected(contents, whole, is_new=size == 0),
        )
    log = image.log.rstrip(b"\0")
    for size in range(PAGE, len(log), PAGE):
        yield Case(
            f"'{image.name}', the log cut at {size}",
            functools.partial(_cut_log, image, size),
            expected_of_log(image, size),
        )


def _cut_data(image: Image, size: int) -> tuple[bytes, bytes]:
    return image.data[:size], image.log


def _cut_log(image: Image, size: int) -> tuple[bytes, bytes]:
    return image.data, image.log[:size]


# Of different moments


@dataclass(frozen=True)
class Moment:
    """The files of a database at one moment."""

    name: str
    data: bytes
    log: bytes
    commits: int
    """How many commits there were."""
    applied: int
    """How many of them the data file has."""
    contents: list[int]
    """What was there after each commit."""


class Mixed(Expected):
    """What may be in a data file of one moment that is used with the log of another."""

    def __init__(self, one: Moment, other: Moment | None) -> None:
        super().__init__(one.contents, 0)
        self.one, self.other = one, other

    @property
    def lacks_values(self) -> bool:
        """Whether the log may refer to large values that this data file does not have yet."""
        is_later = self.other is not None and self.other.commits > self.one.commits
        return is_later and "large values" in self.one.name

    def judge(self, content: int, told: list[str]) -> str:
        commits = max(number for number, one in enumerate(self.contents) if one == content)
        in_log = self.other.commits if self.other is not None and self.other.log else 0
        if self.lacks_values and told and commits < in_log:
            return "warned of lost commits"
        if commits not in (self.one.applied, in_log):
            raise UnnoticedError(f"it has {commits} commits")
        if commits < in_log:
            raise UnnoticedError(f"it has {commits} of the {in_log} commits in the log")
        if commits >= self.one.commits or commits == in_log:
            # Or the data file was the same when this log was copied, at an earlier moment.
            return "sound"
        if not told:
            raise UnnoticedError(f"it has {commits} of {self.one.commits} commits, and nobody is warned")
        return "warned of lost commits"


def _mixed(one: Moment, other: Moment | None) -> Case:
    log = other.log if other is not None else b""
    beside = f"the log of '{other.name}'" if other is not None else "no log"
    return Case(f"the data file of '{one.name}' with {beside}", lambda: (one.data, log), Mixed(one, other))


def moments_of(name: str, path: Path) -> list[Moment]:
    """Make a database, and copy its files at several moments of its life."""
    make, commits, how = POPULATIONS[name]
    all_commits = list(commits())
    told = path.with_name("told.txt")

    def live() -> None:
        _testing.limit_log(SEGMENT_SIZE)
        copies: list[tuple[str, int]] = []

        def copy(what: str, done: int) -> None:
            copies.append((what, done))
            for file, kind in ((path, "data"), (log_of(path), "log")):
                there = file.read_bytes() if file.exists() else b""
                path.with_name(f"{kind} {len(copies) - 1}").write_bytes(there)

        with pellucid.open(path, "n", **how) as db:
            make(db)
        copy("made", 0)
        third = len(all_commits) // 3
        db = pellucid.open(path, "w")
        for done, commit in enumerate(all_commits, 1):
            commit_to(db, commit)
            if done % third == third // 2:
                copy("in the log", done)
            if done in (third, 2 * third):
                db.sync()
                copy("after a checkpoint", done)
            if done == third + third // 3:
                db.close()
                copy("at rest", done)
                db = pellucid.open(path, "w")
        copy("at the end", len(all_commits))
        told.write_text(repr(copies))
        os.kill(os.getpid(), signal.SIGKILL)

    done_in_child(live, by=signal.SIGKILL)
    contents = contents_after(name, path.with_name("data 0"))
    moments = []
    for number, (what, done) in enumerate(ast.literal_eval(told.read_text())):
        data, log = (path.with_name(f"{kind} {number}") for kind in ("data", "log"))
        applied = _content_alone(data)
        moments.append(
            Moment(
                f"{name}, {what} {done}",
                data.read_bytes(),
                log.read_bytes(),
                done,
                contents.index(applied),
                contents,
            )
        )
    for file in path.parent.iterdir():
        if file.is_file():
            file.unlink()
    return moments


def _content_alone(path: Path) -> int:
    """What a data file has without its log."""
    told = path.with_name("alone.txt")

    def look() -> None:
        warnings.simplefilter("ignore")
        with pellucid.open(path, "r") as db:
            told.write_text(str(content_of(rows_of(db))))

    done_in_child(look)
    return int(told.read_text())
