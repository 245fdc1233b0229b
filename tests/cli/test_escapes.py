"""Can names in the file of a stranger control the terminal, or take the place of what a prompt has?"""

from __future__ import annotations

from pathlib import Path

import pellucid
import pytest
from commands import Run, prepared

# The title of the window, the cursor to the begin of the line, a C1 sequence, and text from right to left.
HOSTILE = "\x1b]0;PWNED\x07\r\x9b2J\u202e"
RAW = set(HOSTILE) - set("]0;PWNED2J")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    with pellucid.open(tmp_path / "a.pel") as db:
        table = db.table("t")
        table["k" + HOSTILE] = {"f" + HOSTILE: 1, "g": "v" + HOSTILE}
        table[1] = {f"c{number}{HOSTILE}": number for number in range(30)}
        table.create_index("by" + HOSTILE, pellucid.F["f" + HOSTILE])
        db.table("bad" + HOSTILE)["x"] = {"a": 1}
    return prepared(tmp_path, monkeypatch)


@pytest.mark.parametrize("columns", [200, 50])
@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "a.pel"],
        ["ls", "a.pel"],
        ["ls", "a.pel", "t"],
        ["ls", "a.pel", "none"],
        ["get", "a.pel", "t", "1"],
        ["get", "a.pel", "t", "k" + HOSTILE],
        ["get", "a.pel", "t", "no" + HOSTILE],
        ["query", "a.pel"],
        ["query", "a.pel", "t"],
        ["query", "a.pel", "t", "--where", "none == 5"],
        ["query", "a.pel", "t", "--explain"],
        ["fields", "a.pel", "t"],
        ["index", "a.pel", "t"],
        ["import", "b.pel", "a.json"],
        ["rename", "a.pel", "bad" + HOSTILE, "also" + HOSTILE],
        ["drop", "a.pel", "bad" + HOSTILE, "--yes"],
    ],
    ids=lambda arguments: " ".join(arguments[:1] + arguments[2:4]).encode("ascii", "ignore").decode().strip(),
)
def test_names_and_values_reach_the_terminal_escaped(
    arguments: list[str], columns: int, run: Run, tmp_path: Path
) -> None:
    (tmp_path / "a.json").write_text('{"t": [' + HOSTILE)
    result = run(*arguments, columns=columns)
    assert result.output
    assert not RAW & set(result.output)


def test_a_table_does_not_take_the_name_of_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ["__builtins__", "__name__", "print", "exit", "class", "_", "db", "F", "people", "_own"]
    with pellucid.open(tmp_path / "a.pel") as db:
        for name in names:
            db.table(name)["print"] = {"a": 1}
    run = prepared(tmp_path, monkeypatch)
    program = "import os\nprint(len(people), len(_own), len(db.table('print')), __name__)"
    assert run("shell", "a.pel", text=program).output == "1 1 1 __main__\n"
