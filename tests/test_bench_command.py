"""Does every experiment run from the command line, and does the command say what goes wrong?"""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pellucid
import pytest
from click.testing import CliRunner
from pellucid.cli import app
from pellucid_bench import (
    child,
    command,
    compare,
    experiments,
    isolation,
    look_rows,
    machine,
    names,
    rivals,
    server,
)
from pellucid_bench.about import About, Setting
from pellucid_bench.contenders.pellucid import Pellucid
from pellucid_bench.dataset import Dataset, read, write
from pellucid_bench.experiments import (
    access_paths,
    columns,
    dicts,
    fast_paths,
    indexes,
    look,
    queries,
    scale,
)
from pellucid_bench.measures import Measure, Result, Unit
from pellucid_bench.run import Run, Unavailable
from test_bench_datasets import ROOT, sample_run

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

TITLES: dict[str, list[str]] = {
    "records": [
        "bytes at hand, read one field (uniform)",
        "bytes of the record (uniform)",
        "a record at hand, read one field (mixed)",
        "bulk load of many records (uniform)",
        "file size for a record (mixed)",
        "loop over all records, adding one field (uniform)",
        "sum of one field over all records (mixed)",
        "set one field of each record, in one transaction (uniform)",
        "dumps of a list of 500 small dicts",
        "loads of a list of 500 small dicts",
        "import",
        "open an existing database",
        "anonymous memory of a scan, whole process",
    ],
    "dict": [
        "100 single writes",
        "random reads after 100 writes",
        "300 single writes",
        "random reads after 300 writes",
        "300 single writes, then reads, both together",
        "open, 300 writes, close",
        "open, 300 writes, then reads, close",
    ],
    "writes": [
        "a put, then a scan of 100 rows",
        "rec.age += 1, each a commit",
        "two processes, each putting and reading what the other put",
        "until another process sees a put, median",
        "until another process sees a put, 99 of 100",
        "transactions of 10 puts in full, one writer",
        "transactions of 10 puts in full, eight writers",
        "loop over many small rows, some of them pending",
        "sum of one field of many small rows, some of them pending",
        "open after a crash with 300 entries pending",
    ],
    "query": [*queries.TITLES, *columns.TITLES, *indexes.TITLES, *access_paths.TITLES],
    "scale": [f"{title}: 2,000 rows, random keys" for title in scale.UNITS],
    "compressed": [
        "load of lines of a log",
        "file size for a line of a log",
        "one field of a line by its key",
        "loop over all lines, adding one field",
    ],
    "look": [look.SAMPLED, look.EXACT, look.WRONG, look.RIGHT, look_rows.NESTED, look_rows.ARRAYS],
    "json-lines": ["import of 2,000 rows", "export of 2,000 rows", "import of 2,000 rows of CSV"],
    "fast-paths": [
        "sum of an int, 2,000 rows, uniform",
        "count by a string, 2,000 rows, 64 shapes",
        *fast_paths.TITLES,
        "a step of a queue in which 100 items wait",
    ],
    "queues": [
        "claims of four processes among finished jobs",
        "additions to one counter by eight processes",
    ],
    "megabyte": ["memory of the process, reading", "size of the files, by the size of the values"],
    "cache": [
        "get hit, 100 bytes",
        "set with a time and a tag, 100 bytes",
        "memoized hit of a small result",
        "a stampede: until all callers of a function of 0.2 s are served",
    ],
    "dropins": ["shelve: 1,000 values, both", "dbm: 1,000 values, write"],
    "buffers": ["all of a dict in a buffer, 30 entries (client)", "bytes of 1 entry"],
}
MORE = {"dropins": ["--dbm-counts", "1000", "--rounds", "1"], "buffers": ["--no-server"]}


def bench(*arguments: str, fails: bool = False) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-m", "pellucid_bench", *arguments]
    done = subprocess.run(words, env=child.environment(), capture_output=True, text=True, check=False)
    assert bool(done.returncode) == fails, done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    return done


@pytest.mark.parametrize("name", TITLES)
def test_a_quick_run_measures_everything(name: str, tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    given = [name, "--quick", "--json", str(out), "--directory", str(tmp_path), *MORE.get(name, [])]
    done = bench(*given)
    [found] = read(out)
    measured = {measure.title: measure for measure in found.measures}
    assert set(TITLES[name]) <= set(measured)
    # A title that is longer than its table is wide is folded.
    shown = " ".join(done.stdout.split())
    for one in measured.values():
        assert one.title in shown
        assert all(sample >= 0 for result in one.results for sample in result.samples), one.title
        assert not [result.error for result in one.results if result.ours and result.error]
    assert (found.experiment, found.quick, found.complete) == (name, True, True)
    assert found.command.startswith(f"pellucid bench {name} --quick --json run.json --directory")
    assert found.machine.processor in shown
    assert found.versions["pellucid"] == pellucid.__version__
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_buffers_without_a_server_have_all_that_needs_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Outside of a clone there is no script that starts a server.
    monkeypatch.setattr(server, "KEEPER", tmp_path / "nothing.py")
    monkeypatch.delenv("PELLUCID_TEST_DSN", raising=False)
    options = command.Options(["buffers"], quick=True, only="dict in a buffer", directory=tmp_path)
    options.settings = {"entries": (1,), "no_pickles": True}
    [made] = command.measured(options)
    assert (made.code, made.dataset.complete) == (0, True)
    assert {one.title for one in made.dataset.measures} == {
        f"{task}, 1 entry (client)"
        for task in (
            "all of a dict in a buffer",
            "one field of a dict in a buffer",
            "a field of each inner dict in a buffer",
        )
    }
    assert any("without a server: only `./dev bench` in a clone" in note for note in made.dataset.notes)


def test_many_rows_are_measured_in_parts(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    given = ["scale", "--quick", "--library", "pellucid", "--json", str(out), "--directory", str(tmp_path)]
    bench(*given, "--parts", "kill")
    [found] = read(out)
    assert {measure.title.partition(":")[0] for measure in found.measures} == {"kill"}
    done = bench(*given, "--parts", "nothing", fails=True)
    assert "--parts are some of load, churn" in done.stdout, "and this is said of it"


def test_every_experiment_has_the_same_form() -> None:
    for name in experiments.NAMES:
        about = experiments.load(name).ABOUT
        assert about.name == name
        assert about.question.endswith("?")
        assert about.measured.endswith(".")
        for setting in about.settings:
            assert type(setting.quick) is type(setting.default), setting.name


def test_one_option_serves_experiments_with_one_value_and_with_several() -> None:
    one, several = Setting("rows", 5, 2, "rows"), Setting("rows", (5, 6), (2,), "rows")
    assert [setting.value(7, quick=False) for setting in (one, several)] == [7, (7,)]
    assert [setting.value([7, 8], quick=False) for setting in (one, several)] == [7, (7, 8)]
    assert [setting.value(None, quick=True) for setting in (one, several)] == [2, (2,)]


def test_every_experiment_explains_itself() -> None:
    shown = bench("--help").stdout
    for name in experiments.NAMES:
        assert f"  {name} " in shown
    for name in command.COMMANDS:
        assert f"  {name} " in shown
    # Options of single experiments, whose meanings and defaults differ, are in their own help alone.
    assert "--update-rows" not in shown
    assert "--update-rows" in bench("postgres", "--help").stdout


def test_without_rivals_every_measure_has_a_row_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = rivals.importlib.import_module
    hidden = {"lmdb", "diskcache", "sqlitedict", "msgspec", "polars", "pyarrow", "numpy", "orjson", "duckdb"}

    def without(name: str, *more: Any) -> Any:
        if name.partition(".")[0] in hidden:
            raise ModuleNotFoundError(f"No module named {name!r}")
        return find(name, *more)

    monkeypatch.setattr(rivals.importlib, "import_module", without)
    chosen = command.Options(names=["records", "dict"], quick=True, directory=tmp_path)
    for made in command.measured(chosen):
        assert made.code == 0
        assert hidden & set(made.dataset.missing)
        assert not hidden & set(made.dataset.versions)
    writes = made_measure(chosen, "dict", "dict/write/300")
    assert [one.error for one in writes.results if one.contender == "lmdb"] == [
        "not installed: No module named 'lmdb'"
    ]


def test_without_numpy_only_the_arrays_are_not_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError(\"No module named 'numpy'\")")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    bench("megabyte", "--quick", "--json", str(tmp_path / "run.json"), "--directory", str(tmp_path))
    [found] = read(tmp_path / "run.json")
    rows = {measure.group: measure.results for measure in found.measures}
    assert [one.error for one in rows.pop("numpy-view")] == ["not installed: No module named 'numpy'"]
    assert not [one.error for results in rows.values() for one in results if one.ours and one.error]


def test_the_name_of_a_folder_is_not_taken_out_of_other_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lmdb.py").write_text("raise ModuleNotFoundError(\"No module named 'lmdb'\")")
    (tmp_path / "db").mkdir()
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    bench("dict", "--quick", "--only", "100 single", "--directory", "db", "--json", "run.json")
    [found] = read(tmp_path / "run.json")
    assert found.missing["lmdb"] == "not installed: No module named 'lmdb'"


def made_measure(chosen: command.Options, name: str, measure_id: str) -> Any:
    chosen.names = [name]
    [made] = command.measured(chosen)
    found = made.dataset.measure(measure_id)
    assert found is not None
    return found


def test_only_what_is_asked_for_is_measured(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    bench("--quick", "records", "--only", "bytes of the record", "--json", str(out))
    assert [measure.title for measure in read(out)[0].measures] == ["bytes of the record (uniform)"]
    bench("dict", "--quick", "--library", "lmdb", "--only", "single writes", "--json", str(out))
    found = {result.library for measure in read(out)[0].measures for result in measure.results}
    assert found == {"lmdb"}


def test_a_word_that_no_title_has_is_an_error() -> None:
    done = bench("records", "--quick", "--only", "no such measure", fails=True)
    assert "no measure has 'no such measure' in its title" in done.stderr


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["recordz"], "there is no 'recordz'; did you mean 'records'? The experiments are records, dict"),
        (["comparex"], "there is no 'comparex'; did you mean 'compare'?"),
        (["zzz"], "there is no 'zzz'. The experiments are records, dict"),
        (["dict", "--rounds", "0"], "'0' is not a whole number of 1 or more"),
        (["dict", "--writes", "many"], "'many' is not a number of 0 or more"),
        (["dict", "--json", "nowhere/x.json"], "there is no folder nowhere"),
        (["json-lines", "--quick", "--library", "lmdb"], "no measure in which lmdb takes part was asked for"),
    ],
)
def test_a_wrong_option_is_a_message(
    words: list[str], text: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with pytest.raises(SystemExit) as stop:
        command.main([*words, "--directory", str(tmp_path)])
    assert stop.value.code == 2
    said = capsys.readouterr().err
    assert text in said
    assert len(said.splitlines()) == 2, "an error stands alone, without all options"


def test_another_seed_makes_other_cases(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        access_paths, "of_tables", lambda _run, rng, _share: [rng.random() for _ in range(25)]
    )
    found: dict[int, Any] = {}
    for seed in (1, 1, 2):
        chosen = command.Options(["query"], quick=True, only=access_paths.WAYS, directory=tmp_path)
        chosen.settings = {"seed": seed}
        [made] = command.measured(chosen)
        [measure] = made.dataset.measures
        assert measure.notes == [f"25 pairs of a table and a query, of seed {seed}"]
        samples = [result.samples for result in measure.results]
        assert found.setdefault(seed, samples) == samples
    assert found[1] != found[2]


# What goes wrong

HOME = "/".join(["", "home", "somebody"])


@pytest.fixture
def broken(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """An experiment whose run the test gives."""
    about = About("dict", "Does it break?", "Breaks.", (Setting("rows", 5, 2, "rows"),))
    module = SimpleNamespace(ABOUT=about, run=None)
    monkeypatch.setattr(experiments, "load", lambda _name: module)
    return module


def raising(error: BaseException) -> Any:
    def run(run: Run) -> None:
        run.add(sample_measure())
        raise error

    return run


def sample_measure() -> Any:
    from pellucid_bench.measures import of_dataset

    return of_dataset(sample_run().measures[0])


@pytest.mark.parametrize(
    ("error", "code", "note"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), 1, "make room there, or name another folder with"),
        (KeyboardInterrupt(), 130, "stopped by Ctrl-C"),
        (ValueError("odd"), 1, "stopped: ValueError: odd (test_bench_command.py, line "),
    ],
)
def test_a_run_that_ends_early_keeps_what_it_has(
    error: BaseException, code: int, note: str, broken: SimpleNamespace, tmp_path: Path
) -> None:
    broken.run = raising(error)
    [made] = command.measured(command.Options(["dict"], directory=tmp_path))
    assert (made.code, made.dataset.complete) == (code, False)
    assert any(note in one for one in made.dataset.notes), made.dataset.notes
    assert len(made.dataset.measures) == 1


@pytest.mark.parametrize(("is_all", "code"), [(True, 0), (False, 1)])
def test_an_experiment_that_cannot_run_here_fails_only_if_it_was_asked_for(
    is_all: bool, code: int, broken: SimpleNamespace, tmp_path: Path
) -> None:
    broken.run = raising(Unavailable("this needs a server"))
    [made] = command.measured(command.Options(["dict"], directory=tmp_path, is_all=is_all))
    assert (made.code, made.dataset.complete) == (code, False)
    assert "stopped: this needs a server" in made.dataset.notes


def test_what_is_left_out_is_a_row_and_no_failure(broken: SimpleNamespace, tmp_path: Path) -> None:
    def run(run: Run) -> None:
        run.add(Measure("put", Unit.TIME, [Result("pellucid, far", is_ours=True, left_out="no such server")]))

    broken.run = run
    [made] = command.measured(command.Options(["dict"], directory=tmp_path))
    assert (made.code, made.dataset.complete) == (0, True)
    [row] = made.dataset.measures[0].results
    assert (row.error, row.samples) == ("no such server", [])


@pytest.mark.parametrize("only", ["bulk load of many", "one field of one by its key"])
def test_a_store_that_cannot_be_filled_has_rows_with_the_reason_and_the_others_go_on(
    only: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fill(_store: Pellucid, _records: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Pellucid, "fill", fill)
    options = command.Options(["records"], quick=True, only=only, directory=tmp_path)
    options.libraries = frozenset({"pellucid", "sqlite3"})
    [made] = command.measured(options)
    assert (made.code, made.dataset.complete) == (1, True)
    [uniform, _] = [one for one in made.dataset.measures if only in one.title]
    [ours, rival] = [uniform.result(name) for name in ("pellucid", "sqlite3, columns")]
    assert ours is not None
    assert ours.error == "OSError: [Errno 28] No space left on device"
    assert rival is not None
    assert rival.samples


def test_a_disk_without_room_is_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command.shutil, "disk_usage", lambda _path: SimpleNamespace(free=3 << 20))
    assert command.main(["json-lines", "--quick", "--directory", str(tmp_path)]) == 1
    assert f"{tmp_path} has 3 MiB left" in capsys.readouterr().err
    assert os.listdir(tmp_path) == []


def test_ctrl_c_writes_the_dataset(tmp_path: Path) -> None:
    out = tmp_path / "run.json"
    words = [sys.executable, "-m", "pellucid_bench", "dict", "--writes", "3000", "--json", str(out)]
    with subprocess.Popen(
        [*words, "--directory", str(tmp_path)],
        env=child.environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        until = time.monotonic() + 60
        while not any(tmp_path.glob("pellucid-bench-*/dict")) and time.monotonic() < until:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        shown, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (130, "")
    [found] = read(out)
    assert found.complete is False
    assert "stopped by Ctrl-C" in shown
    assert os.listdir(tmp_path) == ["run.json"]


def test_a_machine_that_disturbs_is_said(tmp_path: Path) -> None:
    described = machine.describe(tmp_path)
    described.cores, described.load = 1, 0.9
    found = machine.warnings(described, tick=0.015)
    assert [note.partition(":")[0] for note in found[:1]] == ["one core"]
    assert "steps of 15000 us" in found[1]
    assert "load 0.9 on 1 core:" in found[2]
    assert machine.warnings(sample_run().machine, 1e-7) == []
    assert 0 < machine.clock_tick() < 0.1


def test_a_library_without_a_version_is_called_unknown() -> None:
    assert rivals.version_of("a_file_beside", SimpleNamespace()) == "unknown"  # type: ignore[arg-type]
    module: Any = SimpleNamespace(__version__="1.2")
    assert rivals.version_of("a_file_beside", module) == "1.2"


def test_no_name_of_host_or_user_is_in_a_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(names.platform, "node", lambda: "ada-laptop.example")
    monkeypatch.setattr(names.getpass, "getuser", lambda: "lovelace")
    run = sample_run()
    run.command = (
        f"pellucid bench dict --directory /mnt/Lovelace/big --json {HOME}/x.json --dsn 'host=h password=p'"
    )
    run.notes = [f"no space in {HOME}/tmp", "cannot reach ADA-LAPTOP"]
    run.measures[0].results[1].error = "no file /srv/lovelace/x"
    clean = names.without_names(run)
    assert clean.command == "pellucid bench dict --directory big --json x.json --dsn DSN"
    assert clean.notes == ["no space in ~/tmp", "cannot reach HOST"]
    assert clean.measures[0].results[1].error == "no file /srv/USER/x"
    assert clean.measures[0].results[0] == run.measures[0].results[0]


# Isolation


def test_isolated_contenders_have_the_same_rows(tmp_path: Path) -> None:
    chosen = command.Options(["dict"], quick=True, only="100 single writes", directory=tmp_path)
    chosen.libraries = frozenset(["pellucid", "lmdb", "diskcache"])
    [together] = command.measured(chosen)
    chosen.isolate = True
    [apart] = command.measured(chosen)
    rows = [
        {
            (one.id, result.contender)
            for one in made.dataset.measures
            for result in one.results
            if result.samples
        }
        for made in (together, apart)
    ]
    assert rows[0] == rows[1]
    assert isolation.NOTE in apart.dataset.notes
    hindered = compare.obstacle(together.dataset, apart.dataset)
    assert hindered is not None
    assert "other settings (isolate)" in hindered


def test_isolated_contenders_measure_only_the_titles_that_are_asked_for(tmp_path: Path) -> None:
    title = "100 single writes"
    chosen = command.Options(
        ["dict"], quick=True, isolate=True, titles=frozenset([title]), directory=tmp_path
    )
    chosen.libraries = frozenset(["pellucid"])
    [made] = command.measured(chosen)
    assert [measure.title for measure in made.dataset.measures] == [title]


def test_a_contender_that_crashes_has_a_row_that_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"
    (tmp_path / "lmdb.py").write_text(crash)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    run = Run(tmp_path, dicts.ABOUT.values(quick=True), only="100 single writes")
    run.seen.add("lmdb")
    isolation.run("dict", run, quick=True, rounds=1)
    assert "crashed by SIGSEGV" in run.rivals.missing["pellucid"]


def test_an_experiment_that_cannot_be_isolated_says_so(tmp_path: Path) -> None:
    chosen = command.Options(["json-lines"], quick=True, isolate=True, directory=tmp_path)
    [made] = command.measured(chosen)
    assert any("--isolate is not possible here" in note for note in made.dataset.notes)


# The command of the library


def test_the_command_finds_the_lab_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # What pip writes when it installs ./bench.
    described = tomllib.loads((ROOT / "bench/pyproject.toml").read_text())["project"]
    points = [
        f"[{group}]\n" + "".join(f"{name} = {where}\n" for name, where in found.items())
        for group, found in described["entry-points"].items()
    ]
    installed = tmp_path / f"{described['name'].replace('-', '_')}-{described['version']}.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(f"Name: {described['name']}\nVersion: {described['version']}\n")
    (installed / "entry_points.txt").write_text("".join(points))
    monkeypatch.syspath_prepend(tmp_path)
    found = CliRunner().invoke(app.command, ["bench", "table", "--help"], prog_name="pellucid")
    assert (found.exit_code, found.stdout.partition(" [")[0]) == (0, "usage: pellucid bench table")
    assert CliRunner().invoke(app.command, ["bench", "no-such-experiment"]).exit_code == 2
    # What the lab needs may be missing.
    (installed / "entry_points.txt").write_text("[pellucid.commands]\nbench = no_such_module:main\n")
    missing = CliRunner().invoke(app.command, ["bench"])
    assert missing.exit_code == 1
    assert "cannot run (No module named 'no_such_module')" in missing.output


def test_without_the_lab_the_command_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    folders = [one for one in sys.path if not [*Path(one).glob("pellucid_bench-*.dist-info")]]
    monkeypatch.setattr(sys, "path", folders)
    found = CliRunner().invoke(app.command, ["bench", "dict"])
    assert found.exit_code == 1
    assert "not installed: run pip install ./bench in a clone of pellucid" in found.output


def test_the_library_is_packaged_without_the_lab() -> None:
    # maturin takes the package of the native module and no other, unless told to.
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["maturin"]
    assert settings["module-name"].partition(".")[0] == "pellucid"
    assert (settings["python-source"], "python-packages" in settings) == ("python", False)
    assert "bench" not in str(settings.get("include"))
    assert [one.name for one in (ROOT / "python").iterdir() if [*one.rglob("*.py")]] == ["pellucid"]


# Commands for datasets


def run_with(samples: dict[str, list[float]], **changes: Any) -> Dataset:
    """A dataset in which each contender has these samples."""
    run = sample_run()
    measure = run.measures[0]
    measure.unit, measure.better = "seconds", "lower"
    proto = measure.results[0]
    measure.results = [
        type(proto)(
            name, name, ours=name == "pellucid", samples=values, median=sorted(values)[len(values) // 2]
        )
        for name, values in samples.items()
    ]
    for name, value in changes.items():
        setattr(run, name, value)
    return run


def noisy(center: float, seed: int, count: int = 7) -> list[float]:
    chance = random.Random(seed)
    return [center * chance.uniform(0.98, 1.1) for _ in range(count)]


@pytest.mark.parametrize(
    ("factor", "others", "verdict"),
    [
        (1.0, 1.0, "unchanged"),
        (2.0, 1.0, "regressed"),
        (0.5, 1.0, "improved"),
        (2.0, 2.0, "unchanged"),
        (1.0, 2.0, "unchanged"),
    ],
)
def test_changes_are_told_from_chance_and_from_the_machine(
    factor: float, others: float, verdict: str
) -> None:
    rivals_ = ["lmdb", "sqlite3", "plyvel"]
    before = run_with({"pellucid": noisy(1.0, 1), **{name: noisy(3.0, 2) for name in rivals_}})
    after = run_with({"pellucid": noisy(factor, 3), **{name: noisy(3.0 * others, 4) for name in rivals_}})
    [ours, *_] = compare.changes(before, after)
    assert ours.verdict == verdict, ours


def test_a_noisy_machine_hides_what_is_within_its_noise() -> None:
    factors = {"lmdb": 0.5, "sqlite3": 1.0, "plyvel": 2.0, "rocksdict": 1.4}
    before = run_with({"pellucid": noisy(1.0, 1), **{name: noisy(3.0, 2) for name in factors}})
    after = run_with(
        {"pellucid": noisy(2.0, 3), **{name: noisy(3.0 * factor, 4) for name, factor in factors.items()}}
    )
    [ours, *_] = compare.changes(before, after)
    assert ours.verdict == "unchanged"
    assert "the others, which did not change, differ by up to" in ours.reason
    [lone] = compare.changes(run_with({"x": noisy(1.0, 1)}), run_with({"x": noisy(2.0, 2)}))
    assert lone.verdict == "regressed"
    shaky = run_with({"x": noisy(2.0, 2)})
    shaky.measures[0].results[0].unstable = True
    [lone] = compare.changes(run_with({"x": noisy(1.0, 1)}), shaky)
    assert (lone.verdict, lone.reason) == ("unclear", "unstable")


def test_ten_pairs_of_runs_alike_have_no_regression() -> None:
    for seed in range(10):
        everybody = [f"rival {number}" for number in range(30)]
        before, after = (
            run_with({name: noisy(1.0, seed * 1000 + start + index) for index, name in enumerate(everybody)})
            for start in (0, 500)
        )
        assert not [one for one in compare.changes(before, after) if one.verdict == "regressed"]


def test_few_samples_are_unclear_and_sizes_are_not() -> None:
    [one] = compare.changes(run_with({"x": [1.0, 1.0]}), run_with({"x": [9.0, 9.0]}))
    assert (one.verdict, one.reason) == ("unclear", "2 samples; 5 are needed")
    runs = [run_with({"x": [size]}) for size in (100.0, 150.0)]
    for run in runs:
        run.measures[0].unit = "bytes"
    assert [one.verdict for one in compare.changes(*runs)] == ["regressed"]


def test_a_contender_that_fails_now_has_regressed_and_a_zero_has_no_ratio() -> None:
    before, after = run_with({"pellucid": [1.0] * 5}), run_with({"pellucid": [1.0] * 5})
    lost = after.measures[0].results[0]
    lost.samples, lost.median, lost.error = [], None, "crashed by SIGSEGV"
    [one] = compare.changes(before, after)
    assert (one.verdict, one.ratio) == ("regressed", None)
    assert "no figure (crashed by SIGSEGV)" in one.text
    # Where neither run has a figure, there is nothing to compare.
    assert not list(compare.changes(after, after))
    [one] = compare.changes(run_with({"x": [0.0] * 5}), run_with({"x": [0.0] * 5}))
    assert one.verdict == "unchanged"
    [one] = compare.changes(run_with({"x": [0.0] * 5}), run_with({"x": [2.0] * 5}))
    assert (one.verdict, one.reason) == ("unclear", "a figure of 0 has no ratio")


def test_a_regression_that_does_not_come_again_is_taken_back() -> None:
    before, after, again = (
        run_with({"pellucid": noisy(factor, index)}) for index, factor in enumerate((1, 2, 1))
    )
    found = list(compare.changes(before, after))
    assert [one.verdict for one in found] == ["regressed"]
    confirmed = compare.confirmed(found, list(compare.changes(before, again)))
    assert [one.verdict for one in confirmed] == ["unchanged"]
    assert "when it was repeated" in confirmed[0].text
    assert compare.confirmed(found, found) == found


def test_runs_of_other_machines_and_settings_are_side_by_side(tmp_path: Path) -> None:
    one, other = run_with({"pellucid": noisy(1, 1)}), run_with({"pellucid": noisy(2, 2)})
    other.machine.id = "another"
    assert "different machines" in (compare.obstacle(one, other) or "")
    assert [change.verdict for change in compare.changes(one, other)] == ["unclear"]
    for name, run in (("one", one), ("other", other)):
        write(tmp_path / f"{name}.json", [run])
    done = bench("compare", str(tmp_path / "one.json"), str(tmp_path / "other.json"))
    assert "shown side by side, not compared" in done.stdout
    assert "dict/write/10000: pellucid" in done.stdout
    other.machine.id, other.settings = one.machine.id, {"writes": [7]}
    assert "other settings (writes)" in (compare.obstacle(one, other) or "")
    other.settings, other.quick = one.settings, True
    assert "a quick run" in (compare.obstacle(one, other) or "")


def test_a_regression_of_ours_is_the_exit_code(tmp_path: Path) -> None:
    for name, factor in (("before", 1.0), ("after", 3.0)):
        write(tmp_path / f"{name}.json", [run_with({"pellucid": noisy(factor, 5)})])
    paths = [str(tmp_path / "before.json"), str(tmp_path / "after.json")]
    assert "1 regressed" in bench("compare", *paths, fails=True).stdout
    assert "1 improved" in bench("compare", *reversed(paths)).stdout


def test_a_rerun_repeats_what_seems_to_have_regressed(tmp_path: Path) -> None:
    path, later = tmp_path / "run.json", tmp_path / "later.json"
    given = ["records", "--only", "read one field (uniform)", "--rounds", "5", "--rows", "100"]
    bench(*given, "--library", "pellucid", "--json", str(path))
    [run] = read(path)
    results = [result for measure in run.measures for result in measure.results]
    # Without the noise of a busy machine, in which a difference is unclear.
    for result in results:
        result.samples, result.unstable = [result.median] * 5, False
    write(path, [run])
    for result in results:
        result.median *= 10
        result.samples = [result.median] * 5
    write(later, [run])
    assert " regressed " in bench("compare", str(path), str(later), fails=True).stdout
    done = bench("compare", str(path), str(later), "--rerun", "--threshold", "5")
    assert "measuring again: " in done.stdout
    assert "0 regressed" in done.stdout


def test_datasets_are_merged_in_order_and_never_averaged(tmp_path: Path) -> None:
    other = sample_run("2026-11-25T00:00:00+00:00")
    other.machine.id = "another"
    write(tmp_path / "a.json", [other])
    write(tmp_path / "b.json", [sample_run()])
    merged = tmp_path / "all.json"
    done = bench("merge", str(tmp_path / "a.json"), str(tmp_path / "b.json"), "--output", str(merged))
    assert "2 runs of 2 machines" in done.stdout
    assert read(merged) == [sample_run(), other]


@pytest.mark.parametrize(
    "words", [["merge", "FILE", "--output", "OUT"], ["compare", "FILE", "FILE"], ["table", "FILE"]]
)
@pytest.mark.parametrize("text", ["{", '{"schema": "pellucid-bench/9"}'])
def test_a_bad_dataset_is_a_message(words: list[str], text: str, tmp_path: Path) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    given = [
        str(path) if word == "FILE" else str(tmp_path / "out") if word == "OUT" else word for word in words
    ]
    done = bench(*given, fails=True)
    assert done.stderr.startswith(f"pellucid bench: {path} ")
