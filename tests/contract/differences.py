"""The tests of the contract that a server does not pass, each with the reason that the docs give."""

from __future__ import annotations

MISSING = "Not there yet"
CLASSES = "Classes of their own"
FIGURES = "Figures, buffers and files"
DROPPED = "Dropped tables and snapshots"
NUMBERS = "Numbers of append"

# A part of a test's name: the heading in docs/guides/postgresql-differences.md that says why.
DIFFERENCES: dict[str, str] = {
    "test_a_database_and_its_snapshots_have_the_verbs_of_a_table": CLASSES,
    "test_indexes.py::test_a_batch_says_which_of_its_rows_was_refused": MISSING,
    "test_indexes.py::test_a_write_that_leaves_the_indexed_fields_writes_no_entry": FIGURES,
    "test_indexes.py::test_a_snapshot_has_its_indexes": DROPPED,
    "test_a_snapshot_is_frozen": DROPPED,
    "test_a_snapshot_knows_the_names_of_its_time": DROPPED,
    "test_what_a_transaction_took_back_was_given_to_nobody": NUMBERS,
}


DISTRIBUTED = "Distributed tables"

# Tests that need a snapshot of many rows, a unique index, or the speed of one server: distributed tables do
# not pass them.
OF_MANY_SERVERS = (
    "snapshot-server",
    "test_classes.py::test_each_way_to_read_a_table_of_a_class_gives_instances",
    "test_with_run_init_each_read_calls_the_class",
    "test_a_complex_number_without_an_imaginary_part_is_shown_as_it_was_stored",
    "test_a_unique_value_is_refused_and_nothing_is_written",
    "test_an_index_over_rows_that_share_a_value_cannot_be_unique",
    "test_the_same_index_again_is_nothing_and_another_one_is_refused",
    "test_indexes_are_described",
    "test_indexes_on_a_server_are_as_the_model",
    "test_an_iteration_sees_the_state_at_its_start",
    "test_an_iteration_inside_a_transaction_sees_the_state_at_its_start",
    "test_a_snapshot_refuses_changes",
    "test_a_closed_snapshot_and_its_records_say_so",
    "test_snapshots_of_many_versions_stand_side_by_side",
    "test_edit_gathers_changes_into_one_commit",
    "test_large_values_are_rolled_back_and_replaced",
    "test_key_and_item_views_are_sets",
    "test_views_of_two_mappings_are_compared_as_sets",
    "test_a_view_of_values_is_no_set",
    "test_deleting_what_was_appended_last_takes_the_same_time_again_and_again",
)


def reason(test: str, *, is_distributed: bool = False) -> str | None:
    """The heading for a test; None if a server passes it."""
    if is_distributed and any(part in test for part in OF_MANY_SERVERS):
        return DISTRIBUTED
    return next((heading for part, heading in DIFFERENCES.items() if part in test), None)
