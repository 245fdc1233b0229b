#!/bin/sh
# Says everything a reviewer would otherwise have to say. Runs every check, then fails if one did.
set -u
failed=""
log=.venv/lint.log

check() {
    if "$@" >"$log" 2>&1; then
        echo "ok      $*"
    else
        cat "$log"
        echo "FAILED  $*"
        failed=yes
    fi
}

check cargo fmt --all --check
check cargo fmt --manifest-path fuzz/Cargo.toml --check
check cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
check env RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --locked --quiet
check ruff format --check --quiet .
check ruff check --quiet .
check mypy
check python -m mypy.stubtest pellucid._native --mypy-config-file pyproject.toml \
    --allowlist tools/stubtest.txt --ignore-unused-allowlist
check lint-imports --no-cache
check typos
check sh -n dev .ci/run tools/*.sh

[ -z "$failed" ]
