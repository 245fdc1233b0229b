"""Do the indexes of a server's table have what its rows come to, whatever is done in whichever order?"""

from __future__ import annotations

import contextlib
from typing import Any

import test_indexes_model
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from servers import empty_database


def test_indexes_on_a_server_are_as_the_model(server: str) -> None:
    class OnServer(test_indexes_model.IndexMachine):
        """The same on a server: each run has an empty database there."""

        def __init__(self) -> None:
            super().__init__()
            self.stack = contextlib.ExitStack()
            self.target = self.stack.enter_context(empty_database(server, max_connections="60"))

        @rule(values=st.lists(test_indexes_model.records, max_size=5))
        def extend(self, values: list[dict[str, Any]]) -> None:
            # A server's numbers may have gaps after a rollback: the keys are read back.
            before = self.rows
            taken = {key for key in self.table if type(key) is int}
            numbers = [key for key, _ in before.values() if isinstance(key, (int, float))]
            if any(number >= 2**60 for number in numbers):
                return
            expected = before
            for number, record in enumerate(values):
                expected = self.with_row(expected, 2**61 + number, record)
            self.attempt(expected, lambda: self.table.extend(values))
            if self.rows is expected:
                self.rows = before
                new = sorted({key for key in self.table if type(key) is int} - taken)
                for key, record in zip(new, values, strict=True):
                    self.rows = self.with_row(self.rows, key, record)

        def teardown(self) -> None:
            super().teardown()
            self.stack.close()

    run_state_machine_as_test(
        OnServer,
        settings=settings(
            max_examples=40,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
