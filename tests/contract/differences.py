"""The tests of the contract that a server does not pass, each with the reason that the docs give."""

from __future__ import annotations

QUERIES = "Queries and indexes"
DROPPED = "Dropped tables and snapshots"
NUMBERS = "Numbers of append"

# A part of a test's name: the heading in docs/guides/postgresql-differences.md that says why.
DIFFERENCES: dict[str, str] = {
    "test_fields.py::": QUERIES,
    "test_a_database_and_its_snapshots_have_the_verbs_of_a_table": QUERIES,
    "test_a_handle_on_a_dropped_table_says_so_whatever_is_done_with_it": QUERIES,
    "test_every_annotated_field_comes_back_as_its_class": QUERIES,
    # With an index, and with the deletes of a query.
    "test_the_key_of_a_deleted_last_row_is_not_given_again[server-True": QUERIES,
    "test_the_key_of_a_deleted_last_row_is_not_given_again[server-False-<lambda>2]": QUERIES,
    "test_the_key_of_a_deleted_last_row_is_not_given_again[server-False-<lambda>6]": QUERIES,
    "test_a_snapshot_is_frozen": DROPPED,
    "test_a_snapshot_knows_the_names_of_its_time": DROPPED,
    "test_what_a_transaction_took_back_was_given_to_nobody": NUMBERS,
}


def reason(test: str) -> str | None:
    """The heading for a test; None if a server passes it."""
    return next((heading for part, heading in DIFFERENCES.items() if part in test), None)
