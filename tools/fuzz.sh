#!/bin/sh
# Runs a fuzz target, or all of them in turn: fuzz.sh [target] [seconds]. What is found stays in fuzz/artifacts/.
# The stable compiler does it, with the address sanitizer: RUSTC_BOOTSTRAP lets it take the flags that this needs.
set -eu
cd "$(dirname "$0")/../fuzz"
targets=$(ls targets | sed 's/\.rs$//')
seconds=60
case "${1:-}" in
'') ;;
*[!0-9]*) targets=$1; seconds=${2:-60} ;;
*) seconds=$1 ;;
esac

if ! cargo fuzz --version >/dev/null 2>&1; then
    echo "installing cargo-fuzz, once"
    cargo install cargo-fuzz --version 0.13.2 --locked --quiet
fi
export RUSTC_BOOTSTRAP=1

for target in $targets; do
    # New inputs go beside the build's products. corpus/ holds those that are kept, and the tests replay them:
    # tools/corpus.py keep TARGET FILE... adds one.
    found=target/found/$target
    kept=target/kept/$target
    mkdir -p "$found"
    python3 ../tools/corpus.py unpack "$target" "$kept"
    echo "$target: $seconds s"
    cargo fuzz run "$target" "$found" "$kept" -- \
        -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -max_len=4096 -print_final_stats=1
done
