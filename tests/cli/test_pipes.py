"""Does the command behave in a pipe and on a narrow terminal: Ctrl-C, a reader that leaves, a full disk?"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import resource
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import pellucid
import pytest

COMMAND = [sys.executable, "-m", "pellucid"]


def lines(count: int) -> str:
    return "".join(f'{{"n": {number}, "text": "{"x" * 100}"}}\n' for number in range(count))


@pytest.fixture
def large(path: Path) -> Path:
    """A database that is larger than the buffer of a pipe."""
    with pellucid.open(path) as db:
        db.table("rows").extend({"n": number, "text": "x" * 100} for number in range(20_000))
    return path


@pytest.mark.parametrize("words", [["--json"], ["--csv"], ["--arrow"], ["--limit", "0"]])
def test_a_reader_that_leaves_ends_the_command_quietly(words: list[str], large: Path) -> None:
    with subprocess.Popen(
        [*COMMAND, "query", large, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as ran:
        assert ran.stdout is not None
        assert ran.stderr is not None
        assert len(ran.stdout.read(10)) == 10
        ran.stdout.close()
        assert ran.stderr.read() == b""
    assert ran.returncode == 141


def test_a_help_text_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:
        ran = subprocess.run(
            [*COMMAND, "--help"], stdout=full, stderr=subprocess.PIPE, text=True, check=False
        )
    assert (ran.returncode, ran.stderr) == (1, "pellucid: the output: No space left on device\n")


def test_rows_flow_through_pipes(large: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.pel"
    with subprocess.Popen(
        [*COMMAND, "export", large, "rows", "-", "--format", "arrow"], stdout=subprocess.PIPE
    ) as reader:
        ran = subprocess.run(
            [*COMMAND, "import", copy, "-", "--table", "rows"],
            stdin=reader.stdout,
            capture_output=True,
            check=False,
        )
    assert (reader.returncode, ran.returncode, ran.stderr) == (0, 0, b"")
    with pellucid.open(copy) as one, pellucid.open(large) as other:
        assert one.table("rows") == other.table("rows")


def on_terminal(words: list[Any], columns: int, press: bytes = b"", after: bytes = b"") -> tuple[int, str]:
    """Run the command on a terminal of its own, and press keys when it has written `after`."""
    pid, terminal = pty.fork()
    if pid == 0:
        # Not the environment of the C library: readline puts COLUMNS into it.
        environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {
            "TERM": "xterm"
        }
        fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
        os.execve(sys.executable, list(map(str, [*COMMAND, *words])), environment)
    written = b""
    ends = time.monotonic() + 60
    while time.monotonic() < ends:
        if not select.select([terminal], [], [], 0.1)[0]:
            continue
        try:
            piece = os.read(terminal, 65536)
        except OSError:
            break
        written += piece
        if press and after in written:
            os.write(terminal, press)
            press = b""
    os.close(terminal)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), written.decode()


def test_a_terminal_of_40_columns(large: Path, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(30_000))
    code, text = on_terminal(["import", tmp_path / "new.pel", tmp_path / "rows.jsonl"], 40)
    assert code == 0
    frames = text.replace("\r\n", "\n").split("\r\x1b[K")
    assert any("% " in frame and "rows" in frame for frame in frames)
    assert [frame for frame in frames[1:-1] if len(frame.split("\n")[0]) >= 40] == []
    code, text = on_terminal(["query", large, "--limit", "3"], 40)
    shown = re.sub(r"\x1b\[[0-9;]*m", "", text).splitlines()
    assert max(len(line) for line in shown if "of 20,000" not in line) <= 40


@pytest.mark.parametrize(
    "words",
    [
        ["check", "{file}"],
        ["compact", "{file}"],
        ["backup", "{file}", "{folder}/copy.pel"],
        ["restore", "{file}", "{folder}/copy.pel"],
        ["restore", "{file}", "{file}", "--replace"],
    ],
    ids=lambda words: " ".join(words).replace("{", "").replace("}", ""),
)
def test_work_on_a_whole_file_shows_how_far_it_is(words: list[str], large: Path, tmp_path: Path) -> None:
    code, text = on_terminal([word.format(file=large, folder=tmp_path) for word in words], 80)
    assert code == 0, text
    *frames, result = text.split("\r\x1b[K")
    assert re.fullmatch(r"#+  100%  20,\d+ (\w+)  0:00 left  [\d,]+ \1/s", frames[-1]), frames
    assert "%" not in result


def test_ctrl_c_imports_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(300_000))
    code, text = on_terminal(["import", tmp_path / "new.pel", tmp_path / "rows.jsonl"], 80, b"\x03", b" rows")
    assert (code, "pellucid: stopped; nothing was imported" in text) == (130, True)
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


def test_the_prompt_of_the_shell(large: Path) -> None:
    code, text = on_terminal(["shell", large, "--read-only"], 80, b"rows.count() + 1\nexit()\n", b">>> ")
    assert code == 0
    assert "tables: rows" in text
    assert "20001" in text


def test_a_deletion_by_a_condition_asks(large: Path) -> None:
    code, text = on_terminal(["del", large, "rows", "--where", "n < 5"], 80, b"n\n", b"[y/N]")
    assert (code, "delete 5 of 20,000 rows?" in text) == (1, True)
    with pellucid.open(large) as db:
        assert len(db.table("rows")) == 20_000


def on_a_full_disk(*words: object) -> subprocess.CompletedProcess[str]:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    return subprocess.run(
        [*COMMAND, *map(str, words)], capture_output=True, text=True, preexec_fn=limit, check=False
    )


def test_an_import_onto_a_full_disk_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text(lines(30_000))
    ran = on_a_full_disk("import", tmp_path / "new.pel", tmp_path / "rows.jsonl")
    assert (ran.returncode, ran.stderr.count("\n"), ran.stderr[:10]) == (1, 1, "pellucid: ")
    assert [file.name for file in tmp_path.iterdir()] == ["rows.jsonl"]


@pytest.mark.parametrize("suffix", ["jsonl", "csv", "parquet", "sqlite", "shelf"])
def test_an_export_onto_a_full_disk_leaves_nothing(suffix: str, large: Path, tmp_path: Path) -> None:
    with pellucid.open(large) as db:
        # Parquet keeps repetitions short.
        db.table("rows").extend({"text": os.urandom(100).hex()} for _ in range(10_000))
    before = sorted(tmp_path.iterdir())
    ran = on_a_full_disk("export", large, "rows", tmp_path / f"out.{suffix}", "--key", "id")
    if suffix == "shelf":
        ran = on_a_full_disk("export", large, "rows", tmp_path / f"out.{suffix}")
    # Berkeley DB, where Python's dbm has it, says something itself before that.
    assert (ran.returncode, ran.stderr.splitlines()[-1][:10]) == (1, "pellucid: "), ran.stderr
    assert sorted(tmp_path.iterdir()) == before
