//! The frames of packed records: zstd, with a dictionary.
//!
//! A frame is a zstd frame without its magic number and without the dictionary's id, both of which
//! the cell says. It is a single segment with the size of its content, which is verified before
//! memory is reserved:
//!
//! ```text
//! frame := descriptor: u8, size of the content: u8, or u16 minus 256, or u32; blocks
//! ```

use std::cell::RefCell;

use zstd_safe::{CCtx, CParameter, DCtx, DDict, DParameter, FrameFormat, compress_bound};

use crate::pack::RECORD_SIZE_END;

/// For rows of 130 bytes, level 1 packs 1 to 2 % worse in the same time, and level 6 takes eight
/// times as long and gains nothing.
const LEVEL: i32 = 3;
/// The descriptor of a single segment without a check and without a dictionary's id.
const SINGLE_SEGMENT: u8 = 0x20;

thread_local! {
    static CONTEXT: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
}

/// Packs records with one dictionary.
pub(crate) struct Packer(CCtx<'static>);

impl Packer {
    /// `None` if zstd does not take the dictionary, or memory is short.
    pub(crate) fn new(dictionary: &[u8]) -> Option<Self> {
        let mut context = CCtx::try_create()?;
        for parameter in [
            CParameter::CompressionLevel(LEVEL),
            CParameter::Format(FrameFormat::Magicless),
            CParameter::DictIdFlag(false),
            CParameter::ChecksumFlag(false),
            CParameter::ContentSizeFlag(true),
        ] {
            context.set_parameter(parameter).ok()?;
        }
        context.load_dictionary(dictionary).ok()?;
        Some(Self(context))
    }

    /// Write the frame of a record. False if zstd cannot do it; then the record stays plain.
    pub(crate) fn pack(&mut self, record: &[u8], frame: &mut Vec<u8>) -> bool {
        frame.clear();
        frame.reserve(compress_bound(record.len()));
        self.0.compress2(frame, record).is_ok() && size_in(frame) == Some(record.len())
    }
}

/// Opens records that were packed with one dictionary.
pub(crate) struct Opener(DDict<'static>);

impl Opener {
    /// `None` if these bytes are no dictionary, or memory is short.
    pub(crate) fn new(dictionary: &[u8]) -> Option<Self> {
        DDict::try_create(dictionary).map(Self)
    }

    /// Write the record of a frame. False if the bytes are no frame of a record.
    pub(crate) fn open(&self, frame: &[u8], record: &mut Vec<u8>) -> bool {
        record.clear();
        let Some(size) = size_in(frame).filter(|size| *size < RECORD_SIZE_END) else { return false };
        if record.try_reserve(size).is_err() {
            return false;
        }
        CONTEXT.with_borrow_mut(|context| {
            if context.is_none() {
                *context = new_context();
            }
            let Some(known) = context else { return false };
            let is_done = known.decompress_using_ddict(record, frame, &self.0).is_ok();
            if !is_done {
                // What a damaged frame has left in it is dropped.
                *context = None;
            }
            is_done && record.len() == size
        })
    }
}

fn new_context() -> Option<DCtx<'static>> {
    let mut context = DCtx::try_create()?;
    context.set_parameter(DParameter::Format(FrameFormat::Magicless)).ok()?;
    Some(context)
}

/// The size of a frame's content. `None` if this is no frame of ours.
pub(crate) fn size_in(frame: &[u8]) -> Option<usize> {
    let (descriptor, rest) = frame.split_first()?;
    match (descriptor & 0x3F, descriptor >> 6) {
        (SINGLE_SEGMENT, 0) => rest.first().map(|size| usize::from(*size)),
        (SINGLE_SEGMENT, 1) => rest.first_chunk().map(|size| 256 + usize::from(u16::from_le_bytes(*size))),
        (SINGLE_SEGMENT, 2) => rest.first_chunk().map(|size| u32::from_le_bytes(*size) as usize),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pack::training::train;

    /// Records alike, as rows of one table are.
    fn records(count: usize) -> Vec<Vec<u8>> {
        let text = |number: usize| {
            format!(
                "name: person {number}, city: {}, age: {}",
                ["Rome", "Oslo", "Lima"][number % 3],
                number % 90
            )
        };
        (0..count).map(|number| text(number * 7_919 % 100_003).into_bytes()).collect()
    }

    fn dictionary() -> Vec<u8> {
        train(&records(1_000)).unwrap()
    }

    #[test]
    fn every_size_comes_back() {
        let bytes = dictionary();
        let (mut packer, opener) = (Packer::new(&bytes).unwrap(), Opener::new(&bytes).unwrap());
        let text = records(4_000).concat();
        let (mut frame, mut record) = (Vec::new(), Vec::new());
        for size in [0, 1, 15, 16, 255, 256, 257, 65_791, 65_792, 100_000, RECORD_SIZE_END - 1] {
            assert!(packer.pack(&text[..size], &mut frame), "size {size}");
            assert!(opener.open(&frame, &mut record), "size {size}");
            assert_eq!(record, text[..size], "size {size}");
        }
        assert!(packer.pack(&text[..RECORD_SIZE_END], &mut frame));
        assert!(!opener.open(&frame, &mut record), "it is larger than any record that is packed");
    }

    #[test]
    fn a_record_alone_gets_smaller() {
        let bytes = dictionary();
        let mut packer = Packer::new(&bytes).unwrap();
        let mut frame = Vec::new();
        let (mut before, mut after) = (0, 0);
        for record in records(2_000).iter().skip(1_000) {
            assert!(packer.pack(record, &mut frame));
            (before, after) = (before + record.len(), after + frame.len());
        }
        assert!(after * 5 < before * 3, "{after} of {before}");
    }

    #[test]
    fn no_damaged_frame_does_more_than_fail() {
        let bytes = dictionary();
        let (mut packer, opener) = (Packer::new(&bytes).unwrap(), Opener::new(&bytes).unwrap());
        let (mut frame, mut record) = (Vec::new(), Vec::new());
        assert!(packer.pack(&records(1)[0].repeat(20), &mut frame));
        for bit in 0..frame.len() * 8 {
            let mut damaged = frame.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            let is_open = opener.open(&damaged, &mut record);
            assert!(!is_open || record.len() < RECORD_SIZE_END);
        }
        for size in 0..frame.len() {
            assert!(!opener.open(&frame[..size], &mut record), "cut to {size} bytes");
        }
        assert!(opener.open(&frame, &mut record), "the context still works");
    }

    #[test]
    fn a_forged_size_takes_no_memory() {
        let bytes = dictionary();
        let (mut packer, opener) = (Packer::new(&bytes).unwrap(), Opener::new(&bytes).unwrap());
        let (mut frame, mut record) = (Vec::new(), Vec::new());
        let content = records(1)[0].repeat(20);
        assert!(packer.pack(&content, &mut frame));
        assert_eq!(frame[0] >> 6, 1, "its size has two bytes");
        let with_size = |size: u32| {
            let forged = [&[SINGLE_SEGMENT | 0x80][..], &size.to_le_bytes(), &frame[3..]].concat();
            assert_eq!(size_in(&forged), Some(size as usize));
            forged
        };
        assert!(opener.open(&with_size(content.len() as u32), &mut record));
        for size in [u32::MAX, 1 << 31, RECORD_SIZE_END as u32] {
            record = Vec::new();
            assert!(!opener.open(&with_size(size), &mut record), "{size}");
            assert_eq!(record.capacity(), 0, "{size}");
        }
        // One that says less than it has writes no more than it says.
        for size in [0, 1, content.len() as u32 - 1] {
            record = Vec::new();
            assert!(!opener.open(&with_size(size), &mut record), "{size}");
            assert!(record.len() <= size as usize, "{size}");
        }
        // Eight bytes of size, and none at all.
        for descriptor in [SINGLE_SEGMENT | 0xC0, 0] {
            assert!(!opener.open(&[&[descriptor][..], &[0xFF; 8], &frame[3..]].concat(), &mut record));
        }
        // Two frames one after the other.
        assert!(!opener.open(&frame.repeat(2), &mut record));
        assert!(record.capacity() <= RECORD_SIZE_END);
    }

    #[test]
    fn no_damaged_dictionary_does_more_than_fail() {
        let bytes = dictionary();
        let mut packer = Packer::new(&bytes).unwrap();
        let (mut frame, mut record) = (Vec::new(), Vec::new());
        assert!(packer.pack(&records(1)[0], &mut frame));
        for place in 0..bytes.len().min(600) {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0x55;
            if let Some(opener) = Opener::new(&damaged) {
                opener.open(&frame, &mut record);
            }
        }
    }
}
