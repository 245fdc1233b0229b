//! Convert dates, times, timedeltas and time zones between Python objects and the numbers in a
//! record.

use pellucid_record::layout::MICROS_PER_DAY;
use pellucid_record::payload::is_zone_key;
use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{
    PyDate, PyDateAccess, PyDateTime, PyDelta, PyDeltaAccess, PyTimeAccess, PyTuple, PyTzInfo,
};

use crate::errors;
use crate::hot::modules::is_instance_of;
use pellucid_record::calendar::{date_of, ordinal_of};

const ZONE_FIXED: u8 = 1;
const ZONE_NAMED: u8 = 2;
/// Written before a fixed zone's name that is empty or begins with this character, so that an empty
/// name differs from no name.
const ZONE_NAME_ESCAPE: char = '\0';

/// Microseconds of the time of day, times 2, plus fold.
pub fn time_bits(value: &impl PyTimeAccess) -> i64 {
    let seconds = (i64::from(value.get_hour()) * 60 + i64::from(value.get_minute())) * 60
        + i64::from(value.get_second());
    (seconds * 1_000_000 + i64::from(value.get_microsecond())) * 2 + i64::from(value.get_fold())
}

/// Microseconds since 0001-01-01T00:00, local time, times 2, plus fold.
pub fn datetime_bits(value: &Bound<'_, PyDateTime>) -> i64 {
    let days = i64::from(ordinal_of(value.get_year(), value.get_month(), value.get_day())) - 1;
    days * MICROS_PER_DAY * 2 + time_bits(value)
}

pub fn delta_micros(value: &Bound<'_, PyDelta>) -> i64 {
    (i64::from(value.get_days()) * 86_400 + i64::from(value.get_seconds())) * 1_000_000
        + i64::from(value.get_microseconds())
}

/// Local time minus UTC, in microseconds.
pub fn offset_micros(value: &Bound<'_, PyAny>) -> PyResult<i64> {
    let offset = value.call_method0("utcoffset")?;
    Ok(delta_micros(offset.cast::<PyDelta>()?))
}

/// The bytes of a zone in the format; None if only pickle can store it.
pub fn zone_bytes(zone: &Bound<'_, PyAny>) -> PyResult<Option<Vec<u8>>> {
    if is_instance_of(zone, "datetime", "timezone")? {
        let arguments = zone.call_method0("__getinitargs__")?.cast_into::<PyTuple>()?;
        let mut bytes = vec![ZONE_FIXED];
        bytes.extend_from_slice(&delta_micros(arguments.get_item(0)?.cast::<PyDelta>()?).to_le_bytes());
        if arguments.len() > 1 {
            let name: String = arguments.get_item(1)?.extract()?;
            if name.is_empty() || name.starts_with(ZONE_NAME_ESCAPE) {
                bytes.push(ZONE_NAME_ESCAPE as u8);
            }
            bytes.extend_from_slice(name.as_bytes());
        }
        return Ok(Some(bytes));
    }
    if is_instance_of(zone, "zoneinfo", "ZoneInfo")? {
        let key = zone.getattr("key")?;
        // A zone that was read from a user's file may have any key, or none.
        if let Ok(key) = key.extract::<String>()
            && is_zone_key(&key)
        {
            let mut bytes = vec![ZONE_NAMED];
            bytes.extend_from_slice(key.as_bytes());
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

/// The zone that `bytes` describe.
pub fn zone_of<'py>(py: Python<'py>, bytes: &[u8]) -> PyResult<Bound<'py, PyAny>> {
    let text = |bytes: &[u8]| {
        String::from_utf8(bytes.to_vec()).map_err(|_| errors::value_error("a time zone's name is not UTF-8"))
    };
    match bytes.split_first() {
        Some((&ZONE_FIXED, rest)) if rest.len() >= 8 => {
            let (offset, name) = rest.split_at(8);
            let offset = i64::from_le_bytes(*offset.first_chunk().unwrap_or(&[0; 8]));
            if offset.unsigned_abs() >= MICROS_PER_DAY.unsigned_abs() {
                return Err(errors::value_error("a time zone's offset is a day or more"));
            }
            let delta = delta(py, offset)?;
            // Names are copied before Python code runs, since that code may change the row that
            // holds them.
            let name = text(name)?;
            let class = py.import("datetime")?.getattr("timezone")?;
            match name.strip_prefix(ZONE_NAME_ESCAPE) {
                Some(name) => class.call1((delta, name)),
                None if name.is_empty() => class.call1((delta,)),
                None => class.call1((delta, name)),
            }
        }
        Some((&ZONE_NAMED, key)) => {
            let key = text(key)?;
            if !is_zone_key(&key) {
                return Err(errors::value_error("a time zone's key is no path of zones"));
            }
            py.import("zoneinfo")?.getattr("ZoneInfo")?.call1((&key,)).map_err(|error| {
                // A file that describes no zone becomes a ValueError. The exception for a zone that
                // this machine does not have is passed on: the caller handles it.
                let is_no_zone =
                    error.is_instance_of::<PyOSError>(py) || error.is_instance_of::<PyValueError>(py);
                if is_no_zone {
                    let wrapped =
                        errors::value_error(format!("{key:?} is no time zone: {}", error.value(py)));
                    wrapped.set_cause(py, Some(error));
                    wrapped
                } else {
                    error
                }
            })
        }
        _ => Err(errors::value_error("a time zone is of no known kind")),
    }
}

pub fn delta(py: Python<'_>, micros: i64) -> PyResult<Bound<'_, PyDelta>> {
    let seconds = micros.div_euclid(1_000_000);
    PyDelta::new(
        py,
        seconds.div_euclid(86_400) as i32,
        seconds.rem_euclid(86_400) as i32,
        micros.rem_euclid(1_000_000) as i32,
        false,
    )
}

/// The date with this ordinal.
pub fn new_date(py: Python<'_>, ordinal: u32) -> PyResult<Bound<'_, PyAny>> {
    if ordinal == 0 || ordinal > pellucid_record::layout::DATE_ORDINAL_MAX {
        return Err(errors::value_error("a date's ordinal is out of range"));
    }
    let (year, month, day) = date_of(ordinal);
    Ok(PyDate::new(py, year, month, day)?.into_any())
}

/// The datetime with these bits; `zone` makes it aware.
pub fn new_datetime<'py>(
    py: Python<'py>,
    bits: i64,
    zone: Option<&Bound<'py, PyTzInfo>>,
) -> PyResult<Bound<'py, PyAny>> {
    let (micros, fold) = (bits >> 1, bits & 1 == 1);
    let days = micros.div_euclid(MICROS_PER_DAY);
    if micros < 0 || days >= i64::from(pellucid_record::layout::DATE_ORDINAL_MAX) {
        return Err(errors::value_error("a datetime is out of range"));
    }
    let (year, month, day) = date_of(days as u32 + 1);
    let (hour, minute, second, micro) = clock(micros.rem_euclid(MICROS_PER_DAY));
    let value = PyDateTime::new_with_fold(py, year, month, day, hour, minute, second, micro, zone, fold)?;
    Ok(value.into_any())
}

pub fn clock(micros: i64) -> (u8, u8, u8, u32) {
    let seconds = micros / 1_000_000;
    ((seconds / 3_600) as u8, (seconds / 60 % 60) as u8, (seconds % 60) as u8, (micros % 1_000_000) as u32)
}
