//! Converts dates to ordinals and back: Python's proleptic Gregorian calendar as plain arithmetic.
//!
//! Algorithm: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms", where years begin in
//! March.

const DAYS_PER_ERA: i64 = 146_097; // 400 years

/// The ordinal of a date; 0001-01-01 is 1. For a date that does not exist, it is that of another
/// date, or out of range.
#[must_use]
pub fn ordinal_of(year: i32, month: u8, day: u8) -> u32 {
    // Years start in March, so that the leap day is the last day of its year.
    let (year, month, day) = (i64::from(year), i64::from(month), i64::from(day));
    let year = if month <= 2 { year - 1 } else { year };
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    // 0000-03-01 is ordinal -305, counting 0001-01-01 as 1.
    (era * DAYS_PER_ERA + day_of_era - 305).cast_unsigned() as u32
}

/// The date with this ordinal: year, month, day.
#[must_use]
pub fn date_of(ordinal: u32) -> (i32, u8, u8) {
    let days = i64::from(ordinal) + 305;
    let (era, day_of_era) = (days.div_euclid(DAYS_PER_ERA), days.rem_euclid(DAYS_PER_ERA));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year as i32, month.cast_unsigned() as u8, day.cast_unsigned() as u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ordinals_are_dates() {
        for (ordinal, date) in [(1, (1, 1, 1)), (730_179, (2000, 2, 29)), (3_652_059, (9999, 12, 31))] {
            assert_eq!(date_of(ordinal), date);
            assert_eq!(ordinal_of(date.0, date.1, date.2), ordinal);
        }
    }
}
