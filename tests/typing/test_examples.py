"""Do type checkers say of our names what the examples expect of them?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = Path(__file__).parent / "examples.py"
SAME_VERBS = Path(__file__).parent / "same_verbs.py"


def expected(file: Path) -> dict[int, str]:
    """The comment at the end of each line that has an expectation."""
    lines = enumerate(file.read_text("utf-8").splitlines(), 1)
    found = {number: re.search(r"(?:reveal_type\(.*\)|\S)  # (.+)$", line) for number, line in lines}
    return {number: match[1] for number, match in found.items() if match}


def said(file: Path) -> dict[int, str]:
    """What mypy says of each line: the type revealed, or `error: ` and the message."""
    # A process of its own: mypy's many objects are in the way of tests that look at all there are.
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    options = ["--no-error-summary", "--hide-error-codes", "--no-incremental"]
    command = [*mypy, *options, str(file)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert not done.stderr
    lines = {}
    for line in done.stdout.splitlines():
        match = re.search(rf'{file.stem}\.py:(\d+): (?:note: Revealed type is "(.*)"|(error: .*))$', line)
        if match:
            lines[int(match[1])] = match[2] or match[3]
    return lines


def check(file: Path) -> None:
    wanted, got = expected(file), said(file)
    differences = [
        f"{file.name}:{number}: expected {wanted.get(number)!r}, mypy says {got.get(number)!r}"
        for number in sorted(wanted.keys() | got.keys())
        if not got.get(number, "").startswith(wanted.get(number, "error: unexpected"))
    ]
    assert not differences, "\n".join(["", *differences])


def test_mypy_says_what_the_examples_expect() -> None:
    assert len(expected(EXAMPLES)) > 40
    check(EXAMPLES)


def test_a_file_and_a_server_have_the_same_verbs() -> None:
    assert len(expected(SAME_VERBS)) == 1
    check(SAME_VERBS)
