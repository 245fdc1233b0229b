//! Convert str and int objects to bytes, and bytes to str objects.
//!
//! ASCII strings are read in place and made with one copy. All others go through CPython's own
//! codec, and lone surrogates through "surrogatepass".

use pyo3::exceptions::PyImportError;
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyString};

/// The UTF-8 bytes of a str: borrowed from the object, or owned by a bytes object beside it.
pub enum Utf8<'py> {
    /// The bytes inside an ASCII str.
    Ascii(&'py [u8]),
    /// The bytes of any other str without lone surrogates.
    Encoded(Bound<'py, PyAny>),
    /// The bytes of a str with lone surrogates, which are not UTF-8.
    Surrogates(Bound<'py, PyAny>),
}

impl Utf8<'_> {
    /// The bytes of any variant.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Utf8::Ascii(bytes) => bytes,
            Utf8::Encoded(object) | Utf8::Surrogates(object) => {
                // SAFETY: both variants are made only from a successful encoding, which gives an
                // exact bytes object; bytes do not change, and `self` keeps the object alive.
                unsafe { bytes_of(object.as_ptr()) }
            }
        }
    }
}

/// The bytes of a bytes object.
///
/// # Safety
/// `object` is a live bytes object that outlives the result.
#[inline]
pub unsafe fn bytes_of<'a>(object: *mut ffi::PyObject) -> &'a [u8] {
    // SAFETY: the caller promises a bytes object; its data is as long as its size.
    unsafe {
        let size = ffi::PyBytes_Size(object) as usize;
        std::slice::from_raw_parts(ffi::PyBytes_AsString(object).cast::<u8>(), size)
    }
}

/// The bits `compact` and `ascii` of a str's state, from `Include/cpython/unicodeobject.h`: the
/// same from Python 3.10 to 3.15 in builds with the GIL. For 3.14 and later pyo3-ffi has no
/// accessors for them. `check_layout` tests them on real strings.
const COMPACT_ASCII: u32 = if cfg!(target_endian = "little") { 0b11 << 5 } else { 0b11 << 25 };

/// The characters of a compact ASCII str, or None for any other str.
///
/// # Safety
/// `object` is a live str that outlives the result.
#[inline]
pub unsafe fn ascii_of<'a>(object: *mut ffi::PyObject) -> Option<&'a [u8]> {
    // SAFETY: the caller promises a str. A compact ASCII str has its characters right after its
    // head, one byte each, and they never change.
    unsafe {
        if (*object.cast::<ffi::PyASCIIObject>()).state & COMPACT_ASCII != COMPACT_ASCII {
            return None;
        }
        let data = object.cast::<ffi::PyASCIIObject>().add(1).cast::<u8>();
        Some(std::slice::from_raw_parts(data, (*object.cast::<ffi::PyASCIIObject>()).length as usize))
    }
}

/// Refuses an interpreter whose str objects are not laid out as `ascii_of` reads them.
///
/// # Errors
/// `ImportError` for such an interpreter.
pub fn check_layout(py: Python<'_>) -> PyResult<()> {
    let compact = PyString::new(py, "compact");
    let latin = PyString::new(py, "caf\u{e9}");
    // An instance of a subclass has its characters elsewhere: it is ASCII, but not compact.
    let elsewhere =
        py.eval(c"type('Elsewhere', (str,), {})('elsewhere')", None, None)?.cast_into::<PyString>()?;
    if ascii(&compact) == Some(b"compact") && ascii(&latin).is_none() && ascii(&elsewhere).is_none() {
        return Ok(());
    }
    Err(PyImportError::new_err(format!(
        "pellucid does not know how Python {} keeps the characters of a str; install a pellucid that supports this Python",
        Python::version_str()
    )))
}

/// The UTF-8 bytes of a str or of an instance of a subclass of str.
///
/// # Errors
/// Only `MemoryError`.
///
/// # Safety
/// `object` is a live str that outlives the result.
#[inline]
pub unsafe fn utf8_of(py: Python<'_>, object: *mut ffi::PyObject) -> PyResult<Utf8<'_>> {
    // SAFETY: as promised by the caller.
    if let Some(ascii) = unsafe { ascii_of(object) } {
        return Ok(Utf8::Ascii(ascii));
    }
    // SAFETY: as promised by the caller.
    unsafe { utf8_of_any(py, object) }
}

/// The UTF-8 bytes of a str.
///
/// # Errors
/// Only `MemoryError`.
#[inline]
pub fn characters<'a, 'py>(value: &'a Bound<'py, PyString>) -> PyResult<Utf8<'a>>
where
    'py: 'a,
{
    // SAFETY: a live str, borrowed for as long as the result.
    unsafe { utf8_of(value.py(), value.as_ptr()) }
}

/// The characters of an ASCII str; None for any other str.
#[inline]
pub fn ascii<'a>(value: &'a Bound<'_, PyString>) -> Option<&'a [u8]> {
    // SAFETY: a live str, borrowed for as long as the result.
    unsafe { ascii_of(value.as_ptr()) }
}

/// The value of an int that fits 64 bits; None for any other.
#[inline]
pub fn small_int(value: &Bound<'_, PyInt>) -> Option<i64> {
    let mut overflow = 0;
    // SAFETY: a live int; for an int this runs no user code and raises nothing.
    let value = unsafe { ffi::PyLong_AsLongLongAndOverflow(value.as_ptr(), &raw mut overflow) };
    (overflow == 0).then_some(value)
}

#[cold]
unsafe fn utf8_of_any(py: Python<'_>, object: *mut ffi::PyObject) -> PyResult<Utf8<'_>> {
    // SAFETY: `object` is a str; each call gives a new reference or null with an exception set.
    unsafe {
        let encoded = ffi::PyUnicode_AsUTF8String(object);
        if !encoded.is_null() {
            return Ok(Utf8::Encoded(Bound::from_owned_ptr(py, encoded)));
        }
        if ffi::PyErr_ExceptionMatches(ffi::PyExc_UnicodeEncodeError) == 0 {
            return Err(PyErr::fetch(py));
        }
        ffi::PyErr_Clear();
        let encoded = ffi::PyUnicode_AsEncodedString(object, c"utf-8".as_ptr(), c"surrogatepass".as_ptr());
        Bound::from_owned_ptr_or_err(py, encoded).map(Utf8::Surrogates)
    }
}

/// A new str from UTF-8 bytes; null with `UnicodeDecodeError` set if they are not UTF-8.
///
/// The bytes may lie in memory that another process writes to (a viewed `mmap`). So each byte is
/// read once into memory of our own, and what lies there is checked: a str whose characters are not
/// what its head says would crash the interpreter.
///
/// # Safety
/// The caller holds the GIL.
#[inline]
pub unsafe fn new_str(bytes: &[u8]) -> *mut ffi::PyObject {
    // For zero and one bytes, CPython gives its cached str. For longer ones, checking for ASCII
    // ourselves saves the state machine of CPython's decoder (about 8 ns). Short strings are
    // checked and copied as two words that may overlap: a call of memcpy would take as long as all
    // the rest.
    // SAFETY: as promised by the caller.
    unsafe {
        match bytes.len() {
            4..=7 => new_of_ends::<u32>(bytes),
            8..=16 => new_of_ends::<u64>(bytes),
            17..=32 => new_of_ends::<u128>(bytes),
            2.. => new_long(bytes),
            _ => decoded(bytes),
        }
    }
}

/// A number at any address.
#[derive(Clone, Copy)]
#[repr(C, packed)]
struct Unaligned<T>(T);

/// A new str of as many bytes as a `T` has to twice as many, copied as its first and its last word.
///
/// # Safety
/// As for `new_str`; the bytes are at least as many as a `T` has.
#[inline(always)]
unsafe fn new_of_ends<T: Copy + Into<u128>>(bytes: &[u8]) -> *mut ffi::PyObject {
    const NOT_ASCII: u128 = 0x8080_8080_8080_8080_8080_8080_8080_8080;
    // SAFETY: as promised by the caller; both words lie in the bytes, and in the room for as many.
    // The reads are volatile, so that the words that are checked are those that are written.
    unsafe {
        let last_at = bytes.len() - size_of::<T>();
        let Unaligned(first) = bytes.as_ptr().cast::<Unaligned<T>>().read_volatile();
        let Unaligned(last) = bytes.as_ptr().add(last_at).cast::<Unaligned<T>>().read_volatile();
        if (first.into() | last.into()) & NOT_ASCII != 0 {
            return decoded(bytes);
        }
        let object = ffi::PyUnicode_New(bytes.len() as ffi::Py_ssize_t, 127);
        if !object.is_null() {
            let data = ascii_data(object);
            data.cast::<T>().write_unaligned(first);
            data.add(last_at).cast::<T>().write_unaligned(last);
        }
        object
    }
}

/// A new str of 2 bytes or more.
///
/// # Safety
/// As for `new_str`.
unsafe fn new_long(bytes: &[u8]) -> *mut ffi::PyObject {
    // Most text that is not ASCII shows it soon, and is not copied in vain.
    const LOOKED_AT: usize = 64;
    // SAFETY: as promised by the caller; no other code has the str before its characters are
    // checked.
    unsafe {
        if !bytes.get(..LOOKED_AT).unwrap_or(bytes).is_ascii() {
            return decoded(bytes);
        }
        let object = ffi::PyUnicode_New(bytes.len() as ffi::Py_ssize_t, 127);
        if object.is_null() {
            return object;
        }
        let data = ascii_data(object);
        std::ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
        if std::slice::from_raw_parts(data, bytes.len()).is_ascii() {
            return object;
        }
        ffi::Py_DECREF(object);
        decoded(bytes)
    }
}

/// Where the characters of a new ASCII str are written.
///
/// # Safety
/// The str was made for the largest character 127, and no other code has it.
#[inline(always)]
unsafe fn ascii_data(object: *mut ffi::PyObject) -> *mut u8 {
    // SAFETY: such a str has its characters right after its head.
    unsafe { object.cast::<ffi::PyASCIIObject>().add(1).cast::<u8>() }
}

/// # Safety
/// As for `new_str`.
#[inline(never)]
unsafe fn decoded(bytes: &[u8]) -> *mut ffi::PyObject {
    // SAFETY: as promised by the caller.
    unsafe { decoded_copy(bytes, std::ptr::null()) }
}

/// What CPython's decoder makes of a copy of the bytes: the decoder reads some bytes twice.
///
/// # Safety
/// As for `new_str`; `errors` is null or a C string.
unsafe fn decoded_copy(bytes: &[u8], errors: *const std::ffi::c_char) -> *mut ffi::PyObject {
    // SAFETY: pointer and size come from one slice; the copy is released after its use.
    unsafe {
        let copy = ffi::PyBytes_FromStringAndSize(bytes.as_ptr().cast(), bytes.len() as ffi::Py_ssize_t);
        if copy.is_null() {
            return copy;
        }
        let object =
            ffi::PyUnicode_DecodeUTF8(ffi::PyBytes_AsString(copy), bytes.len() as ffi::Py_ssize_t, errors);
        ffi::Py_DECREF(copy);
        object
    }
}

/// A str from UTF-8 bytes, for paths that are not hot.
///
/// # Errors
/// `UnicodeDecodeError` if the bytes are not UTF-8.
pub fn utf8<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the token proves the GIL; a new reference, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, new_str(bytes)) }
}

/// A str from bytes that may hold lone surrogates, encoded like other characters.
///
/// # Errors
/// `UnicodeDecodeError` if the bytes are not valid even then.
pub fn with_surrogates<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: the token proves the GIL, the error name is a C string; a new reference, or null with
    // an exception set.
    unsafe { Bound::from_owned_ptr_or_err(py, decoded_copy(bytes, c"surrogatepass".as_ptr())) }
}

/// A `bytes` object with a copy of `data`, of any size.
///
/// # Errors
/// `MemoryError`, where PyO3's own constructor would panic.
pub fn bytes<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    // SAFETY: pointer and size come from one slice; a new `bytes`, or null with an exception set.
    unsafe {
        let object = ffi::PyBytes_FromStringAndSize(data.as_ptr().cast(), data.len() as ffi::Py_ssize_t);
        Ok(Bound::from_owned_ptr_or_err(py, object)?.cast_into_unchecked())
    }
}

/// A `bytearray` with a copy of `data`, of any size.
///
/// # Errors
/// `MemoryError`, as for `bytes`.
pub fn bytearray<'py>(py: Python<'py>, data: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    // SAFETY: pointer and size come from one slice; a new reference, or null with an exception set.
    unsafe {
        let object = ffi::PyByteArray_FromStringAndSize(data.as_ptr().cast(), data.len() as ffi::Py_ssize_t);
        Bound::from_owned_ptr_or_err(py, object)
    }
}
