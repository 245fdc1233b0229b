//! The function `pellucid.open`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use pellucid_query::index::Expressions;
use pellucid_store::{MEMORY_USUAL, Mode, OpenOptions, Store, Warning};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

use crate::arguments::{
    auto_compact_flag, checked_seconds, durability_of, durability_word, keep_of, memory_of, mode_of,
    mode_word, path_of, seconds, untrusted_flag,
};
use crate::database::Database;
use crate::errors;
use crate::hot::{callbacks, modules};
use crate::values::hooks::PicklePolicy;
use crate::{store_errors, testing};

/// Issues a warning of the store at the line that called us.
pub fn warn(py: Python<'_>, warning: &Warning) -> PyResult<()> {
    let class = match warning {
        Warning::LostCommits { .. }
        | Warning::LogDamaged { .. }
        | Warning::LogMissing { .. }
        | Warning::FileDeleted { .. } => "LostCommitsWarning",
        Warning::NetworkFileSystem { .. } | Warning::OtherNamespace { .. } => "NetworkFilesystemWarning",
        _ => "DatabaseWarning",
    };
    let class = py.import("pellucid.errors")?.getattr(class)?;
    py.import("warnings")?.getattr("warn")?.call1((warning.to_string(), class, 1))?;
    Ok(())
}

/// Issues a warning that came up while the database was open, if there is one.
pub fn warn_of_new(py: Python<'_>, store: &Store) -> PyResult<()> {
    match store.new_warning().map_err(|error| store_errors::of_store(py, error))? {
        Some(warning) => warn(py, &warning),
        None => Ok(()),
    }
}

/// Has `FastAPI` serve records, if the program uses it: it would serve a list of texts as an
/// object.
pub fn offer_encoders(py: Python<'_>) -> PyResult<()> {
    callbacks::code_may_run(py);
    if modules::loaded(intern!(py, "fastapi.encoders")).is_none() {
        return Ok(());
    }
    py.import("pellucid.contrib.fastapi")?.call_method0("offer").map(|_| ())
}

/// Whether this is the URL of a server.
fn is_of_server(target: &Bound<'_, PyAny>) -> bool {
    let word = target.cast::<PyString>().ok().and_then(|word| word.to_str().ok());
    word.is_some_and(|word| word.starts_with("postgresql://") || word.starts_with("postgres://"))
}

/// Refuses what is meant for a server and is not the URL of one. A file of such a name is opened.
fn refuse_other_servers(target: &Bound<'_, PyAny>, path: &OsStr) -> PyResult<()> {
    let Some(word) = target.cast::<PyString>().ok().and_then(|word| word.to_str().ok()) else {
        return Ok(());
    };
    let is_meant = ["://", "dbname="].iter().any(|part| word.contains(part));
    if !is_meant || Path::new(path).exists() {
        return Ok(());
    }
    // It may have a password, so it is not repeated.
    Err(errors::value_error(
        "this is neither a path nor the URL of a PostgreSQL server; write \"postgresql://user@host/database\" for tables on one",
    ))
}

/// The path, and the same from the root, for pickles: the program may change its folder later.
fn with_absolute(path: OsString) -> (OsString, OsString) {
    let absolute = std::path::absolute(&path).map_or_else(|_| path.clone(), PathBuf::into_os_string);
    (path, absolute)
}

/// Open a database and return its handle.
///
/// `target` is a path (str, bytes or `PathLike`), ":memory:", or "postgresql://..." for tables on a
/// PostgreSQL server, as libpq takes it (`pip install pellucid[postgres]`). `mode` is as in
/// `dbm.open`: "r" only reads, "w" writes, "c" (the default) also creates, "n" empties. `pickle` is
/// "deny" (the default), "allow", or a list of globals that stored pickles may use
/// (`"mypkg.models.*"`: all classes of that module). Reading a pickle runs code chosen by its
/// author. `timeout` is how many seconds to wait for locks of other processes and threads.
/// `untrusted=True` opens a file from an untrusted source, only with mode "r" and through a
/// verified copy.
///
/// `durability` says what a commit survives once it has returned. With "process" (the default) it
/// survives the death of the process, and a power cut, unless that comes within a second. With
/// "full" it survives any power cut, since each commit is synced to the disk before it returns.
///
/// `keep` says how far back `watch(since=...)` goes, from now on and for all writers: a number of
/// bytes of changes, or a `datetime.timedelta`. 0 keeps the last seconds, which costs nothing; None
/// (the default) leaves the setting unchanged.
///
/// `memory` is how many bytes of memory this process may take for commits that are in the log, but
/// not in the file yet: 8 MiB at least, and 256 MiB by default. With more, a load under random keys
/// writes less. The log is as long as the least of the processes that write allows.
///
/// With `auto_compact` (the default), this process makes the file shorter when more than a fifth
/// of it is free and little is written, in small steps, from its first commit on; other processes
/// can use it meanwhile. `compact` and `compact(online=True)` do so when they are called.
///
/// Raises `FileNotFoundError`, `IsADirectoryError` and `PermissionError` as the built-in `open`
/// does, and `NotADatabase`, `DatabaseCorrupt`, `NewerFormat`, `Busy` and `DatabaseError`.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["fred"] = {"age": 21}
/// >>> db["fred"].age
/// 21
#[allow(clippy::too_many_arguments, reason = "they are what a user may say")]
#[pyfunction]
#[pyo3(
    signature = (target, mode="c".to_owned(), *, durability="process".to_owned(), pickle=None, timeout=10.0, untrusted=false, keep=None, memory=None, auto_compact=true),
    text_signature = "(target, mode=\"c\", *, durability=\"process\", pickle=None, timeout=10.0, untrusted=False, keep=None, memory=None, auto_compact=True)"
)]
pub fn open(
    py: Python<'_>,
    target: &Bound<'_, PyAny>,
    #[pyo3(from_py_with = mode_word)] mode: String,
    #[pyo3(from_py_with = durability_word)] durability: String,
    pickle: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = seconds)] timeout: f64,
    #[pyo3(from_py_with = untrusted_flag)] untrusted: bool,
    keep: Option<&Bound<'_, PyAny>>,
    memory: Option<&Bound<'_, PyAny>>,
    #[pyo3(from_py_with = auto_compact_flag)] auto_compact: bool,
) -> PyResult<Py<PyAny>> {
    if is_of_server(target) {
        let keywords = PyDict::new(py);
        keywords.set_item("durability", durability)?;
        keywords.set_item("pickle", pickle)?;
        keywords.set_item("timeout", timeout)?;
        keywords.set_item("untrusted", untrusted)?;
        keywords.set_item("keep", keep)?;
        keywords.set_item("memory", memory)?;
        keywords.set_item("auto_compact", auto_compact)?;
        offer_encoders(py)?;
        let connect = py.import("pellucid.postgres")?.getattr("connect")?;
        return Ok(connect.call((target, mode), Some(&keywords))?.unbind());
    }
    let policy = PicklePolicy::new(pickle)?;
    let (mode, durability) = (mode_of(&mode)?, durability_of(&durability)?);
    let timeout = checked_seconds(timeout)?;
    let keep = keep.map(keep_of).transpose()?;
    let memory = memory.map_or(Ok(MEMORY_USUAL), memory_of)?;
    if keep.is_some() && mode == Mode::Read {
        return Err(errors::value_error("keep= is written into the database; open it with \"w\" or \"c\""));
    }
    if untrusted && mode != Mode::Read {
        return Err(errors::value_error("untrusted=True only reads; open it with mode=\"r\""));
    }
    if target.cast::<PyString>().is_ok_and(|word| word.to_str().unwrap_or_default() == ":memory:") {
        let store = Store::memory_with(&OpenOptions {
            keep,
            deriver: Some(Arc::new(Expressions)),
            ..OpenOptions::default()
        })
        .map_err(|error| store_errors::of_store(py, error))?;
        let opened = Database::new(py, store, policy, timeout, None, mode, durability, false)?;
        return Ok(opened.into_any());
    }
    let (path, absolute) = with_absolute(path_of(target)?);
    refuse_other_servers(target, path.as_ref())?;
    let log_segment_size = testing::log_segment_size();
    let options = OpenOptions {
        mode,
        durability,
        timeout,
        is_untrusted: untrusted,
        keep,
        log_segment_size,
        memory,
        auto_compact,
        index_memory: testing::sort_memory(),
        deriver: Some(Arc::new(Expressions)),
        ..OpenOptions::default()
    };
    let opened = callbacks::released(py, || Store::open(Path::new(&path), &options));
    let store = opened.map_err(|error| store_errors::of_store(py, error))?;
    for warning in store.warnings().map_err(|error| store_errors::of_store(py, error))? {
        warn(py, &warning)?;
    }
    Ok(Database::new(py, store, policy, timeout, Some((path, absolute)), mode, durability, untrusted)?
        .into_any())
}
