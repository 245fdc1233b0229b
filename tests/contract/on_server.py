"""Runs a state machine of the contract on a server."""

from __future__ import annotations

import contextlib
from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from servers import empty_database


def run(machine: type[RuleBasedStateMachine], server: str) -> None:
    """Run a machine that opens its `target`: each run has an empty database on the server."""

    class OnServer(machine):  # type: ignore[valid-type, misc]
        def __init__(self) -> None:
            super().__init__()
            self.stack = contextlib.ExitStack()
            self.target: Any = self.stack.enter_context(empty_database(server, max_connections="60"))

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
