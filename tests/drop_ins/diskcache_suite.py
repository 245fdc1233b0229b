"""Runs diskcache's own tests over `pellucid.contrib.diskcache`.

python tests/drop_ins/diskcache_suite.py [folder]

They come from diskcache's source distribution, which pip downloads, or from the folder that is given. Those
that look into SQLite, into folders, or replace parts by mocks are left out, each with a word below. The exit
code is 0 if all others pass.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "5.6.3"

# Why a test says nothing about another implementation.
LEFT_OUT = {
    "test_core.py": {
        "SQL": ["test_custom_eviction_policy", "test_pragmas"],
        "mocks": [
            "test_init_makedirs",
            "test_pragma_error",
            "test_close_error",
            "test_get_keyerror4",
            "test_set_timeout",
            "test_get_ioerror_fast_path",
            "test_pop_ioerror",
            "test_expire",
            "test_clear_timeout",
            "test_add_timeout",
            "test_pull_ioerror",
            "test_peek_ioerror",
            "test_peekitem_ioerror",
            "test_cull_timeout",
            "test_disk_write_os_error",
        ],
        "folders": [
            "test_custom_filename_disk",
            "test_path",
            "test_check",
            "test_integrity_check",
            "test_cleanup_dirs",
            "test_rsync",
        ],
    },
    "test_deque.py": {
        "mocks": [
            "test_index_positive",
            "test_index_negative",
            "test_index_out_of_range",
            "test_iter_keyerror",
            "test_reversed_keyerror",
            "test_remove_keyerror",
            "test_rotate_indexerror",
            "test_rotate_indexerror_negative",
        ],
    },
    "test_fanout.py": {
        "mocks": [
            "test_set_timeout",
            "test_touch_timeout",
            "test_add_timeout",
            "test_incr_timeout",
            "test_decr_timeout",
            "test_get_timeout",
            "test_pop_timeout",
            "test_delete_timeout",
            "test_remove_timeout",
            "test_reset_timeout",
        ],
        "folders": ["test_custom_filename_disk", "test_rsync"],
    },
}

CONFTEST = """
import sys
import pytest
from pellucid.contrib import diskcache
from pellucid.contrib.diskcache import settings

for each in (diskcache.Cache, diskcache.FanoutCache, diskcache.Deque, diskcache.Index):
    each.__init__.__kwdefaults__["pickle"] = "allow"
diskcache.core = settings
sys.modules.update({"diskcache": diskcache, "diskcache.core": settings})

@pytest.fixture(scope="session", autouse=True)
def tables():
    if "django" in sys.modules:
        from django.db import connection
        from tests.models import Poll
        with connection.schema_editor() as editor:
            editor.create_model(Poll)
"""

SETTINGS = """
import tempfile
ALLOWED_HOSTS = ["testserver"]
CACHES = {"default": {"BACKEND": "pellucid.contrib.diskcache.DjangoCache", "LOCATION": tempfile.mkdtemp()}}
DATABASES = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": ":memory:"}}
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
INSTALLED_APPS = ["tests"]
SECRET_KEY = "of a test"
USE_TZ = True
"""

# The distribution lacks these two modules, which its tests of Django import.
MODELS = """
from django.db import models
from django.utils import timezone

def expensive_calculation():
    expensive_calculation.num_runs += 1
    return timezone.now()

class Poll(models.Model):
    question = models.CharField(max_length=200)
    answer = models.CharField(max_length=200)
    pub_date = models.DateTimeField(default=expensive_calculation)
"""


def main(given: str | None) -> int:
    """Run the tests, and print how many of them passed."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = Path(given) if given else downloaded(folder)
        tests = folder / "tests"
        tests.mkdir()
        (folder / "conftest.py").write_text(CONFTEST)
        (tests / "__init__.py").write_text("")
        (tests / "settings.py").write_text(SETTINGS)
        (tests / "models.py").write_text(MODELS)
        for part in ("core", "deque", "djangocache", "fanout", "index", "recipes"):
            shutil.copy(source / f"tests/test_{part}.py", tests)
        django = tests / "test_djangocache.py"
        django.write_text(
            re.sub(
                r"'diskcache\.DjangoCache'", "'pellucid.contrib.diskcache.DjangoCache'", django.read_text()
            )
        )
        return run(folder)


def downloaded(folder: Path) -> Path:
    """The unpacked source distribution."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--no-binary", ":all:"]
    subprocess.run([*pip, f"diskcache=={VERSION}"], cwd=folder, check=True)
    archive = folder / f"diskcache-{VERSION}.tar.gz"
    with tarfile.open(archive) as file:
        members = [member for member in file.getmembers() if re.search(r"/tests/test_\w+\.py$", member.name)]
        for member in members:
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            content = file.extractfile(member)
            assert content is not None
            target.write_bytes(content.read())
    return folder / f"diskcache-{VERSION}"


def run(folder: Path) -> int:
    names = [
        f"tests/{file}::{name}"
        for file, reasons in LEFT_OUT.items()
        for group in reasons.values()
        for name in group
    ]
    deselected = [f"--deselect={name}" for name in names]
    options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--timeout", "60", "--tb", "short"]
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "tests.settings", "TMPDIR": str(folder)}
    command = [sys.executable, "-m", "pytest", "tests", *options, *deselected]
    print(f"left out: {len(names)}, which look into SQL or folders, or use mocks")
    return subprocess.run(command, cwd=folder, env=environment, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2] or [None]))
