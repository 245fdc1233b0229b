# The commands behind ./dev, which has made .venv by the time this file is read.

set positional-arguments

bin := justfile_directory() / ".venv/bin"
export VIRTUAL_ENV := justfile_directory() / ".venv"
export PATH := bin + ":" + env("PATH")

# pyo3 builds against this interpreter, whoever calls cargo: one set of build products.
export PYO3_PYTHON := bin / "python"

# The lab is a distribution of its own, and is run from its source here. Tests, lint and publish import it as well.
export PYTHONPATH := justfile_directory() / "bench/src"

# Make .venv, install every tool, build the extension
setup: _tools build
    @echo "ready: ./dev test, ./dev demo"

# Build the extension into .venv; what is unchanged is not built again
build:
    @python tools/build.py

# Run the Rust tests, then the Python tests: test [-k word] [pytest arguments]
test *args: _tools build
    @tools/test.sh "$@"

# Say everything a reviewer would otherwise have to say
lint: _tools build
    @tools/lint.sh

# Format Rust and Python
fmt: _tools
    @cargo fmt --all
    @ruff check --quiet --select I --fix .
    @ruff format --quiet .

# Run a fuzz target, or all of them in turn: fuzz [target] [seconds]
fuzz *args:
    @tools/fuzz.sh "$@"

# Kill processes, damage files, rehearse power cuts: crash [steps] [kills] [histories] [flips] [copies] [power], or crash mutations [name]
crash *args: _tools
    @tools/build_for_crash.sh
    @PYTHONPATH=target/crash:tests python -m crash "$@"

# Compare speed and size with rivals, or of two revisions: bench [experiment] [options], or bench guard OLD [NEW], merge, compare, report, table
bench *args:
    @[ "${1-}" = guard ] || { PELLUCID_PROFILE=release python tools/build.py && tools/rivals.sh; } # the guard makes builds of its own
    @python -m pellucid_bench "$@"

# Write the documentation's plots and tables from bench/results: publish [folder]
publish *args:
    @PELLUCID_PROFILE=release python tools/build.py
    @tools/rivals.sh
    @python tools/publish.py "$@"

# Show in ten lines what pellucid does, on real input: demo [--more] [file]
[no-exit-message]
demo *args: build
    @python -m pellucid.demo "$@"

# Build wheels into dist/, and try each in a bare system of Debian: wheels [--venv] [version]
[no-exit-message]
wheels *args:
    @sh -euc '. tools/bootstrap.sh; installed requirements-wheels.txt'
    @python tools/wheels.py "$@"

# Do what the build server does: test, lint, build a wheel and try it
ci:
    @.ci/run

# Follow the README in a clean clone, on every Python found
newcomer *args:
    @tools/newcomer.sh "$@"

_tools:
    @sh -euc '. tools/bootstrap.sh; installed requirements-dev.txt'
