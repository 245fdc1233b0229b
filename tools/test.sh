#!/bin/sh
# Runs the Rust tests, then the Python tests: test.sh [-k word] [pytest arguments].
# The crate pellucid-python has no Rust tests: its tests are the Python ones, and a Rust test binary
# would have to link libpython, which not every Python ships.
set -eu
if [ "${1:-}" = -k ]; then
    cargo test --workspace --exclude pellucid-python --quiet -- "$2"
    status=0
    python -m pytest "$@" || status=$?
    # 5: no Python test has that word in its name; a Rust test may have had it.
    [ "$status" = 5 ] || exit "$status"
elif [ $# -gt 0 ]; then
    exec python -m pytest "$@"
else
    cargo test --workspace --exclude pellucid-python
    tools/build_for_crash.sh
    # Side by side, by file: a file's tests share what they begin with. More than four would each start a server.
    python -m pytest -n auto --maxprocesses 4 --dist loadfile
fi
