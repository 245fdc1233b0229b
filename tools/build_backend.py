"""Builds the package with maturin, unless something is missing that a build needs.

pip calls maturin's hooks through this module (PEP 517). By itself, maturin would download Rust where there is
none, and a compiler's words would be all that is said of an unsupported Python. `./dev` runs this file as a
program, which prints what is missing. So it runs on any Python 3, and imports maturin last. `tools/build.py`
builds with the same settings, so that the second of two builds compiles nothing.
"""

import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig

PYTHON_FIRST, PYTHON_LAST = (3, 10), (3, 15)
RUST_FIRST = (1, 89)
PROFILES = ("quick", "release")
RUSTUP = "curl -sSf https://sh.rustup.rs | sh, and open a new shell"


def missing():
    """Return a sentence for each thing that a build needs and has not: what it is, and how to get it."""
    return [sentence for look in (system, python, rust, c_compiler) for sentence in look()]


def system():
    """Look at the operating system."""
    bits = 64 if sys.maxsize > 1 << 32 else 32
    if sys.platform not in ("linux", "darwin") or bits != 64:
        yield f"64-bit Linux or macOS is needed, and this is a {bits}-bit Python on {sys.platform}"


def python():
    """Look at the interpreter that the build is for."""
    kind, version = platform.python_implementation(), platform.python_version()
    other = f"use another one, such as PYTHON=python3.{PYTHON_LAST[1] - 2} for ./dev"
    if kind != "CPython" or not PYTHON_FIRST <= sys.version_info[:2] <= PYTHON_LAST:
        wanted = "CPython {}.{} to {}.{}".format(*PYTHON_FIRST, *PYTHON_LAST)
        yield f"{wanted} is needed, and {sys.executable} is {kind} {version}: {other}"
    elif sysconfig.get_config_var("Py_GIL_DISABLED"):
        yield f"a Python with the GIL is needed, and {sys.executable} is a free-threaded build: {other}"


def rust():
    """Look at cargo, which is Rust's, or rustup's and passes calls on to Rust's."""
    wanted = "Rust {}.{} or newer is needed".format(*RUST_FIRST)
    cargo = shutil.which("cargo")
    if cargo is None:
        # rustup tells a shell that is already open nothing.
        how = '. "$HOME/.cargo/env"' if os.path.exists(os.path.expanduser("~/.cargo/env")) else RUSTUP
        yield f"{wanted}, and there is no cargo on the PATH: {how}"
        return
    version = re.search(r"(\d+)\.(\d+)\.\d+", output_of([cargo, "--version"]))
    if version is None:
        yield f"{wanted}, and {cargo} does not run: rustup default stable"
    elif (int(version[1]), int(version[2])) < RUST_FIRST:
        newer = "rustup update" if shutil.which("rustup") else RUSTUP
        yield f"{wanted}, and {cargo} is {version[0]}: {newer}"


def c_compiler():
    """Look at the compiler for LMDB, which Rust links with, and at the C library's headers."""
    source = "#include <stdlib.h>\nheaders_are_here\n"
    if "headers_are_here" not in output_of(["cc", "-E", "-x", "c", "-"], source):
        state = "does not find stdlib.h" if shutil.which("cc") else "is not on the PATH"
        how = install("gcc libc6-dev", "gcc", "xcode-select --install")
        yield f"a C compiler is needed, and cc {state}: {how}"


def environment():
    """Look at what makes virtual environments: `./dev` needs it, and pip does not."""
    if importlib.util.find_spec("ensurepip") is None:
        how = install("python3-venv", "python3", "install Python from python.org")
        yield f"Python's own venv is needed, and {sys.executable} has no ensurepip: {how}"


def install(apt, dnf, macos):
    """Return the command that installs packages here."""
    if sys.platform == "darwin":
        return macos
    tools = {"apt": apt, "dnf": dnf}
    return next((f"{tool} install {tools[tool]}" for tool in tools if shutil.which(tool)), f"install {apt}")


def profile():
    """Return the profile of `Cargo.toml` to build with."""
    chosen = os.environ.get("PELLUCID_PROFILE") or PROFILES[0]
    if chosen not in PROFILES:
        raise SystemExit(f"pellucid: PELLUCID_PROFILE is {chosen!r}, and must be {' or '.join(PROFILES)}")
    return chosen


def told_profile(chosen):
    """Return what whoever builds should know about the profile; nothing if it is the one for use."""
    if chosen == PROFILES[-1]:
        return ""
    return f"pellucid: built with the profile {chosen}; PELLUCID_PROFILE=release builds a faster one"


def pin_python(root):
    """Have pyo3 build for this Python by its version alone; see PYO3_CONFIG_FILE in the guide of pyo3.

    pip builds in an environment of its own, under a new path each time, for which all would be compiled anew.
    """
    flags = ",".join(name for name in ("Py_DEBUG", "Py_REF_DEBUG") if sysconfig.get_config_var(name))
    lines = [
        "implementation=CPython",
        "version={}.{}".format(*sys.version_info[:2]),
        f"pointer_width={64 if sys.maxsize > 1 << 32 else 32}",
        f"build_flags={flags}",
    ]
    text = "\n".join(lines) + "\n"
    path = os.path.join(root, "target", "pyo3", f"{sysconfig.get_config_var('SOABI')}.txt")
    os.environ["PYO3_CONFIG_FILE"] = path
    if os.path.exists(path):
        with open(path) as file:
            # cargo looks at the time of the file.
            if file.read() == text:
                return
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def output_of(command, given=""):
    """Return what a program prints; nothing if it fails or is not there."""
    try:
        done = subprocess.run(
            command, input=given.encode(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return ""
    return done.stdout.decode()


def __getattr__(name):
    """Return a hook of maturin's; what asks for one is about to build."""
    if name.startswith("__"):
        raise AttributeError(name)
    found = missing()
    if found:
        raise SystemExit("\n".join(f"pellucid: {sentence}" for sentence in found))
    if name.startswith("build_"):
        pin_python(os.getcwd())
        os.environ["MATURIN_PEP517_ARGS"] = os.environ.get("MATURIN_PEP517_ARGS") or f"--profile {profile()}"
        told = told_profile(profile())
        if told:
            # pip shows it with -v.
            print(told, file=sys.stderr)
    import maturin

    return getattr(maturin, name)


if __name__ == "__main__":
    to_do = [*missing(), *environment()]
    for line in to_do:
        print(sys.argv[1] + line)
    sys.exit(bool(to_do))
