"""Runs the tests of joblib's own package for `Memory` over `pellucid.contrib.joblib`.

python tests/drop_ins/joblib_suite.py

They are in the installed joblib. Those that look into the folder of a call are left out, as are those of
coroutines if pytest-asyncio is not there. The exit code is 0 if all others pass.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import joblib

# They look for files or folders of single results, or for memory maps of such files.
LEFT_OUT = [
    "test_parallel_call_cached_function_defined_in_jupyter",
    "test_memory_numpy_check_mmap_mode",
    "test_memorized_result_forwards_mmap_mode",
    "test_func_dir",
    "test_persistence",
    "test_call_and_shelve_lazily_load_stored_result",
    "test__get_items",
    "test_memory_clear",
    "test_memory_recomputes_after_an_error_while_loading_results",
    "TestAutoGitignore::test_memory_creates_gitignore",
]

CONFTEST = """
import joblib
from pellucid.contrib.joblib import StoreBackend

class Backend(StoreBackend):
    def configure(self, location, verbose=1, backend_options=None):
        super().configure(location, verbose, {"pickle": "allow", **(backend_options or {})})

joblib.register_store_backend("local", Backend)
joblib._store_backends.StoreBackendBase.register(Backend)
"""


def main() -> int:
    """Run the tests, and print how many of them passed."""
    source = Path(joblib.__file__).parent / "test"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        tests = folder / "tests"
        tests.mkdir()
        (folder / "conftest.py").write_text(CONFTEST)
        (tests / "__init__.py").write_text("")
        for part in ("test_memory.py", "test_store_backends.py", "common.py", "testutils.py"):
            shutil.copy(source / part, tests)
        print(f"left out: {len(LEFT_OUT)}, which look into folders")
        options = ["-q", "-p", "no:cacheprovider", "-W", "ignore", "--timeout", "60", "--tb", "short"]
        deselected = [f"--deselect=tests/test_memory.py::{name}" for name in LEFT_OUT]
        command = [sys.executable, "-m", "pytest", "tests", *options, *deselected]
        return subprocess.run(command, cwd=folder, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
