//! Which line of the user's has called?
//!
//! Invariant: a frame is looked at while it runs, and never kept: it would keep whatever its function holds.

use pyo3::ffi;
use pyo3::intern;
use pyo3::prelude::*;

use crate::hot::gil::Strong;

/// A place in a function. Which line that is, is counted when it is asked for: it would be most of what this costs.
pub struct CallSite {
    code: Strong<PyAny>,
    offset: i32,
}

impl CallSite {
    /// The place that runs now; None where no Python code does.
    pub fn here(py: Python<'_>) -> Option<Self> {
        // SAFETY: the token proves that this thread is attached; a borrowed reference, or null.
        let frame = unsafe { ffi::PyEval_GetFrame() };
        if frame.is_null() {
            return None;
        }
        // SAFETY: the frame runs below us, so it lives; its code is never null, and the reference is ours.
        let (frame, code) = unsafe {
            let code = Bound::from_owned_ptr(py, ffi::PyFrame_GetCode(frame).cast());
            (Borrowed::from_ptr(py, frame.cast()), code)
        };
        // There is a function for it from Python 3.11 on.
        let offset = frame.getattr(intern!(py, "f_lasti")).and_then(|offset| offset.extract()).unwrap_or(0);
        Some(Self { code: Strong::new(&code), offset })
    }

    /// File, line and function.
    pub fn show(&self, py: Python<'_>) -> String {
        let code = self.code.bind(py);
        // SAFETY: a code object, and an offset in it or one that it has no line for.
        let line = unsafe { ffi::PyCode_Addr2Line(code.as_ptr().cast(), self.offset) };
        let named = |name: &str| code.getattr(name).and_then(|text| text.extract::<String>());
        match (named("co_filename"), named("co_name")) {
            (Ok(file), Ok(function)) => format!("{file}:{line} ({function})"),
            _ => format!("line {line}"),
        }
    }
}
