//! Convert scalars of other libraries, such as `numpy.datetime64` or `pandas.Timestamp`.
//!
//! As a constant of an expression, and as a key, such a scalar is converted to the equal value of
//! Python's own types. A time with parts of a microsecond, or outside of the range of Python's
//! types, has no such value.

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{
    PyDate, PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyTimeAccess, PyTzInfo, PyTzInfoAccess,
};

use crate::hot::modules;
use crate::values::{dates, equal};

/// The converted scalar.
pub enum Foreign<'py> {
    /// An object of Python's own types.
    Object(Bound<'py, PyAny>),
    /// NaT, which equals nothing.
    Nothing,
    /// No object of Python's own types equals it, for this reason.
    Inexact(&'static str),
}

/// Converts a scalar of another library; None for any other object. A datetime in a zone that
/// cannot be stored becomes the same instant in UTC.
///
/// # Errors
/// What the object's own code raises.
pub fn scalar<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Foreign<'py>>> {
    if let Some(instant) = instant(object)? {
        let Foreign::Object(object) = &instant else { return Ok(Some(instant)) };
        let Some(moment) = object.cast::<PyDateTime>().ok() else { return Ok(Some(instant)) };
        return Ok(Some(match moment.get_tzinfo() {
            // A zone of pytz or dateutil.
            Some(zone) if dates::zone_bytes(zone.as_any())?.is_none() => {
                let utc = PyTzInfo::utc(object.py())?.to_owned();
                Foreign::Object(object.call_method1("astimezone", (utc,))?)
            }
            _ => instant,
        }));
    }
    if let Ok(delta) = object.cast::<PyDelta>() {
        return if delta.is_exact_instance_of::<PyDelta>() { Ok(None) } else { timedelta(delta).map(Some) };
    }
    let Some((numpy, dtype, kind)) = numpy_kind(object)? else { return Ok(None) };
    match &*kind {
        "m" => of_moment(&numpy, object, &dtype, false).map(Some),
        "b" | "i" | "u" | "f" | "U" | "S" => {
            let item = match equal::number_of_numpy(object)? {
                Some(number) => number,
                None => object.call_method0("item")?,
            };
            // A float with more digits than Python's differs from the converted one.
            if kind == "f" && item.ne(object)? && item.eq(&item)? {
                return Ok(Some(Foreign::Inexact("no number of Python's equals it")));
            }
            Ok(Some(Foreign::Object(item)))
        }
        _ => Ok(None),
    }
}

/// Converts a date or datetime of another library, or of a subclass, to one of Python's own; None
/// for any other object.
///
/// # Errors
/// What the object's own code raises.
pub fn instant<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Foreign<'py>>> {
    if let Ok(moment) = object.cast::<PyDateTime>() {
        return if moment.is_exact_instance_of::<PyDateTime>() {
            Ok(None)
        } else {
            datetime(moment).map(Some)
        };
    }
    if let Ok(date) = object.cast::<PyDate>() {
        if date.is_exact_instance_of::<PyDate>() {
            return Ok(None);
        }
        let date = PyDate::new(object.py(), date.get_year(), date.get_month(), date.get_day())?;
        return Ok(Some(Foreign::Object(date.into_any())));
    }
    match numpy_kind(object)? {
        Some((numpy, dtype, kind)) if kind == "M" => of_moment(&numpy, object, &dtype, true).map(Some),
        _ => Ok(None),
    }
}

const FINER: &str = "it has parts of a microsecond, and datetimes and timedeltas have none; round it, or make it a datetime, first";

/// What a time is that Python's own types do not hold, if it is such: pandas' NaT, or one with
/// nanoseconds.
fn not_plain<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Foreign<'py>>> {
    // pandas' NaT is an instance of datetime, and does not equal itself.
    if object.ne(object)? {
        return Ok(Some(Foreign::Nothing));
    }
    for name in ["nanosecond", "nanoseconds"] {
        if let Some(rest) = object.getattr_opt(name)?
            && rest.extract::<i64>().is_ok_and(|rest| rest != 0)
        {
            return Ok(Some(Foreign::Inexact(FINER)));
        }
    }
    Ok(None)
}

fn datetime<'py>(moment: &Bound<'py, PyDateTime>) -> PyResult<Foreign<'py>> {
    if let Some(other) = not_plain(moment)? {
        return Ok(other);
    }
    let made = PyDateTime::new_with_fold(
        moment.py(),
        moment.get_year(),
        moment.get_month(),
        moment.get_day(),
        moment.get_hour(),
        moment.get_minute(),
        moment.get_second(),
        moment.get_microsecond(),
        moment.get_tzinfo().as_ref(),
        moment.get_fold(),
    )?;
    Ok(Foreign::Object(made.into_any()))
}

fn timedelta<'py>(delta: &Bound<'py, PyDelta>) -> PyResult<Foreign<'py>> {
    if let Some(other) = not_plain(delta)? {
        return Ok(other);
    }
    let (days, seconds, micros) = (delta.get_days(), delta.get_seconds(), delta.get_microseconds());
    Ok(Foreign::Object(PyDelta::new(delta.py(), days, seconds, micros, true)?.into_any()))
}

/// NumPy, and the dtype of one of its scalars with its kind; None for any other object.
#[expect(clippy::type_complexity, reason = "used in this file alone")]
fn numpy_kind<'py>(
    object: &Bound<'py, PyAny>,
) -> PyResult<Option<(Bound<'py, PyAny>, Bound<'py, PyAny>, String)>> {
    let Some(numpy) = modules::loaded(intern!(object.py(), "numpy")) else { return Ok(None) };
    if !object.is_instance(&numpy.getattr("generic")?)? {
        return Ok(None);
    }
    let dtype = object.getattr("dtype")?;
    let kind = dtype.getattr("kind")?.extract()?;
    Ok(Some((numpy, dtype, kind)))
}

fn of_moment<'py>(
    numpy: &Bound<'py, PyAny>,
    object: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    is_instant: bool,
) -> PyResult<Foreign<'py>> {
    if numpy.call_method1("isnat", (object,))?.is_truthy()? {
        return Ok(Foreign::Nothing);
    }
    let unit: String = numpy.call_method1("datetime_data", (dtype,))?.get_item(0)?.extract()?;
    let mut moment = object.clone();
    match &*unit {
        "ns" | "ps" | "fs" | "as" => {
            let micros = if is_instant { "datetime64[us]" } else { "timedelta64[us]" };
            moment = object.call_method1("astype", (micros,))?;
            if moment.ne(object)? {
                return Ok(Foreign::Inexact(FINER));
            }
        }
        "Y" | "M" if !is_instant => {
            return Ok(Foreign::Inexact("years and months are not all of one length; give it in days"));
        }
        "generic" => return Ok(Foreign::Inexact("it has no unit")),
        _ => {}
    }
    let item = moment.call_method0("item")?;
    let is_moment =
        if is_instant { item.is_instance_of::<PyDate>() } else { item.is_instance_of::<PyDelta>() };
    if is_moment {
        return Ok(Foreign::Object(item));
    }
    Ok(Foreign::Inexact(if is_instant {
        "dates and datetimes are of the years 1 to 9999"
    } else {
        "timedeltas are of less than 1,000,000,000 days"
    }))
}
