# What must be there before a command can run? Read by `dev` and by the justfile; does nothing itself.

refuse() {
    echo "dev: $*" >&2
    exit 1
}

# $PYTHON if it is set, else the interpreter .venv was made with, else python3.
python_chosen() {
    python=${PYTHON:-python3}
    if [ -z "${PYTHON:-}" ] && .venv/bin/python -c '' 2>/dev/null; then python=.venv/bin/python; fi
    wanted="set PYTHON to a Python from 3.10 to 3.15"
    command -v "$python" >/dev/null || refuse "no '$python' on the PATH; $wanted"
    # Version and home together: two builds of one version are not interchangeable.
    interpreter=$("$python" -c 'import sys; print(*sys.version_info[:3], sys.base_prefix)') ||
        refuse "'$python' does not run; $wanted"
    "$python" -c 'import sys; sys.exit(not (3, 10) <= sys.version_info < (3, 16))' ||
        refuse "'$python' is $("$python" -V); $wanted"
    "$python" -c 'import sys, sysconfig; sys.exit(bool(sysconfig.get_config_var("Py_GIL_DISABLED")))' ||
        refuse "'$python' is a free-threaded build, and pellucid relies on the GIL; $wanted with the GIL"
}

# rustup looks for its toolchains under $HOME. Where HOME is not the installer's, they still lie
# beside the cargo that was found.
rust_found() {
    command -v cargo >/dev/null || refuse "no 'cargo' on the PATH; install Rust 1.89 or newer"
    cargo --version >/dev/null 2>&1 && return
    for home in ../../.rustup ../../rustup; do
        home=$(dirname "$(command -v cargo)")/$home
        if RUSTUP_HOME=$home cargo --version >/dev/null 2>&1; then
            export RUSTUP_HOME="$home"
            return
        fi
    done
    cargo --version
}

# pip, not uv: 11 s instead of 3 on a cold machine, once; in exchange it obeys the proxies,
# certificates and indexes that the machine's owner has configured for pip.
venv_made() {
    [ "$(cat .venv/interpreter 2>/dev/null)" = "$interpreter" ] && return
    # A virtual environment cannot be the parent of itself, so a broken one is made anew from the PATH.
    [ "$python" = .venv/bin/python ] && python=python3
    echo "dev: making .venv with $("$python" -V) of ${interpreter#* * * }" >&2
    "$python" -m venv --clear .venv
    echo "$interpreter" >.venv/interpreter
}

# Installs a requirements file into .venv, unless that very text has been installed before.
installed() {
    stamp=.venv/installed-$1
    cmp -s "$1" "$stamp" && return
    echo "dev: installing $1" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement "$1"
    cp "$1" "$stamp"
}
