//! Read the arguments of `pellucid.open` and of other calls that wait or name a file.

use std::ffi::OsString;
use std::time::Duration;

use pellucid_store::{Durability, Keep, MEMORY_MIN, Mode};
use pyo3::exceptions::PyOverflowError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyBytes, PyDelta, PyInt};

use crate::errors;

/// The longest timeout, which can still be added to the current Instant.
const TIMEOUT_SECONDS_MAX: f64 = 1e9;

pub fn mode_of(word: &str) -> PyResult<Mode> {
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

pub fn durability_of(word: &str) -> PyResult<Durability> {
    match word {
        "process" => Ok(Durability::Process),
        "full" => Ok(Durability::Full),
        other => {
            Err(errors::value_error(format!("durability={other:?} is unknown; use \"process\" or \"full\"")))
        }
    }
}

pub fn mode_word(mode: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::argument(mode, mode.extract(), "mode", "a str")
}

pub fn durability_word(durability: &Bound<'_, PyAny>) -> PyResult<String> {
    errors::argument(durability, durability.extract(), "durability", "a str")
}

pub fn seconds(timeout: &Bound<'_, PyAny>) -> PyResult<f64> {
    errors::argument(timeout, timeout.extract(), "timeout", "a number of seconds")
}

/// The duration of the argument `timeout`.
pub fn seconds_of(timeout: &Bound<'_, PyAny>) -> PyResult<Duration> {
    checked_seconds(seconds(timeout)?)
}

pub fn checked_seconds(timeout: f64) -> PyResult<Duration> {
    if timeout.is_nan() || timeout < 0.0 {
        return Err(errors::value_error(format!("timeout={timeout} is no number of seconds from 0 on")));
    }
    Ok(Duration::from_secs_f64(timeout.min(TIMEOUT_SECONDS_MAX)))
}

/// The argument `lease`, a number of seconds or a timedelta, in seconds.
pub fn lease_of(lease: &Bound<'_, PyAny>) -> PyResult<f64> {
    length_of(lease, "lease")
}

/// The argument `timeout` of a claim, in seconds; None waits without limit.
pub fn wait_of(timeout: &Bound<'_, PyAny>) -> PyResult<Option<f64>> {
    if timeout.is_none() { Ok(None) } else { length_of(timeout, "timeout").map(Some) }
}

fn length_of(length: &Bound<'_, PyAny>, name: &str) -> PyResult<f64> {
    if length.is_instance_of::<PyDelta>() {
        return length.call_method0("total_seconds")?.extract();
    }
    let seconds = if length.is_instance_of::<PyBool>() {
        Err(errors::type_error("a bool is no number of seconds"))
    } else {
        length.extract()
    };
    match seconds {
        Err(error) if error.is_instance_of::<PyOverflowError>(length.py()) => Ok(f64::INFINITY),
        seconds => errors::argument(length, seconds, name, "a number of seconds or a timedelta"),
    }
}

/// The argument `keep`, a number of bytes or a time: how much history is kept.
pub fn keep_of(keep: &Bound<'_, PyAny>) -> PyResult<Keep> {
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

/// The argument `memory`, a number of bytes.
pub fn memory_of(memory: &Bound<'_, PyAny>) -> PyResult<u64> {
    if !memory.is_instance_of::<PyInt>() || memory.is_instance_of::<PyBool>() {
        let kind = memory.get_type();
        return Err(errors::type_error(format!("memory has to be an int, of bytes, not {}", kind.name()?)));
    }
    // What no machine has is as good as the most that there can be.
    let is_large = memory.gt(u64::MAX)?;
    let size = if is_large { u64::MAX } else { memory.extract().unwrap_or(0) };
    if size < MEMORY_MIN {
        return Err(errors::value_error(format!(
            "memory={} is not enough; use {MEMORY_MIN} bytes (8 MiB) or more",
            memory.repr()?
        )));
    }
    Ok(size)
}

pub fn untrusted_flag(untrusted: &Bound<'_, PyAny>) -> PyResult<bool> {
    errors::argument(untrusted, untrusted.extract(), "untrusted", "a bool")
}

/// The argument `auto_compact`.
pub fn auto_compact_flag(auto_compact: &Bound<'_, PyAny>) -> PyResult<bool> {
    errors::argument(auto_compact, auto_compact.extract(), "auto_compact", "a bool")
}

/// The argument `run_init`.
pub fn run_init_flag(run_init: &Bound<'_, PyAny>) -> PyResult<bool> {
    errors::argument(run_init, run_init.extract(), "run_init", "a bool")
}

/// The argument `validate`.
pub fn validate_flag(validate: &Bound<'_, PyAny>) -> PyResult<bool> {
    errors::argument(validate, validate.extract(), "validate", "a bool")
}

/// The argument `ignore_extra`.
pub fn ignore_extra_flag(ignore_extra: &Bound<'_, PyAny>) -> PyResult<bool> {
    errors::argument(ignore_extra, ignore_extra.extract(), "ignore_extra", "a bool")
}

/// The argument `fast`.
pub fn fast_flag(fast: &Bound<'_, PyAny>) -> PyResult<bool> {
    errors::argument(fast, fast.extract(), "fast", "a bool")
}

/// The argument `compress`.
pub fn compress_flag(compress: &Bound<'_, PyAny>) -> PyResult<Option<bool>> {
    errors::argument(compress, compress.extract(), "compress", "a bool or None")
}

/// A path in the operating system's form. An object that is no path raises the exception that the
/// built-in `open` raises.
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

/// The word for a mode, as in `mode=`.
pub fn word_of(mode: Mode) -> &'static str {
    match mode {
        Mode::Read => "r",
        // A handle that is pickled or used after a fork must not create or empty anything.
        Mode::Write | Mode::Create | Mode::New => "w",
    }
}
