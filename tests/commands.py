"""How do tests run the command `pellucid`, and on which rows?"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from pellucid.cli import app

ROWS = (
    '{"name": "Ann", "age": 30, "city": "Bath", "tags": ["a"], "address": {"zip": "BA1"}}\n'
    '{"name": "Bob", "age": 19, "city": "York", "note": "\\u001b[31mred"}\n'
    '{"name": "Cid", "age": 41, "city": "Bath"}\n'
)

Run = Callable[..., Result]


def prepared(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """A function that runs the command in a folder with `people.jsonl`, in this process."""
    monkeypatch.chdir(folder)
    (folder / "people.jsonl").write_text(ROWS)

    def run(*words: str, text: str | bytes = "", columns: int = 100) -> Result:
        return CliRunner().invoke(
            app.command,
            words,
            input=text,
            env={"COLUMNS": str(columns)},
            prog_name="pellucid",
            catch_exceptions=False,
        )

    return run
