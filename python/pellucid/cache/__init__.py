"""This package is a cache in a file: a mapping whose entries expire, have a tag, and are evicted at a limit.

`entries.py` says how an entry lies in its table, `limits.py` in which order entries go, `uses.py` where uses
are noted, `flights.py` who computes a result that many want, and `functions.py` keeps results of functions.
"""

from __future__ import annotations

from pellucid.cache.core import Cache

__all__ = ["Cache"]
