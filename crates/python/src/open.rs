//! What does `pellucid.open` take?

use std::ffi::OsString;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use pellucid_query::index::Expressions;
use pellucid_store::{Durability, Keep, Mode, OpenOptions, Store, Warning};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyInt, PyString};

use crate::database::Database;
use crate::errors;
use crate::hooks::PicklePolicy;
use crate::hot::callbacks;

/// Longer than anybody waits, and still an Instant when added to now.
const TIMEOUT_SECONDS_MAX: f64 = 1e9;

/// See [`limit_log`].
static LOG_AREA_SIZE: AtomicUsize = AtomicUsize::new(0);

/// Give databases that are opened from now on a log with segments of so many bytes, which is soon full: for tests. 0 is the
/// usual size.
#[pyfunction]
#[pyo3(name = "_limit_log")]
pub fn limit_log(segment_size: usize) {
    LOG_AREA_SIZE.store(segment_size, Ordering::Relaxed);
}

fn mode_of(word: &str) -> PyResult<Mode> {
    match word {
        "r" => Ok(Mode::Read),
        "w" => Ok(Mode::Write),
        "c" => Ok(Mode::Create),
        "n" => Ok(Mode::New),
        other => Err(errors::value_error(format!(
            "mode={other:?} is unknown; use \"r\" (read), \"w\" (write), \"c\" (create if need be) or \"n\" (empty)"
        ))),
    }
}

fn durability_of(word: &str) -> PyResult<Durability> {
    match word {
        "process" => Ok(Durability::Process),
        "full" => Ok(Durability::Full),
        other => {
            Err(errors::value_error(format!("durability={other:?} is unknown; use \"process\" or \"full\"")))
        }
    }
}

fn mode_word(mode: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::argument(mode, mode.extract(), "mode", "a str")
}

fn durability_word(durability: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::argument(durability, durability.extract(), "durability", "a str")
}

fn seconds(timeout: &Bound<'_, PyAny>) -> PyResult<f64> {
    errors::argument(timeout, timeout.extract(), "timeout", "a number of seconds")
}

/// How long to wait, as `timeout` says it.
pub fn seconds_of(timeout: &Bound<'_, PyAny>) -> PyResult<Duration> {
    checked_seconds(seconds(timeout)?)
}

fn checked_seconds(timeout: f64) -> PyResult<Duration> {
    if timeout.is_nan() || timeout < 0.0 {
        return Err(errors::value_error(format!("timeout={timeout} is no number of seconds from 0 on")));
    }
    Ok(Duration::from_secs_f64(timeout.min(TIMEOUT_SECONDS_MAX)))
}

/// How far back changes are kept, as `keep` says it: bytes or a time.
fn keep_of(keep: &Bound<'_, PyAny>) -> PyResult<Keep> {
    if keep.is_instance_of::<PyInt>() && !keep.is_instance_of::<PyBool>() {
        return match keep.extract() {
            Ok(0) => Ok(Keep::NOTHING),
            Ok(size) => Ok(Keep { size, ..Keep::NOTHING }),
            Err(_) => Err(errors::value_error(format!("keep={} is no number of bytes", keep.repr()?))),
        };
    }
    if !keep.is_instance_of::<PyDelta>() {
        let kind = keep.get_type();
        return Err(errors::type_error(format!(
            "keep has to be an int, of bytes, or a datetime.timedelta, not {}",
            kind.name()?
        )));
    }
    let seconds: f64 = keep.call_method0("total_seconds")?.extract()?;
    if seconds < 0.0 {
        return Err(errors::value_error(format!("keep={} is no time from 0 on", keep.repr()?)));
    }
    Ok(if seconds == 0.0 { Keep::NOTHING } else { Keep { size: u64::MAX, seconds: seconds.ceil() as u64 } })
}

fn untrusted_flag(untrusted: &Bound<'_, PyAny>) -> PyResult<bool> {
    errors::argument(untrusted, untrusted.extract(), "untrusted", "a bool")
}

/// A path, as the operating system spells it; what cannot be one is refused as the built-in `open` does it.
pub fn path_of(target: &Bound<'_, PyAny>) -> PyResult<OsString> {
    let py = target.py();
    let path = py.import("os")?.getattr("fspath")?.call1((target,))?;
    let path = if path.cast::<PyBytes>().is_ok() {
        py.import("os")?.getattr("fsdecode")?.call1((path,))?
    } else {
        path
    };
    let path: OsString = path.extract()?;
    if path.is_empty() {
        return Err(errors::of_system(
            py,
            "FileNotFoundError",
            Some(2),
            "the path is empty; name a file",
            "",
        ));
    }
    if path.as_encoded_bytes().contains(&0) {
        return Err(errors::value_error("the path has a null byte in it, which no path can have"));
    }
    Ok(path)
}

/// Issue a warning of the store's, at the line that called us.
pub fn warn(py: Python<'_>, warning: &Warning) -> PyResult<()> {
    let class = match warning {
        Warning::LostCommits { .. } | Warning::LogMissing { .. } | Warning::FileDeleted { .. } => {
            "LostCommitsWarning"
        }
        Warning::NetworkFileSystem { .. } | Warning::OtherNamespace { .. } => "NetworkFilesystemWarning",
        _ => "DatabaseWarning",
    };
    let class = py.import("pellucid.errors")?.getattr(class)?;
    py.import("warnings")?.getattr("warn")?.call1((warning.to_string(), class, 1))?;
    Ok(())
}

/// Open a database.
///
/// `target` is a path (str, bytes or `PathLike`), or ":memory:". `mode` is as in `dbm.open`: "r" only
/// reads, "w" writes, "c" (the default) also creates, "n" empties. `pickle` is "deny" (the default),
/// "allow", or a list of globals that stored pickles may use (`"mypkg.models.*"`: all classes of that module): a pickle
/// that is read runs code of
/// whoever wrote it. `timeout` is how many seconds to wait for locks of others. `untrusted=True` opens
/// a file that a stranger made: with mode "r" only, through a verified copy.
///
/// `durability` says what a commit survives once it has returned: "process" (the default) the death of
/// the process, and a power cut unless that comes within a second; "full" any power cut, since each
/// commit is synced to the disk before it returns.
///
/// `keep` says how far back `watch(since=...)` goes, from now on and whoever writes: so many bytes of changes, or a
/// `datetime.timedelta`. 0 keeps what costs nothing, the last seconds; None (the default) leaves it as it was said last.
///
/// Raises `FileNotFoundError`, `IsADirectoryError` and `PermissionError` as the built-in `open` does;
/// `NotADatabase`, `DatabaseCorrupt`, `NewerFormat`, `Busy`, `DatabaseError`.
///
/// >>> import pellucid
/// >>> db = pellucid.open(":memory:")
/// >>> db["fred"] = {"age": 21}
/// >>> db["fred"].age
/// 21
#[allow(clippy::too_many_arguments, reason = "they are what a user may say")]
#[pyfunction]
#[pyo3(
    signature = (target, mode="c".to_owned(), *, durability="process".to_owned(), pickle=None, timeout=10.0, untrusted=false, keep=None),
    text_signature = "(target, mode=\"c\", *, durability=\"process\", pickle=None, timeout=10.0, untrusted=False, keep=None)"
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
) -> PyResult<Py<Database>> {
    let policy = PicklePolicy::new(pickle)?;
    let (mode, durability) = (mode_of(&mode)?, durability_of(&durability)?);
    let timeout = checked_seconds(timeout)?;
    let keep = keep.map(keep_of).transpose()?;
    if keep.is_some() && mode == Mode::Read {
        return Err(errors::value_error("keep= is written into the database; open it with \"w\" or \"c\""));
    }
    if untrusted && mode != Mode::Read {
        return Err(errors::value_error("untrusted=True only reads; open it with mode=\"r\""));
    }
    if let Ok(word) = target.cast::<PyString>() {
        let word = word.to_str().unwrap_or_default();
        if word.starts_with("postgresql://") || word.starts_with("postgres://") {
            return Err(errors::value_error(
                "this release opens files and \":memory:\"; PostgreSQL is not supported yet",
            ));
        }
        if word == ":memory:" {
            let store = Store::memory_with(&OpenOptions {
                keep,
                deriver: Some(Arc::new(Expressions)),
                ..OpenOptions::default()
            })
            .map_err(|error| errors::of_store(py, error))?;
            return Database::new(py, store, policy, timeout, None, mode, durability, false);
        }
    }
    let path = path_of(target)?;
    let log_segment_size = LOG_AREA_SIZE.load(Ordering::Relaxed);
    let options = OpenOptions {
        mode,
        durability,
        timeout,
        is_untrusted: untrusted,
        keep,
        log_segment_size,
        deriver: Some(Arc::new(Expressions)),
        ..OpenOptions::default()
    };
    let opened = callbacks::released(py, || Store::open(std::path::Path::new(&path), &options));
    let store = opened.map_err(|error| errors::of_store(py, error))?;
    for warning in store.warnings().map_err(|error| errors::of_store(py, error))? {
        warn(py, &warning)?;
    }
    Database::new(py, store, policy, timeout, Some(path), mode, durability, untrusted)
}
