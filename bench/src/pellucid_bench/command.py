"""This module is the command line: it runs experiments, shows what they measured, and writes datasets."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import difflib
import errno
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pellucid_bench import datasets, experiments, guard, isolation, machine
from pellucid_bench.about import About, Setting
from pellucid_bench.dataset import Dataset, DatasetError, write
from pellucid_bench.measures import unique
from pellucid_bench.names import without_names
from pellucid_bench.rivals import reason, version_of
from pellucid_bench.run import Run, Unavailable
from pellucid_bench.runner import Pace

PROGRAM = "pellucid bench"
COMMANDS = {**datasets.COMMANDS, "guard": guard.main}
ROOM_MIN = 64 << 20
"""No experiment begins with less room on the disk."""
STOPPED = 130
"""The exit code after Ctrl-C."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says, and return the exit code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        if words and words[0] in COMMANDS:
            return COMMANDS[words[0]](words[1:])
        return _experiments(words)
    except DatasetError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print(f"{PROGRAM}: stopped", file=sys.stderr)
        return STOPPED


@dataclass(slots=True)
class Options:
    """What to run, and how."""

    names: list[str]
    command: str = PROGRAM
    quick: bool = False
    only: str = ""
    titles: frozenset[str] | None = None
    rounds: int | None = None
    isolate: bool = False
    libraries: frozenset[str] | None = None
    directory: Path | None = None
    settings: dict[str, Any] = field(default_factory=dict)
    """The settings that were given, by their names."""
    is_all: bool = False
    """No experiment was named. One that cannot run here is then no failure."""


def _experiments(words: list[str]) -> int:
    parser, options = _parsed(words)
    if options.json and not options.json.absolute().parent.is_dir():
        parser.error(f"--json {options.json}: there is no folder {options.json.parent}")
    try:
        from rich.console import Console

        from pellucid_bench import terminal
    except ImportError:
        parser.error("the report is made with rich: pip install ./bench in a clone of pellucid")
    # A file or pipe has no width. The tables need more than the 80 columns that rich would assume.
    console = Console(width=None if sys.stdout.isatty() else 140)
    chosen = Options(
        names=options.experiment or list(experiments.NAMES),
        command=shlex.join([*PROGRAM.split(), *words]),
        quick=options.quick,
        only=options.only,
        rounds=options.rounds,
        isolate=options.isolate,
        libraries=frozenset(options.library) if options.library else None,
        directory=options.directory,
        settings=vars(options),
        is_all=not options.experiment,
    )
    runs: list[Dataset] = []
    code = 0
    for made in measured(chosen, console):
        runs.append(made.dataset)
        terminal.show(console, made.run, made.dataset)
        if options.json:
            write(options.json, runs)
        code = max(code, made.code)
        if made.code == STOPPED:
            break
    if not any(run.measures for run in runs) and not code:
        wanted = f"has {options.only!r} in its title" if options.only else "was asked for"
        taking = f" in which {' or '.join(options.library)} takes part" if options.library else ""
        parser.error(f"no measure{taking} {wanted}")
    if options.json:
        console.print(f"wrote {options.json}", soft_wrap=True)
    return code


@dataclass(frozen=True, slots=True)
class Made:
    """A run of one experiment, and the exit code that it asks for."""

    run: Run
    dataset: Dataset
    code: int


def measured(options: Options, console: Any = None) -> Iterator[Made]:
    """Run experiments one after the other, and yield what each measured, also of one that was stopped."""
    tick = machine.clock_tick()
    for name in options.names:
        experiment = experiments.load(name)
        about = experiment.ABOUT
        with folder(options.directory) as directory:
            run = Run(
                directory,
                about.values(options.settings, quick=options.quick),
                Pace.of(options.rounds, quick=options.quick, tick=tick),
                options.only,
                options.titles,
                options.libraries,
            )
            described = machine.describe(directory)
            run.notes += machine.warnings(described, tick)
            made = Dataset(
                created=datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                command=options.command,
                experiment=name,
                machine=described,
                python=machine.interpreter(),
                quick=options.quick,
                settings={**vars(run.settings), **_common(options)},
            )
            with _progress(console, run, name):
                code = _do(experiment, run, made, options)
            _fill(made, run, name)
            yield Made(run, without_names(made, folders=[directory, directory.parent]), code)


def _common(options: Options) -> dict[str, Any]:
    """Return the settings that all experiments have, if they were given."""
    common: dict[str, Any] = {"rounds": options.rounds} if options.rounds else {}
    return {**common, "isolate": True} if options.isolate else common


@contextlib.contextmanager
def folder(parent: Path | None) -> Iterator[Path]:
    """Make a folder for databases, and remove it with all that is in it."""
    # Names are taken out of texts by the whole path: `db` alone is also a part of `lmdb`.
    where = (parent or Path(tempfile.gettempdir())).resolve()
    try:
        free = shutil.disk_usage(where).free
        if free < ROOM_MIN:
            # A library that maps files into memory is killed on a full disk, and this process with it.
            raise DatasetError(
                f"{where} has {free >> 20} MiB left, and an experiment needs {ROOM_MIN >> 20} or more; "
                "make room there, or name another folder with --directory"
            )
        made = tempfile.TemporaryDirectory(prefix="pellucid-bench-", dir=where, ignore_cleanup_errors=True)
    except OSError as error:
        raise DatasetError(
            f"cannot make a folder in {where}: {error.strerror}; name another with --directory"
        ) from error
    with made as path:
        yield Path(path)


@contextlib.contextmanager
def _progress(console: Any, run: Run, name: str) -> Iterator[None]:
    """Show what is measured now, on a terminal."""
    if console is None or not console.is_terminal:
        yield
        return
    with console.status(name) as status:
        # A line that is longer than the terminal would be repeated at each step.
        run.pace.on_progress = lambda text: status.update(f"{name}: {text}"[: console.width - 4])
        yield


def _do(experiment: Any, run: Run, made: Dataset, options: Options) -> int:
    """Run an experiment, and say why if it ends before its end. Return the exit code."""
    try:
        why = isolation.refusal(experiment.ABOUT, run.settings) if options.isolate else None
        if why:
            run.notes.append(why)
        if options.isolate and not why:
            isolation.run(experiment.ABOUT.name, run, options.quick, options.rounds)
        else:
            experiment.run(run)
    except KeyboardInterrupt:
        made.complete = False
        run.notes.append("stopped by Ctrl-C: the measures after this time are not there")
        return STOPPED
    except Unavailable as error:
        made.complete = False
        run.notes.append(f"stopped: {error}")
        return 0 if options.is_all else 1
    except Exception as error:
        made.complete = False
        run.notes.append(f"stopped: {_why(error, run.directory)}")
        return 1
    ours = [result.error for measure in run.measures for result in measure.results if result.is_ours]
    return 1 if any(ours) else 0


def _why(error: Exception, directory: Path) -> str:
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            f"no space left in {directory.parent}; make room there, or name another folder with --directory"
        )
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return reason(error) + place


def _fill(made: Dataset, run: Run, name: str) -> None:
    """Put what was measured into the dataset."""
    import pellucid

    made.python = run.interpreter or made.python
    made.versions = {"pellucid": version_of("pellucid", pellucid), **run.rivals.versions}
    made.missing = {
        name: why
        for name, why in run.rivals.missing.items()
        if run.libraries is None or name in run.libraries
    }
    made.measures = unique(run.measures, name)
    shaky = sum(result.unstable for measure in made.measures for result in measure.results)
    if shaky:
        run.notes.append(
            f"unstable: {'1 result has' if shaky == 1 else f'{shaky} results have'} an interval wider than a "
            "quarter of the median; run it again where less else runs, or with more --rounds"
        )
    made.notes = run.notes


def _parsed(words: list[str]) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    """Parse the options of the experiments that are named, or of all."""
    leading = [word for word in words if not word.startswith("-")]
    named = [word for word in leading if word in experiments.NAMES]
    abouts = [experiments.load(name).ABOUT for name in named or experiments.NAMES]
    usage = f"{PROGRAM} [EXPERIMENT ...] [OPTION ...]"
    parser = _Parser(
        prog=PROGRAM,
        usage=usage if named else f"{usage}\n       {PROGRAM} {'|'.join(COMMANDS)} ...",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=_description(abouts if named else []),
        epilog=None if named else _epilog(),
    )
    parser.add_argument("experiment", nargs="*", type=_experiment, metavar="EXPERIMENT", help="default: all")
    parser.add_argument(
        "--quick", action="store_true", help="the shortest run that does everything; its figures mean nothing"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the dataset to this file")
    parser.add_argument("--only", default="", metavar="WORD", help="only measures with WORD in their title")
    parser.add_argument(
        "--library", action="append", metavar="NAME", help="measure only this library; may be repeated"
    )
    parser.add_argument(
        "--rounds", type=rounds, metavar="N", help="samples of each contender; slow ones give fewer"
    )
    parser.add_argument("--isolate", action="store_true", help="a worker process for each library")
    parser.add_argument(
        "--directory", type=Path, help="folder for databases (default: the system's temporary one)"
    )
    group = parser.add_argument_group("settings") if named else parser
    seen: dict[str, Setting] = {}
    for about in abouts:
        for setting in about.settings:
            if setting.name not in seen:
                # Without an experiment, one would have to guess to which one a setting belongs.
                setting.add_to(group, is_hidden=not named)
                seen[setting.name] = setting
    return parser, parser.parse_args(words)


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one line: a message below a screen of options is overlooked."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\n{PROGRAM} --help lists the experiments and options\n")


def _experiment(text: str) -> str:
    if text in experiments.NAMES:
        return text
    names = [*experiments.NAMES, *COMMANDS]
    [meant] = difflib.get_close_matches(text, names, 1) or [""]
    did_you = f"; did you mean {meant!r}?" if meant else "."
    raise argparse.ArgumentTypeError(
        f"there is no {text!r}{did_you} The experiments are {', '.join(experiments.NAMES)}."
    )


def rounds(text: str) -> int:
    """Parse a number of rounds."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _description(abouts: Sequence[About]) -> str:
    if abouts:
        return "\n\n".join(f"{about.name}: {about.question}\n{about.measured}" for about in abouts)
    lines = [f"  {name:<12}{experiments.load(name).ABOUT.question}" for name in experiments.NAMES]
    return "\n".join(["Measure pellucid beside other libraries. Experiments:", "", *lines])


def _epilog() -> str:
    example = f"`{PROGRAM} dict --help` lists the settings of an experiment."
    about = {**datasets.ABOUT, "guard": "the speed of two revisions of this checkout"}
    return "\n".join([example, "", "Commands:", "", *(f"  {name:<12}{text}" for name, text in about.items())])
