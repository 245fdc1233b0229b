# What must be there before a command can run? Read by `dev` and by the justfile; does nothing itself.

refuse() {
    echo "dev: $*" >&2
    exit 1
}

# Every command of the justfile with the comment above it. Nothing but the shell is needed.
commands() {
    echo "./dev <command>, which is one of these; ./dev --list has their arguments, too"
    about=
    while IFS= read -r line; do
        case $line in
        '# '*) about=${line#??} ;;
        '['*) ;; # how just runs the command
        [a-z]*:=*) about= ;;
        [a-z]*:*)
            [ -z "$about" ] || printf '  %-9s %s\n' "${line%%[ :]*}" "${about%%: *}"
            about=
            ;;
        *) about= ;;
        esac
    done <justfile
}

# Says what a build needs and has not, each on a line with a prefix. It chooses the interpreter: $PYTHON if it is
# set, else that of .venv, else python3.
nothing_missing() {
    python=${PYTHON:-python3}
    if [ -z "${PYTHON:-}" ] && .venv/bin/python -c '' 2>/dev/null; then python=.venv/bin/python; fi
    if ! "$python" -c 'import sys; sys.exit(sys.version_info < (3, 6))' 2>/dev/null; then
        missing_beside_python "$1"
        return 1
    fi
    rust_home
    "$python" tools/build_backend.py "$1" || return 1
    # Version and home together: two builds of one version are not interchangeable.
    interpreter=$("$python" -c 'import sys; print(*sys.version_info[:3], sys.base_prefix)')
}

# What build_backend.py would say, as far as it can be told where no Python runs it.
missing_beside_python() {
    echo "$1Python 3.10 to 3.15 is needed, and '$python' is none that runs: set PYTHON to one, or" \
        "$(install_command python3-venv python3 'install Python from python.org')"
    command -v cargo >/dev/null ||
        echo "$1Rust 1.89 or newer is needed, and there is no cargo on the PATH:" \
            "curl -sSf https://sh.rustup.rs | sh, and open a new shell"
    command -v cc >/dev/null ||
        echo "$1a C compiler is needed, and cc is not on the PATH:" \
            "$(install_command 'gcc libc6-dev' gcc 'xcode-select --install')"
}

# install_command APT-PACKAGES DNF-PACKAGES MACOS-COMMAND
install_command() {
    if [ "$(uname)" = Darwin ]; then
        echo "$3"
    elif command -v apt >/dev/null; then
        echo "apt install $1"
    elif command -v dnf >/dev/null; then
        echo "dnf install $2"
    else
        echo "install $1"
    fi
}

# rustup looks for its toolchains under $HOME. Where HOME is not the installer's, they still lie
# beside the cargo that was found.
rust_home() {
    { ! command -v cargo || cargo --version; } >/dev/null 2>&1 && return
    for home in ../../.rustup ../../rustup; do
        home=$(dirname "$(command -v cargo)")/$home
        if RUSTUP_HOME=$home cargo --version >/dev/null 2>&1; then
            export RUSTUP_HOME="$home"
            return
        fi
    done
}

# pip, not uv: 11 s instead of 3 on a cold machine, once; in exchange it obeys the proxies,
# certificates and indexes that the machine's owner has configured for pip.
venv_made() {
    [ "$(cat .venv/interpreter 2>/dev/null)" = "$interpreter" ] && return
    # A virtual environment cannot be the parent of itself, so a broken one is made anew from the PATH.
    [ "$python" = .venv/bin/python ] && python=python3
    echo "dev: making .venv with $("$python" -V) of ${interpreter#* * * }" >&2
    # Ctrl-C, a full disk: what is half made would be in the way.
    trap 'rm -rf .venv; exit 130' INT TERM
    "$python" -m venv --clear .venv || { rm -rf .venv && refuse ".venv was not made; the reason is above"; }
    echo "$interpreter" >.venv/interpreter
    trap - INT TERM
}

# Installs a requirements file into .venv, unless that very text has been installed before.
installed() {
    stamp=.venv/installed-$1
    cmp -s "$1" "$stamp" && return
    echo "dev: installing $1" >&2
    .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement "$1" ||
        refuse "$1 was not installed, and pip says why above; the first time, a network is needed"
    cp "$1" "$stamp"
}
