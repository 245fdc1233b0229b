"""Do type checkers say of our names what the examples expect of them?"""

from __future__ import annotations

import re
from pathlib import Path

from mypy import api

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = Path(__file__).parent / "examples.py"


def expected() -> dict[int, str]:
    """The comment at the end of each line that has an expectation."""
    lines = enumerate(EXAMPLES.read_text("utf-8").splitlines(), 1)
    found = {number: re.search(r"(?:reveal_type\(.*\)|\S)  # (.+)$", line) for number, line in lines}
    return {number: match[1] for number, match in found.items() if match}


def said() -> dict[int, str]:
    """What mypy says of each line: the type revealed, or `error: ` and the message."""
    arguments = ["--config-file", str(ROOT / "pyproject.toml"), "--no-error-summary", "--hide-error-codes"]
    report, trouble, _ = api.run([*arguments, "--no-incremental", str(EXAMPLES)])
    assert not trouble
    lines = {}
    for line in report.splitlines():
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
