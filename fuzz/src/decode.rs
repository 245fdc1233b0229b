//! Does decoding any bytes end, and is what comes out a value? Can they be shown, too?

use pellucid_record::dump::dump;
use pellucid_record::value::{NoShapes, encode_value};

use super::input::{Book, SHAPES};

pub fn decode(data: &[u8]) {
    // A line for each part: slow where there are many.
    if (1..512).contains(&data.len()) {
        assert!(!dump(data, &*SHAPES).is_empty());
    }
    let Ok(value) = pellucid_record::decode(data, &*SHAPES) else { return };
    // Written again it is the same value: with shapes, and with none. Bytes are compared, since sets have no order.
    let mut book = Book::new(1000);
    let shaped = encode_value(&value, &mut book).expect("what was a record can be one again");
    let again = pellucid_record::decode(&shaped, &book).expect("what was encoded can be decoded");
    assert_eq!(encode_value(&again, &mut book).as_ref(), Ok(&shaped));

    let keyed = encode_value(&value, &mut NoShapes).expect("what was a record can be one again");
    let again = pellucid_record::decode(&keyed, &NoShapes).expect("what was encoded can be decoded");
    assert_eq!(encode_value(&again, &mut NoShapes).as_ref(), Ok(&keyed));
}
