//! The errors of this crate: damage in bytes, and values that cannot be encoded.

use std::fmt;

/// The result of reading a record.
pub(crate) type Result<T, E = Corrupt> = std::result::Result<T, E>;

/// Damage in a record: what is wrong, and at which byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Corrupt {
    /// What is wrong.
    pub damage: Damage,
    /// The offset in the record at which the damage shows.
    pub offset: u32,
}

impl Corrupt {
    /// `damage` at byte `offset`.
    #[cold]
    #[must_use]
    pub fn new(damage: Damage, offset: usize) -> Corrupt {
        Corrupt { damage, offset: u32::try_from(offset).unwrap_or(u32::MAX) }
    }
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at byte {}", self.damage, self.offset)
    }
}

impl std::error::Error for Corrupt {}

macro_rules! damages {
    ($($(#[doc = $doc:literal])* $name:ident = $text:literal,)*) => {
        /// The kinds of damage.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Damage { $($(#[doc = $doc])* $name,)* }

        impl fmt::Display for Damage {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Damage::$name => $text,)* })
            }
        }
    };
}

damages! {
    /// The bytes end before what they announce.
    Truncated = "the bytes end inside what they announce",
    /// The version is not one that this build reads.
    Version = "the first byte is of no record of format version 1",
    /// A head has a kind that is not allowed there.
    Kind = "the head names a kind of container that does not exist here",
    /// A width that this kind of container cannot have.
    Width = "the head names a slot width that this container cannot have",
    /// The number of slots differs from the shape's.
    ShapeCount = "the number of slots is not that of the shape",
    /// The shape is not in the dictionary.
    UnknownShape = "the shape is not in the dictionary",
    /// A varint has too many bits, or is not in its shortest form.
    Varint = "a varint is not in its shortest form",
    /// A tag that is undefined, or not allowed at this width.
    Tag = "the tag means nothing in a slot of this width",
    /// A slot refers to a place outside the heap.
    Reference = "a slot refers to a place outside its container's heap",
    /// Heap entries overlap or are not in the order of their slots.
    HeapOrder = "heap entries overlap or are out of order",
    /// Containers nest too deep.
    Depth = "containers nest more than 64 deep",
    /// Bits that must be zero are not.
    UnusedBits = "unused bits are not zero",
    /// Text is not valid UTF-8.
    Text = "text is not valid UTF-8",
    /// A payload does not fit its tag.
    Payload = "the payload is not what its tag promises",
    /// A number is outside the range of its type.
    Range = "the number lies outside the range of its type",
    /// A value that is stored apart is missing, or not as the record says.
    Overflow = "a large value that it refers to is missing, or of another size",
    /// The elements of a set are not sorted.
    SetOrder = "the elements of a set are not in order",
    /// The index of a keyed map does not fit its keys.
    Index = "the index of a keyed map does not fit its keys",
    /// A keyed map has one key twice.
    DuplicateKey = "a keyed map has one key twice",
    /// An element is absent, but only a field may be.
    Absent = "an element is absent where only a field may be",
    /// There are bytes after the end.
    Trailing = "bytes stand after the record's end",
    /// The tables of an envelope are damaged.
    Tables = "the tables of the envelope are damaged",
    /// The checksum of an envelope does not fit.
    Checksum = "the checksum does not fit the bytes",
    /// A database's check of a record does not fit.
    CellCheck = "the record is not what was written: its check does not fit its bytes",
    /// Not damage: the caller asked for a slot that the container does not have.
    NoSuchSlot = "the container has no slot of this index",
}

/// Why a value cannot be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum EncodeError {
    /// Containers nest more than 64 deep.
    TooDeep,
    /// The record would reach 4 GiB.
    TooLarge,
    /// The process has too little memory.
    NoMemory,
    /// A container got another number of elements than announced.
    CountMismatch {
        /// Slots announced to `begin`.
        announced: u32,
        /// Elements pushed.
        pushed: usize,
    },
    /// `end` without `begin`, or a payload without a container.
    Unbalanced,
}

impl fmt::Display for EncodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            EncodeError::TooDeep => f.write_str("containers nest more than 64 deep"),
            EncodeError::NoMemory => f.write_str("there is not enough memory for the record"),
            EncodeError::TooLarge => f.write_str("the record would be 4 GiB or larger"),
            EncodeError::CountMismatch { announced, pushed } => {
                write!(f, "a container of {announced} elements got {pushed}")
            }
            EncodeError::Unbalanced => f.write_str("a container was ended that was not begun"),
        }
    }
}

impl std::error::Error for EncodeError {}
