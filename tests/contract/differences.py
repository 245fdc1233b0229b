"""The tests of the contract that a server does not pass, each with the reason that the docs give."""

from __future__ import annotations

# A part of a test's name: the heading in docs/guides/postgresql-differences.md that says why.
DIFFERENCES: dict[str, str] = {}


def reason(test: str) -> str | None:
    """The heading for a test; None if a server passes it."""
    return next((heading for part, heading in DIFFERENCES.items() if part in test), None)
