#!/bin/sh
# Builds the extension with the steps that the crash campaign kills at, into target/crash: not into .venv, where
# it would be what users and benchmarks get. The development profile, which has assertions and builds quickly.
set -eu
log=.venv/build-for-crash.log
if ! cargo build --package pellucid-python --features extension-module,failpoints >"$log" 2>&1; then
    cat "$log" >&2
    exit 1
fi
suffix=$(.venv/bin/python -c 'import sysconfig; print(sysconfig.get_config_var("EXT_SUFFIX"))')
rm -rf target/crash
mkdir -p target/crash
cp -R python/pellucid target/crash/pellucid
rm -f target/crash/pellucid/_native*.so
for module in target/debug/lib_native.so target/debug/lib_native.dylib; do
    [ ! -e "$module" ] || cp "$module" "target/crash/pellucid/_native$suffix"
done
