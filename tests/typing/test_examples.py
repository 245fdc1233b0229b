"""Do type checkers say of our names what the examples expect of them?"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = Path(__file__).parent / "examples.py"


def expected() -> dict[int, str]:
    """The comment at the end of each line that has an expectation."""
    lines = enumerate(EXAMPLES.read_text("utf-8").splitlines(), 1)
    found = {number: re.search(r"(?:reveal_type\(.*\)|\S)  # (.+)$", line) for number, line in lines}
    return {number: match[1] for number, match in found.items() if match}


def said() -> dict[int, str]:
    """What mypy says of each line: the type revealed, or `error: ` and the message."""
    # A process of its own: mypy's many objects are in the way of tests that look at all there are.
    mypy = [sys.executable, "-m", "mypy", "--config-file", str(ROOT / "pyproject.toml")]
    options = ["--no-error-summary", "--hide-error-codes", "--no-incremental"]
    command = [*mypy, *options, str(EXAMPLES)]
    done = subprocess.run(command, check=False, cwd=ROOT, capture_output=True, text=True)
    assert not done.stderr
    lines = {}
    for line in done.stdout.splitlines():
        match = re.search(r'examples\.py:(\d+): (?:note: Revealed type is "(.*)"|(error: .*))$', line)
        if match:
            lines[int(match[1])] = match[2] or match[3]
    return lines


def test_mypy_says_what_the_examples_expect() -> None:
    wanted, got = expected(), said()
    assert len(wanted) > 40
    differences = [
        f"examples.py:{number}: expected {wanted.get(number)!r}, mypy says {got.get(number)!r}"
        for number in sorted(wanted.keys() | got.keys())
        if not got.get(number, "").startswith(wanted.get(number, "error: unexpected"))
    ]
    assert not differences, "\n".join(["", *differences])
