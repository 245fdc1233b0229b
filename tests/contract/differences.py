"""The tests of the contract that a server does not pass, each with the reason that the docs give."""

from __future__ import annotations

MISSING = "Not there yet"
DROPPED = "Dropped tables and snapshots"
NUMBERS = "Numbers of append"

# A part of a test's name: the heading in docs/guides/postgresql-differences.md that says why.
DIFFERENCES: dict[str, str] = {
    "test_a_database_and_its_snapshots_have_the_verbs_of_a_table": MISSING,
    "test_indexes.py::test_a_batch_says_which_of_its_rows_was_refused": MISSING,
    "test_indexes.py::test_indexes_are_described": MISSING,
    "test_indexes.py::test_a_write_that_leaves_the_indexed_fields_writes_no_entry": MISSING,
    "test_indexes.py::test_a_snapshot_has_its_indexes": DROPPED,
    "test_a_snapshot_is_frozen": DROPPED,
    "test_a_snapshot_knows_the_names_of_its_time": DROPPED,
    "test_what_a_transaction_took_back_was_given_to_nobody": NUMBERS,
}


def reason(test: str) -> str | None:
    """The heading for a test; None if a server passes it."""
    return next((heading for part, heading in DIFFERENCES.items() if part in test), None)
