"""This module makes `python -m pellucid` the same as `pellucid`."""

from pellucid.cli import main

if __name__ == "__main__":
    main()
