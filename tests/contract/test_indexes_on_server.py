"""Do the indexes of a server's table have what its rows come to, whatever is done in whichever order?"""

from __future__ import annotations

import contextlib

import test_indexes_model
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test
from servers import empty_database


def test_indexes_on_a_server_are_as_the_model(server: str) -> None:
    class OnServer(test_indexes_model.IndexMachine):
        """The same on a server: each run has an empty database there."""

        def __init__(self) -> None:
            super().__init__()
            self.stack = contextlib.ExitStack()
            self.target = self.stack.enter_context(empty_database(server, max_connections="60"))

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
