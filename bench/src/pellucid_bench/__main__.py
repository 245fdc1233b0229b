"""This module runs the command line as `python -m pellucid_bench`."""

from __future__ import annotations

import sys

from pellucid_bench.command import main

if __name__ == "__main__":
    sys.exit(main())
