//! Makes dictionaries, and decides when a table needs another one.

use zstd_safe::train_from_buffer;

use crate::catalog::pack_entries::DICTIONARY_SIZE_MAX;
use crate::pack::codec::Packer;
use crate::pack::{RECORD_SIZE_END, is_all};

/// Bytes of samples that are kept. Training on more takes longer and finds nothing new.
pub(crate) const SAMPLES_SIZE_MAX: usize = 1 << 19;
/// Fewer samples do not tell what rows have in common.
pub(crate) const SAMPLES_MIN: usize = 128;
/// Larger records are no samples: a few of them would leave no room for others.
const SAMPLE_SIZE_MAX: usize = 16 << 10;
/// One sample in this number is not trained on, and shows how well the dictionary does.
const TEST_SHARE: usize = 5;
/// The dictionary takes this part of the samples. With twice as many bytes, rows got no smaller.
const DICTIONARY_SHARE: usize = 10;
const DICTIONARY_SIZES: std::ops::RangeInclusive<usize> = 4 << 10..=32 << 10;

const _: () = assert!(SAMPLE_SIZE_MAX < RECORD_SIZE_END && *DICTIONARY_SIZES.end() <= DICTIONARY_SIZE_MAX);

/// Some of the records that it is shown, spread evenly over all of them.
#[derive(Default)]
pub(crate) struct Samples {
    records: Vec<Vec<u8>>,
    size: usize,
    /// Each `step`-th record is kept.
    step: usize,
    seen: usize,
}

impl Samples {
    pub(crate) fn count(&self) -> usize {
        self.records.len()
    }

    pub(crate) fn show(&mut self, record: &[u8]) {
        let step = self.step.max(1);
        self.seen += 1;
        if !self.seen.is_multiple_of(step) || record.len() > SAMPLE_SIZE_MAX {
            return;
        }
        self.size += record.len();
        self.records.push(record.to_vec());
        if self.size > SAMPLES_SIZE_MAX {
            // Every second one goes, and from now on half as many are kept.
            let mut index = 0;
            self.records.retain(|_| {
                index += 1;
                index % 2 == 0
            });
            self.size = self.records.iter().map(Vec::len).sum();
            self.step = step * 2;
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }

    /// A dictionary for records like these that is better than the last one, and its ratio. `old`
    /// packs with the last one.
    pub(crate) fn train(&self, old: Option<&mut Packer>) -> Trained {
        let is_test = |index: &usize| index % TEST_SHARE == TEST_SHARE - 1;
        let part = |test: bool| {
            let records = self.records.iter().enumerate();
            records.filter(move |(index, _)| is_test(index) == test).map(|(_, record)| record)
        };
        let known: Vec<Vec<u8>> = part(false).cloned().collect();
        if is_all() {
            // Any bytes are a dictionary.
            let bytes = known.concat().into_iter().take(*DICTIONARY_SIZES.start()).collect::<Vec<_>>();
            if let Some(packer) = Packer::new(&bytes) {
                return Trained::New { bytes, packer: Box::new(packer), ratio: RATIO_ONE };
            }
        }
        let old_ratio = old.map(|old| ratio_of(old, part(true)));
        let new = if have_something_in_common(&known) { train(&known) } else { None };
        let new = new.and_then(|bytes| Some((Packer::new(&bytes)?, bytes)));
        let Some((mut packer, bytes)) = new else { return Trained::No { ratio: old_ratio } };
        let ratio = ratio_of(&mut packer, part(true));
        // A dictionary that is hardly better is not worth the room that it takes in each process.
        if old_ratio.is_some_and(|old| ratio * 100 > old * 95) || ratio > RATIO_WORTH {
            return Trained::No { ratio: old_ratio };
        }
        Trained::New { bytes, packer: Box::new(packer), ratio }
    }
}

/// The ratio of records that packing leaves as large as they are.
pub(crate) const RATIO_ONE: u32 = 10_000;
/// Packed rows take longer to read, and are worth it from this ratio on.
pub(crate) const RATIO_WORTH: u32 = 9_000;

/// The outcome of a training.
pub(crate) enum Trained {
    /// A dictionary.
    New { bytes: Vec<u8>, packer: Box<Packer>, ratio: u32 },
    /// Nothing better than the last one, and its ratio on the same samples.
    No { ratio: Option<u32> },
}

/// Whether records pack when they are packed together, for which a dictionary is no better. That is
/// found out in a hundredth of the time of a training.
fn have_something_in_common(records: &[Vec<u8>]) -> bool {
    let all = records.concat();
    let ratio = Packer::new(&[]).map(|mut packer| ratio_of(&mut packer, std::iter::once(&all)));
    ratio.is_some_and(|ratio| ratio <= RATIO_WORTH)
}

/// A dictionary for records like these. `None` if they are too few or have nothing in common.
pub(crate) fn train(records: &[Vec<u8>]) -> Option<Vec<u8>> {
    let sizes: Vec<usize> = records.iter().map(Vec::len).collect();
    let samples = records.concat();
    let room = (samples.len() / DICTIONARY_SHARE).clamp(*DICTIONARY_SIZES.start(), *DICTIONARY_SIZES.end());
    let mut dictionary = Vec::with_capacity(room);
    train_from_buffer(&mut dictionary, &samples, &sizes).ok()?;
    // The vector may have been given more room than was asked for.
    (dictionary.len() <= DICTIONARY_SIZE_MAX).then_some(dictionary)
}

fn ratio_of<'r>(packer: &mut Packer, records: impl Iterator<Item = &'r Vec<u8>>) -> u32 {
    let (mut size, mut frame_size, mut frame) = (1, 1, Vec::new());
    for record in records {
        let new = if packer.pack(record, &mut frame) { frame.len() } else { record.len() };
        size += record.len();
        frame_size += new.min(record.len());
    }
    (frame_size as u64 * u64::from(RATIO_ONE) / size as u64) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_spread_over_all_that_is_shown() {
        let mut samples = Samples::default();
        let shown = 200_000_u32;
        for number in 0..shown {
            samples.show(format!("{number:040}").as_bytes());
        }
        assert!(samples.size <= SAMPLES_SIZE_MAX && samples.count() > SAMPLES_SIZE_MAX / 40 / 4);
        let numbers: Vec<u32> =
            samples.records.iter().map(|record| String::from_utf8_lossy(record).parse().unwrap()).collect();
        let middle = numbers.iter().filter(|number| **number < shown / 2).count();
        assert!(middle.abs_diff(numbers.len() / 2) < numbers.len() / 8, "{middle} of {}", numbers.len());
    }

    #[test]
    fn a_few_hundred_records_are_enough() {
        let mut samples = Samples::default();
        for number in 0..256 {
            samples.show(
                format!("this person lives in {} and was born in {}", number % 7, 1900 + number).as_bytes(),
            );
        }
        assert!(matches!(samples.train(None), Trained::New { ratio, .. } if ratio < 6_000));
    }

    #[test]
    fn records_without_anything_in_common_get_no_dictionary() {
        let mut samples = Samples::default();
        let mut state = 1_u64;
        for _ in 0..1_000 {
            let record: Vec<u8> = (0..25)
                .flat_map(|_| {
                    state =
                        state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    (state ^ state >> 29).wrapping_mul(0xBF58_476D_1CE4_E5B9).swap_bytes().to_le_bytes()
                })
                .collect();
            samples.show(&record);
        }
        assert!(matches!(samples.train(None), Trained::No { ratio: None }));
    }
}
