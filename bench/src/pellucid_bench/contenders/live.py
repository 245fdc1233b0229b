"""This module uses plain dicts in memory."""

from __future__ import annotations

from pathlib import Path

from pellucid_bench.contenders.dicts import Player, Session
from pellucid_bench.rivals import Rivals


def players(_rivals: Rivals) -> list[Player]:
    """Return a dict."""
    return [Player("dict", _open_dict, "d[k] = v", "d[k]", "nothing", in_memory=True)]


def _open_dict(_path: Path) -> Session:
    mapping: dict[str, str] = {}
    return Session({"d": mapping}, lambda: None, lambda: {"d": mapping}, mapping.clear, mapping.update)
