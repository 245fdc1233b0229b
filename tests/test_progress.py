"""Do check, backup and compact say how far they are?"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pellucid
import pytest

WORK: dict[str, Callable[..., Any]] = {
    "check": lambda db, path, **options: db.check(**options),
    "backup": lambda db, path, **options: db.backup(path.with_name("backup.pel"), **options),
    "compact": lambda db, path, **options: db.compact(**options),
}
work = pytest.mark.parametrize("work", WORK.values(), ids=WORK)


@pytest.fixture
def large(path: Path) -> Path:
    """A database with an index and a large value."""
    with pellucid.open(path) as db:
        table = db.table("rows")
        table.create_index("by_n", "n")
        table.extend({"n": number, "text": "x" * 100} for number in range(20_000))
        table.append({"n": 0, "text": "x" * 100_000})
    return path


@work
def test_progress_ascends_to_the_number_of_all_entries(work: Callable[..., Any], large: Path) -> None:
    told: list[tuple[int, int]] = []
    with pellucid.open(large) as db:
        work(db, large, progress=lambda *figures: told.append(figures))
    assert told == sorted(told)
    assert len(told) > 1
    assert all(0 < done <= total for done, total in told)
    assert told[-1][0] == told[-1][1]
    # The total is about right from the beginning.
    assert told[-1][1] <= told[0][1] * 1.2
    assert told[0][0] < told[0][1]


@work
def test_a_function_that_raises_ends_the_work(work: Callable[..., Any], large: Path) -> None:
    def refuse(_done: int, _total: int) -> None:
        raise LookupError("enough")

    with pellucid.open(large) as db:
        with pytest.raises(LookupError, match="enough"):
            work(db, large, progress=refuse)
        assert len(db.table("rows")) == 20_001
    assert [found.name for found in large.parent.iterdir()] == [large.name]


@work
def test_a_function_may_use_and_close_the_database(work: Callable[..., Any], large: Path) -> None:
    db = pellucid.open(large)

    def close(_done: int, _total: int) -> None:
        if not db.closed:
            with pytest.raises(pellucid.Error):
                db.compact()
        db.close()

    # Some of the work needs only what it has already.
    with suppress(pellucid.Closed):
        work(db, large, progress=close)
    with pellucid.open(large) as again:
        assert len(again.table("rows")) == 20_001
        assert again.check() == []


@work
def test_what_is_no_function_is_refused(work: Callable[..., Any], path: Path) -> None:
    with pellucid.open(path) as db, pytest.raises(TypeError, match=r"of \(entries done, entries\)"):
        work(db, path, progress=True)
