//! Convert scalars of other libraries, such as `numpy.datetime64` or `pandas.Timestamp`.
//!
//! As a constant, such a scalar is converted to the equal value of Python's own types, which fields
//! hold. A time with parts of a microsecond, or outside of the range of Python's types, is refused:
//! it would equal nothing, without an error. NaT becomes NaN, which equals nothing.

use pellucid_record::Value;
use pellucid_record::value::Double;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyDate, PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyTimeAccess, PyTzInfoAccess};

use crate::errors;
use crate::hot::modules;
use crate::values::{dates, equal};

/// The converted scalar.
pub enum Foreign<'py> {
    /// An object of Python's own types.
    Object(Bound<'py, PyAny>),
    /// A value without such an object.
    Value(Value),
}

/// Converts a scalar of another library; None for any other object.
///
/// # Errors
/// `UnsupportedValue` for a time that Python's types cannot hold.
pub fn scalar<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Foreign<'py>>> {
    if let Ok(moment) = object.cast::<PyDateTime>() {
        return if moment.is_exact_instance_of::<PyDateTime>() {
            Ok(None)
        } else {
            datetime(moment).map(Some)
        };
    }
    if let Ok(delta) = object.cast::<PyDelta>() {
        return if delta.is_exact_instance_of::<PyDelta>() { Ok(None) } else { timedelta(delta).map(Some) };
    }
    if let Ok(date) = object.cast::<PyDate>() {
        if date.is_exact_instance_of::<PyDate>() {
            return Ok(None);
        }
        let date = PyDate::new(object.py(), date.get_year(), date.get_month(), date.get_day())?;
        return Ok(Some(Foreign::Object(date.into_any())));
    }
    of_numpy(object)
}

fn nothing<'py>() -> Foreign<'py> {
    Foreign::Value(Value::Float(Double(f64::NAN)))
}

/// The exception for an object that cannot be a constant.
fn refused(object: &Bound<'_, PyAny>, why: &str) -> PyErr {
    let shown = object.repr().map(|text| text.to_string()).unwrap_or_default();
    errors::raise(
        object.py(),
        "UnsupportedValue",
        format!("{shown} cannot be compared with what records hold: {why}"),
    )
}

const FINER: &str = "it has parts of a microsecond, and datetimes and timedeltas have none; round it, or make it a datetime, first";

/// Whether the object is pandas' NaT; raises if it has nanoseconds.
fn is_nothing(object: &Bound<'_, PyAny>) -> PyResult<bool> {
    // pandas' NaT is an instance of datetime, and does not equal itself.
    if object.ne(object)? {
        return Ok(true);
    }
    for name in ["nanosecond", "nanoseconds"] {
        if let Some(rest) = object.getattr_opt(name)?
            && rest.extract::<i64>().is_ok_and(|rest| rest != 0)
        {
            return Err(refused(object, FINER));
        }
    }
    Ok(false)
}

fn datetime<'py>(moment: &Bound<'py, PyDateTime>) -> PyResult<Foreign<'py>> {
    let py = moment.py();
    if is_nothing(moment)? {
        return Ok(nothing());
    }
    let mut zone = moment.get_tzinfo();
    let mut moment = moment.clone().into_any();
    if let Some(foreign) = &zone
        && dates::zone_bytes(foreign.as_any())?.is_none()
    {
        // A zone of pytz or dateutil: converted to the same instant in UTC.
        let utc = pyo3::types::PyTzInfo::utc(py)?.to_owned();
        moment = moment.call_method1("astimezone", (&utc,))?;
        zone = Some(utc);
    }
    let moment = moment.cast_into::<PyDateTime>()?;
    let made = PyDateTime::new_with_fold(
        py,
        moment.get_year(),
        moment.get_month(),
        moment.get_day(),
        moment.get_hour(),
        moment.get_minute(),
        moment.get_second(),
        moment.get_microsecond(),
        zone.as_ref(),
        moment.get_fold(),
    )?;
    Ok(Foreign::Object(made.into_any()))
}

fn timedelta<'py>(delta: &Bound<'py, PyDelta>) -> PyResult<Foreign<'py>> {
    if is_nothing(delta)? {
        return Ok(nothing());
    }
    let (days, seconds, micros) = (delta.get_days(), delta.get_seconds(), delta.get_microseconds());
    Ok(Foreign::Object(PyDelta::new(delta.py(), days, seconds, micros, true)?.into_any()))
}

fn of_numpy<'py>(object: &Bound<'py, PyAny>) -> PyResult<Option<Foreign<'py>>> {
    let Some(numpy) = modules::loaded(intern!(object.py(), "numpy")) else { return Ok(None) };
    if !object.is_instance(&numpy.getattr("generic")?)? {
        return Ok(None);
    }
    let dtype = object.getattr("dtype")?;
    let kind: String = dtype.getattr("kind")?.extract()?;
    match &*kind {
        "M" | "m" => of_moment(&numpy, object, &dtype, kind == "M").map(Some),
        "b" | "i" | "u" | "f" | "U" | "S" => {
            let item = match equal::number_of_numpy(object)? {
                Some(number) => number,
                None => object.call_method0("item")?,
            };
            // A float with more digits than Python's differs from the converted one.
            if kind == "f" && item.ne(object)? && item.eq(&item)? {
                return Err(refused(object, "no number of Python's equals it"));
            }
            Ok(Some(Foreign::Object(item)))
        }
        _ => Ok(None),
    }
}

fn of_moment<'py>(
    numpy: &Bound<'py, PyAny>,
    object: &Bound<'py, PyAny>,
    dtype: &Bound<'py, PyAny>,
    is_instant: bool,
) -> PyResult<Foreign<'py>> {
    if numpy.call_method1("isnat", (object,))?.is_truthy()? {
        return Ok(nothing());
    }
    let unit: String = numpy.call_method1("datetime_data", (dtype,))?.get_item(0)?.extract()?;
    let mut moment = object.clone();
    match &*unit {
        "ns" | "ps" | "fs" | "as" => {
            let micros = if is_instant { "datetime64[us]" } else { "timedelta64[us]" };
            moment = object.call_method1("astype", (micros,))?;
            if moment.ne(object)? {
                return Err(refused(object, FINER));
            }
        }
        "Y" | "M" if !is_instant => {
            return Err(refused(object, "years and months are not all of one length; give it in days"));
        }
        "generic" => return Err(refused(object, "it has no unit")),
        _ => {}
    }
    let item = moment.call_method0("item")?;
    let is_moment =
        if is_instant { item.is_instance_of::<PyDate>() } else { item.is_instance_of::<PyDelta>() };
    if is_moment {
        return Ok(Foreign::Object(item));
    }
    let what = if is_instant {
        "dates and datetimes are of the years 1 to 9999"
    } else {
        "timedeltas are of less than 1,000,000,000 days"
    };
    Err(refused(object, what))
}
