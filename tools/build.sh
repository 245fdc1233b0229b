#!/bin/sh
# Builds the extension into .venv. Quiet when all is well: what maturin and cargo say matters when they fail.
set -eu
log=.venv/build.log
[ -d target/release ] || echo "dev: building the extension, some minutes the first time" >&2
if ! maturin develop --release >"$log" 2>&1; then
    cat "$log" >&2
    why="cargo says why above"
    if grep -q 'failed to download\|failed to fetch\|failed to query' "$log"; then why="cargo needs a network for it"; fi
    echo "dev: the extension was not built; $why" >&2
    exit 1
fi
