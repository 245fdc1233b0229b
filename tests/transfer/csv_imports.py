"""Imports of CSV for tests."""

from __future__ import annotations

import io
from typing import Any

import pellucid
from pellucid.transfer.report import ImportReport


def imported(db: pellucid.Database, data: str | bytes, **choices: Any) -> ImportReport:
    """Import a text into the table `t`."""
    data = data.encode() if isinstance(data, str) else data
    return pellucid.import_from(io.BytesIO(data), db, table="t", format="csv", **choices)
