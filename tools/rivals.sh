#!/bin/sh
# Installs what `./dev bench` compares with, once. A rival that cannot be had is no reason not to
# measure the others: the report lists it as not installed.
set -eu
rivals=requirements-bench.txt
cmp -s "$rivals" .venv/installed-"$rivals" && exit 0
echo "dev: installing $rivals" >&2
# sqlitedict is published as source alone; a rival that needs a compiler of its own is left out.
pip="python -m pip install --quiet --disable-pip-version-check --only-binary :all: --no-binary sqlitedict"
$pip --requirement "$rivals" || grep '^[^#]' "$rivals" | while read -r rival; do
    $pip "$rival" || echo "dev: going on without $rival" >&2
done
cp "$rivals" .venv/installed-"$rivals"
