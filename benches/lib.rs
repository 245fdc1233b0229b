//! What do the benchmarks have in common? The record that they write and read.

use pellucid_record::{EncodeError, Encoder, Kind, Shape, ShapeError};

/// The shapes of the record below; an id is an index.
///
/// # Errors
/// None: the names are fit for shapes.
pub fn shapes() -> Result<Vec<Shape>, ShapeError> {
    let lists: [&[&str]; 5] = [
        &["name", "age", "mylist", "mydict", "amt", "end"],
        &["a", "b", "c"],
        &["nested", "num", "list"],
        &["a"],
        &["b", "c"],
    ];
    lists.iter().map(|names| Shape::new(names)).collect()
}

/// Writes the record of docs/format.md, 169 bytes.
///
/// # Errors
/// None: it is neither deep nor large.
pub fn push_record(encoder: &mut Encoder) -> Result<(), EncodeError> {
    let words: [&[u8]; 4] = [b"one", b"two", b"three", b"four"];
    encoder.clear();
    encoder.begin(Kind::Shaped, 6, 0)?;
    encoder.str(b"Fred Bloggs");
    encoder.int(21);
    encoder.begin(Kind::List, 5, 0)?;
    for word in std::hint::black_box(words) {
        encoder.str(word);
    }
    encoder.int(5);
    encoder.end()?;
    encoder.begin(Kind::Shaped, 3, 1)?;
    encoder.int(1);
    encoder.int(2);
    encoder.begin(Kind::Shaped, 3, 2)?;
    encoder.str(b"this is a long string");
    encoder.int(9321);
    encoder.begin(Kind::List, 2, 0)?;
    encoder.begin(Kind::Shaped, 1, 3)?;
    encoder.int(1);
    encoder.end()?;
    encoder.begin(Kind::Shaped, 2, 4)?;
    encoder.int(2);
    encoder.int(3);
    encoder.end()?;
    encoder.end()?;
    encoder.end()?;
    encoder.end()?;
    encoder.float(1.23);
    encoder.str(b"****");
    encoder.end()
}
