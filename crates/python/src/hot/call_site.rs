//! Find the line of Python code that called into pellucid.
//!
//! Invariant: a frame is read while it runs and never kept, since it would keep all locals of its
//! function alive.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use crate::hot::gil::Strong;

/// A place in a function, as an offset in its code. The line number is computed on request: that is
/// most of the cost.
pub struct CallSite {
    code: Strong<PyAny>,
    offset: i32,
}

impl CallSite {
    /// The place that runs now; None if no Python code runs.
    pub fn here(py: Python<'_>) -> Option<Self> {
        // SAFETY: the token proves that this thread is attached; a borrowed reference, or null.
        let frame = unsafe { ffi::PyEval_GetFrame() };
        if frame.is_null() {
            return None;
        }
        // SAFETY: the frame runs below us, so it lives; its code is never null, and the reference
        // is ours.
        let (frame, code) = unsafe {
            let code = Bound::from_owned_ptr(py, ffi::PyFrame_GetCode(frame).cast());
            (Borrowed::from_ptr(py, frame.cast()), code)
        };
        // Python 3.11 and later have a C function for this; Python 3.10 does not.
        let offset = frame.getattr(intern!(py, "f_lasti")).and_then(|offset| offset.extract()).unwrap_or(0);
        Some(Self { code: Strong::new(&code), offset })
    }

    /// File, line and function.
    pub fn show(&self, py: Python<'_>) -> String {
        let code = self.code.bind(py);
        // SAFETY: a code object, and any offset: for one outside the code there is no line.
        let line = unsafe { ffi::PyCode_Addr2Line(code.as_ptr().cast(), self.offset) };
        let named = |name: &str| code.getattr(name).and_then(|text| text.extract::<String>());
        match (named("co_filename"), named("co_name")) {
            (Ok(file), Ok(function)) => format!("{file}:{line} ({function})"),
            _ => format!("line {line}"),
        }
    }
}
