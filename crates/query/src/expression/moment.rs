//! Reads and writes dates, times and timedeltas as text.
//!
//! The form is ISO 8601, with additions for what Python stores besides. `+01:00(MEZ)` is a
//! `datetime.timezone` with a name, `+01:00[Europe/Berlin]` a `zoneinfo.ZoneInfo` with its offset
//! from UTC, and ` fold=1` the second of two equal local times. Timedeltas are written as Python
//! shows them.

use pellucid_record::Value;
use pellucid_record::calendar::{date_of, ordinal_of};
use pellucid_record::layout::{DATE_ORDINAL_MAX, MICROS_PER_DAY, TIMEDELTA_DAYS_MAX};
use pellucid_record::payload::Timedelta;
use pellucid_record::value::OwnedZone;

const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const FOLD: &str = " fold=1";

/// The keyword and the text of a date, datetime, time or timedelta; None for other values and for
/// values out of range.
pub fn text(value: &Value) -> Option<(&'static str, String)> {
    Some(match value {
        Value::Date(ordinal) => ("date", date_text(*ordinal)?),
        Value::Datetime(micros, fold) => ("datetime", datetime_text(*micros)? + fold_text(*fold)),
        Value::Aware { local, fold, offset, zone } => {
            let zone = match zone {
                OwnedZone::Fixed(own, name) if own == offset => fixed_text(*own, name)?,
                OwnedZone::Fixed(..) => return None,
                OwnedZone::Key(key) => format!("{}[{key}]", offset_text(*offset)?),
            };
            ("datetime", datetime_text(*local)? + &zone + fold_text(*fold))
        }
        Value::Time(micros, fold, zone) => {
            let zone = match zone {
                None => String::new(),
                Some(OwnedZone::Fixed(offset, name)) => fixed_text(*offset, name)?,
                Some(OwnedZone::Key(key)) => format!("[{key}]"),
            };
            ("time", time_text(*micros)? + &zone + fold_text(*fold))
        }
        Value::Timedelta(delta) => ("timedelta", timedelta_text(delta)),
        _ => return None,
    })
}

fn date_text(ordinal: u32) -> Option<String> {
    let (year, month, day) = date_of(ordinal);
    (1..=DATE_ORDINAL_MAX).contains(&ordinal).then(|| format!("{year:04}-{month:02}-{day:02}"))
}

fn time_text(micros: i64) -> Option<String> {
    (0..MICROS_PER_DAY).contains(&micros).then(|| {
        let (hour, minute, rest) = (micros / HOUR, micros / MINUTE % 60, micros % MINUTE);
        format!("{hour:02}:{minute:02}:{}", seconds_text(rest))
    })
}

/// The seconds of a minute, with microseconds if they are not 0.
fn seconds_text(micros: i64) -> String {
    match micros % SECOND {
        0 => format!("{:02}", micros / SECOND),
        fraction => format!("{:02}.{fraction:06}", micros / SECOND),
    }
}

fn datetime_text(micros: i64) -> Option<String> {
    let ordinal = u32::try_from(micros.div_euclid(MICROS_PER_DAY) + 1).ok()?;
    Some(format!("{}T{}", date_text(ordinal)?, time_text(micros.rem_euclid(MICROS_PER_DAY))?))
}

fn fold_text(fold: bool) -> &'static str {
    if fold { FOLD } else { "" }
}

fn fixed_text(offset: i64, name: &str) -> Option<String> {
    let offset = offset_text(offset)?;
    Some(if name.is_empty() { offset } else { format!("{offset}({name})") })
}

fn offset_text(offset: i64) -> Option<String> {
    let sign = if offset < 0 { '-' } else { '+' };
    let clock = time_text(offset.checked_abs()?)?;
    Some(format!("{sign}{}", clock.strip_suffix(":00").unwrap_or(&clock)))
}

fn timedelta_text(delta: &Timedelta) -> String {
    let days = match delta.days {
        0 => String::new(),
        days @ (1 | -1) => format!("{days} day, "),
        days => format!("{days} days, "),
    };
    let seconds = i64::from(delta.seconds);
    let rest = seconds % 60 * SECOND + i64::from(delta.micros);
    format!("{days}{}:{:02}:{}", seconds / 3600, seconds / 60 % 60, seconds_text(rest))
}

/// The part of a text that is not read yet.
struct Rest<'a>(&'a str);

impl Rest<'_> {
    fn eat(&mut self, sign: &str) -> Option<()> {
        self.0 = self.0.strip_prefix(sign)?;
        Some(())
    }

    /// Reads a number of exactly `count` digits.
    fn digits(&mut self, count: usize) -> Option<i64> {
        let (digits, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        digits.bytes().all(|digit| digit.is_ascii_digit()).then(|| digits.parse().ok())?
    }

    /// Reads a number of exactly `count` digits that is at most `greatest`.
    fn up_to(&mut self, count: usize, greatest: i64) -> Option<i64> {
        self.digits(count).filter(|value| *value <= greatest)
    }

    fn date(&mut self) -> Option<u32> {
        let year = i32::try_from(self.digits(4)?).ok()?;
        self.eat("-")?;
        let month = u8::try_from(self.digits(2)?).ok()?;
        self.eat("-")?;
        let day = u8::try_from(self.digits(2)?).ok()?;
        let ordinal = ordinal_of(year, month, day);
        let is_date = (1..=DATE_ORDINAL_MAX).contains(&ordinal) && date_of(ordinal) == (year, month, day);
        is_date.then_some(ordinal)
    }

    /// Reads hours, minutes and, if present, seconds and their fraction, in microseconds.
    fn time(&mut self) -> Option<i64> {
        let hour = self.up_to(2, 23)?;
        self.after_hour(hour)
    }

    fn after_hour(&mut self, hour: i64) -> Option<i64> {
        self.eat(":")?;
        let minute = self.up_to(2, 59)?;
        let mut micros = hour * HOUR + minute * MINUTE;
        if self.eat(":").is_some() {
            micros += self.up_to(2, 59)? * SECOND;
            if self.eat(".").is_some() {
                let count = self.0.bytes().take_while(u8::is_ascii_digit).count();
                let unit = 10i64.checked_pow(6u32.checked_sub(u32::try_from(count).ok()?)?)?;
                micros += self.digits(count).filter(|_| count > 0)? * unit;
            }
        }
        Some(micros)
    }

    fn offset(&mut self) -> Option<i64> {
        if self.eat("Z").is_some() {
            return Some(0);
        }
        if self.eat("-").is_some() {
            self.time().map(|offset| -offset)
        } else {
            self.eat("+").and_then(|()| self.time())
        }
    }

    /// Reads the text between two brackets, which must reach to the end.
    fn within(&mut self, open: &str, close: &str) -> Option<String> {
        let inner = self.0.strip_prefix(open)?.strip_suffix(close)?;
        self.0 = "";
        Some(inner.to_owned())
    }

    /// Reads an offset from UTC and its zone.
    fn zone(&mut self) -> Option<(i64, OwnedZone)> {
        let offset = self.offset()?;
        let zone = match self.within("[", "]") {
            Some(key) => OwnedZone::Key(key),
            None => OwnedZone::Fixed(offset, self.within("(", ")").unwrap_or_default()),
        };
        Some((offset, zone))
    }

    fn end<T>(&self, value: T) -> Option<T> {
        self.0.is_empty().then_some(value)
    }
}

/// Splits the fold from the text.
fn with_fold(text: &str) -> (Rest<'_>, bool) {
    match text.strip_suffix(FOLD) {
        Some(text) => (Rest(text), true),
        None => (Rest(text), false),
    }
}

/// Reads a date.
pub fn date(text: &str) -> Option<Value> {
    let mut rest = Rest(text);
    let ordinal = rest.date()?;
    rest.end(Value::Date(ordinal))
}

/// Reads a datetime, naive or aware.
pub fn datetime(text: &str) -> Option<Value> {
    let (mut rest, fold) = with_fold(text);
    let days = i64::from(rest.date()?) - 1;
    rest.eat("T").or_else(|| rest.eat(" "))?;
    let local = days * MICROS_PER_DAY + rest.time()?;
    if rest.0.is_empty() {
        return Some(Value::Datetime(local, fold));
    }
    let (offset, zone) = rest.zone()?;
    rest.end(Value::Aware { local, fold, offset, zone })
}

/// Reads a time.
pub fn time(text: &str) -> Option<Value> {
    let (mut rest, fold) = with_fold(text);
    let micros = rest.time()?;
    let zone = match rest.within("[", "]") {
        Some(key) => Some(OwnedZone::Key(key)),
        None if rest.0.is_empty() => None,
        // A time in a named zone has no offset, because the offset depends on the date.
        None => Some(rest.zone()?.1).filter(|zone| matches!(zone, OwnedZone::Fixed(..))),
    };
    (zone.is_some() || rest.0.is_empty()).then_some(())?;
    rest.end(Value::Time(micros, fold, zone))
}

/// Reads a timedelta.
pub fn timedelta(text: &str) -> Option<Value> {
    let (days, clock) = match text.split_once(" day") {
        Some((days, clock)) => {
            let clock = clock.strip_prefix('s').unwrap_or(clock);
            (days.parse().ok()?, if clock.is_empty() { clock } else { clock.strip_prefix(", ")? })
        }
        None if text.is_empty() => return None,
        None => (0i32, text),
    };
    let mut rest = Rest(clock);
    let micros = if clock.is_empty() {
        0
    } else {
        let count = clock.find(':').filter(|count| (1..=2).contains(count))?;
        let hour = rest.up_to(count, 23)?;
        rest.after_hour(hour)?
    };
    let (seconds, micros) = (u32::try_from(micros / SECOND).ok()?, u32::try_from(micros % SECOND).ok()?);
    let is_in_range = (-TIMEDELTA_DAYS_MAX..=TIMEDELTA_DAYS_MAX).contains(&days);
    rest.end(Value::Timedelta(Timedelta { days, seconds, micros })).filter(|_| is_in_range)
}
