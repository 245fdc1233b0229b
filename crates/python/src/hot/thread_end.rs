//! Stop a thread that the interpreter ends within native code.
//!
//! Before Python 3.14, a daemon thread that wants the GIL while the interpreter finalizes is ended
//! by `pthread_exit`, wherever it is: in the evaluation loop, in a `sleep`, in a lock. With glibc
//! this unwinds the thread's stack. If native code has called Python, frames of Rust lie on this
//! stack. They must not be unwound: that ends the process with SIGABRT, or runs destructors that
//! need the GIL without it. Python 3.14 lets such a thread hang until the process ends, and so does
//! this file.
//!
//! The unwinder asks the personality routine of each frame what to do with it. All frames of this
//! module share one routine, Rust's, and reach it through one pointer in the module's data, which
//! compilers call `DW.ref.rust_eh_personality`. `install` puts a routine of ours there: for a
//! forced unwind at the end of the interpreter it never returns, and all else it leaves to Rust's.
//! This covers every call from native code to Python, and costs nothing until a thread is unwound.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicPtr, Ordering};
use std::time::Duration;

#[cfg(Py_3_13)]
use pyo3::ffi;

/// A personality routine: version, actions, class, exception, and the frame.
type Personality = unsafe extern "C" fn(c_int, c_int, u64, *mut c_void, *mut c_void) -> c_int;

/// The action that says that nothing catches this unwind: `_UA_FORCE_UNWIND`.
const FORCED: c_int = 8;

unsafe extern "C" {
    /// The routine of all frames of this module.
    #[link_name = "DW.ref.rust_eh_personality"]
    static ROUTINE: AtomicPtr<c_void>;

    /// Of Python 3.10 to 3.12, where it has no public name yet.
    #[cfg(not(Py_3_13))]
    fn _Py_IsFinalizing() -> c_int;
}

/// Rust's own routine.
static RUSTS: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

fn is_finalizing() -> bool {
    // SAFETY: both may be called at any time and by any thread: they read one atomic variable.
    unsafe {
        #[cfg(not(Py_3_13))]
        return _Py_IsFinalizing() != 0;
        #[cfg(Py_3_13)]
        return ffi::Py_IsFinalizing() != 0;
    }
}

/// Whether the interpreter finalizes, or does so in a moment: Python 3.12 and later notes it first
/// in a place that threads look at, and then in the one that can be asked.
fn will_finalize() -> bool {
    (0..100).any(|attempt| {
        if attempt > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        is_finalizing()
    })
}

/// # Safety
/// The unwinder calls it, as the interface of C++ exceptions says.
unsafe extern "C" fn routine(
    version: c_int,
    actions: c_int,
    class: u64,
    exception: *mut c_void,
    frame: *mut c_void,
) -> c_int {
    if actions & FORCED != 0 && will_finalize() {
        // The thread holds no GIL. It waits for the end of the process; a signal may wake it.
        loop {
            std::thread::sleep(Duration::from_secs(3600));
        }
    }
    // SAFETY: `install` stored Rust's routine before it made this one known; the arguments are
    // those of this call.
    unsafe {
        let rusts = std::mem::transmute::<*mut c_void, Personality>(RUSTS.load(Ordering::Acquire));
        rusts(version, actions, class, exception, frame)
    }
}

/// Puts our routine in front of Rust's; a second call changes nothing.
pub fn install() {
    let ours = routine as Personality as *mut c_void;
    // SAFETY: a pointer in this module's own writable data, which holds Rust's routine; it is read
    // and written as a whole.
    let current = unsafe { ROUTINE.load(Ordering::Acquire) };
    if current != ours {
        RUSTS.store(current, Ordering::Release);
        // SAFETY: as above.
        unsafe { ROUTINE.store(ours, Ordering::Release) };
    }
}
