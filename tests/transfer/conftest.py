"""The database that most tests of imports begin with."""

from __future__ import annotations

import pellucid
import pytest


@pytest.fixture
def db() -> pellucid.Database:
    return pellucid.open(":memory:")
