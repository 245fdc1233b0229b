//! Is an envelope refused, or imported with all that is in it?

use pellucid_record::envelope::{self, Envelope};
use pellucid_record::validate::validate_record;
use xxhash_rust::xxh3::xxh3_64;

use super::input::Book;
use super::views::{has_overflow, read_all};

pub fn envelope_import(data: &[u8]) {
    // The first byte says whether the checksum is put right: no fuzzer would guess one.
    let Some((mode, envelope)) = data.split_first() else { return };
    let mut envelope = envelope.to_vec();
    if mode.is_multiple_of(2)
        && let Some((head, body)) = envelope.split_at_mut_checked(16)
        && let Some(checksum) = head.last_chunk_mut::<8>()
    {
        *checksum = xxh3_64(body).to_le_bytes();
    }
    let Ok(parsed) = Envelope::parse(&envelope) else {
        assert!(envelope::validate(&envelope).is_err());
        return;
    };
    // A view does not check the sum, and reads what is there.
    if let Ok(shapes) = parsed.shapes() {
        let is_sound = validate_record(parsed.record, &shapes).is_ok();
        read_all(parsed.record, &shapes, is_sound);
        // What lies apart lies in a database, which an envelope has left.
        let is_whole = is_sound
            && pellucid_record::decode(parsed.record, &shapes).is_ok_and(|value| !has_overflow(&value));
        assert_eq!(envelope::validate(&envelope).is_ok(), is_whole && parsed.checksum_fits(&envelope));
    } else {
        assert!(envelope::validate(&envelope).is_err());
    }

    // The dictionary has other ids, and shapes of its own.
    let mut book = Book::new(usize::MAX);
    let opened = envelope::open(&envelope, |shape| {
        let names: Vec<&str> = shape.names().iter().map(|name| &**name).collect();
        book.find_or_push(&names)
    });
    let Ok(opened) = opened else { return };
    validate_record(&opened, &book).expect("an imported record is valid");
    let shapes = parsed.shapes().expect("an envelope that was opened has shapes");
    assert_eq!(
        pellucid_record::decode(&opened, &book).expect("an imported record can be decoded"),
        pellucid_record::decode(parsed.record, &shapes).expect("an opened record can be decoded"),
    );
}
