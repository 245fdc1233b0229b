//! Tests that changing a part of a row equals changing all of it.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that panics has failed")]

mod support;

use std::time::Duration;

use pellucid_record::key::KeyEncoder;
use pellucid_record::layout::tag;
use pellucid_record::patch::{Change, PatchError, overwrite};
use pellucid_record::path::{Step, resolve};
use pellucid_record::payload::{Overflow, overflow_bytes};
use pellucid_record::view::{Root, Slot};
use pellucid_record::{Encoder, Kind};
use pellucid_store::{OpenOptions, Store, TableId, Transaction};
use support::{Scratch, key};

const WAIT: Duration = Duration::from_secs(10);

fn int(value: i64) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.int(value);
    encoder.take()
}

fn text(value: &str) -> Vec<u8> {
    let mut encoder = Encoder::new();
    encoder.str(value.as_bytes());
    encoder.take()
}

/// `{"name": name, "age": 1, "tags": ["a"]}`
fn person(transaction: &mut Transaction, table: TableId, name: &str) -> Vec<u8> {
    let shape = transaction.admit(table, &["name", "age", "tags"]).unwrap();
    let mut encoder = Encoder::new();
    encoder.begin(Kind::Shaped, 3, shape).unwrap();
    encoder.str(name.as_bytes());
    encoder.int(1);
    encoder.begin(Kind::List, 1, 0).unwrap();
    encoder.str(b"a");
    encoder.end().unwrap();
    encoder.end().unwrap();
    encoder.take()
}

fn slot_text(transaction: &Transaction, table: TableId, row: &[u8], path: &[Step<'_>]) -> String {
    let cell = transaction.get(table, row).unwrap().unwrap();
    match resolve(&cell.record, &**transaction.shapes(), path).unwrap() {
        Some(Root::Scalar(Slot::Str(text))) => String::from_utf8(text.to_vec()).unwrap(),
        Some(Root::Scalar(Slot::Int(value))) => value.to_string(),
        other => format!("{other:?}"),
    }
}

/// Fred's row.
struct Fred {
    table: TableId,
    key: Vec<u8>,
    spelling: Vec<u8>,
    record: Vec<u8>,
}

/// A database of either kind in which Fred has a row, after `work` in the transaction that stored
/// it.
fn with_fred(
    scratch: &Scratch,
    mut encoder: KeyEncoder,
    work: impl Fn(&mut Transaction, &Fred),
) -> Vec<Store> {
    let (key, spelling) = encoder.take();
    let file = Store::open(scratch.path("p.pel"), &OpenOptions::default()).unwrap();
    let stores = vec![Store::memory().unwrap(), file];
    for store in &stores {
        let mut transaction = store.begin(WAIT).unwrap();
        let table = transaction.create_table("people").unwrap();
        let record = person(&mut transaction, table, "Fred Bloggs the elder");
        transaction.put(table, &key, &spelling, &record, &[]).unwrap();
        work(&mut transaction, &Fred { table, key: key.clone(), spelling: spelling.clone(), record });
        transaction.commit().unwrap();
        assert_eq!(store.check().unwrap(), []);
    }
    stores
}

#[test]
fn what_the_caller_writes_over_a_record_is_stored_if_it_says_so() {
    let mut encoder = KeyEncoder::new();
    encoder.float(1.0).unwrap();
    with_fred(&Scratch::new(), encoder, |transaction, Fred { table, key: fred, spelling, .. }| {
        let table = *table;
        let age = [Step::Field("age")];
        let (whole, done) = transaction
            .rewrite(table, fred, 7, |record, shapes| overwrite(record, shapes, &age, &Slot::Int(23)))
            .unwrap()
            .unwrap();
        assert!(done.unwrap() && whole.capacity() >= whole.len() + 7);
        assert_eq!(transaction.get(table, fred).unwrap().unwrap().record, whole);
        let nothing = |record: &mut [u8]| {
            record.fill(0);
            Ok::<_, ()>(false)
        };
        let (_, done) = transaction.rewrite(table, fred, 0, |record, _| nothing(record)).unwrap().unwrap();
        assert_eq!(done, Ok(false));
        assert_eq!(slot_text(transaction, table, fred, &age), "23");
        assert_eq!(transaction.get(table, fred).unwrap().unwrap().spelling, *spelling);
        assert!(transaction.rewrite(table, &key("nobody"), 0, |_, _| Ok::<_, ()>(true)).unwrap().is_none());
        // In memory that held another record before.
        let mut record = vec![7; 10_000];
        let again = |record: &mut [u8], shapes: &_| overwrite(record, shapes, &age, &Slot::Int(24));
        let done = transaction.rewrite_within(table, fred, 0, &mut record, again).unwrap().unwrap();
        assert!(done.unwrap());
        assert_eq!(transaction.get(table, fred).unwrap().unwrap().record, record);
        assert_eq!(slot_text(transaction, table, fred, &age), "24");
    });
}

#[test]
fn a_scalar_goes_in_place_and_a_list_is_encoded_alone() {
    let mut encoder = KeyEncoder::new();
    encoder.begin_tuple().unwrap();
    encoder.str("fred".repeat(200).as_bytes());
    encoder.float(1.0).unwrap();
    encoder.end_tuple();
    let scratch = Scratch::new();
    let stores = with_fred(&scratch, encoder, |transaction, Fred { table, key: fred, spelling, record }| {
        let table = *table;
        let age = [Step::Field("age")];
        let patched =
            transaction.patch(table, fred, &age, Change::Set(&int(22)), &[]).unwrap().unwrap().unwrap();
        assert_eq!((patched.encoded, patched.record.len()), (0, record.len()));
        assert_eq!(slot_text(transaction, table, fred, &age), "22");

        let value = text("b");
        let tags = [Step::Field("tags")];
        let patched =
            transaction.patch(table, fred, &tags, Change::Append(&[&value]), &[]).unwrap().unwrap().unwrap();
        assert_eq!(patched.encoded, 1);
        assert_eq!(slot_text(transaction, table, fred, &[tags[0], Step::Index(1)]), "b");
        assert_eq!(
            transaction.get(table, fred).unwrap().unwrap().spelling,
            *spelling,
            "what lies beside it stays"
        );

        // A new field needs a new shape, which the transaction makes.
        let city = [Step::Field("city")];
        transaction
            .patch(table, fred, &city, Change::Set(&text("Bath, Somerset")), &[])
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!(slot_text(transaction, table, fred, &city), "Bath, Somerset");
        assert_eq!(transaction.shapes().find(&["name", "age", "tags", "city"]), Some(1));

        let missing = transaction.patch(table, &key("nobody"), &age, Change::Set(&int(1)), &[]).unwrap();
        assert!(missing.is_none());
        let wrong =
            transaction.patch(table, fred, &[Step::Field("age"), Step::Field("x")], Change::Delete, &[]);
        assert!(matches!(wrong.unwrap().unwrap(), Err(PatchError::NotAContainer { .. })));
    });
    for store in stores {
        assert_eq!(store.dictionary().unwrap().len(), 2);
    }
}

#[test]
fn blobs_go_when_the_part_that_refers_to_them_does() {
    let store = Store::memory().unwrap();
    let mut transaction = store.begin(WAIT).unwrap();
    let table = transaction.create_table("t").unwrap();
    let row = key("row");
    let shape = transaction.admit(table, &["small", "large"]).unwrap();
    let old = transaction.put_blob(&[1; 5000]).unwrap();
    let overflow = |id| overflow_bytes(&Overflow { tag: tag::BYTES, blob: id, size: 5000 });
    let mut encoder = Encoder::new();
    encoder.begin(Kind::Shaped, 2, shape).unwrap();
    encoder.int(1);
    encoder.heap(tag::OVERFLOW, &overflow(old));
    encoder.end().unwrap();
    transaction.put(table, &row, b"", &encoder.take(), &[old]).unwrap();

    let small = [Step::Field("small")];
    transaction.patch(table, &row, &small, Change::Set(&int(2)), &[]).unwrap().unwrap().unwrap();
    assert_eq!(transaction.blob(old).unwrap().len(), 5000);

    let new = transaction.put_blob(&[2; 5000]).unwrap();
    encoder.clear();
    encoder.heap(tag::OVERFLOW, &overflow(new));
    let large = [Step::Field("large")];
    transaction.patch(table, &row, &large, Change::Set(encoder.bytes()), &[new]).unwrap().unwrap().unwrap();
    assert!(transaction.blob(old).is_err());
    assert_eq!(transaction.blob(new).unwrap(), [2; 5000]);
    assert_eq!(transaction.get(table, &row).unwrap().unwrap().blobs().collect::<Vec<_>>(), [new]);

    transaction.patch(table, &row, &large, Change::Set(&int(3)), &[]).unwrap().unwrap().unwrap();
    assert!(transaction.blob(new).is_err());
    assert!(!transaction.get(table, &row).unwrap().unwrap().has_blobs());
    transaction.commit().unwrap();
    assert_eq!(store.check().unwrap(), []);
    assert_eq!(store.stats().unwrap().blobs, 0);
}
