//! How long do the parts of the record format take? `cargo bench --manifest-path benches/Cargo.toml`

use divan::{Bencher, black_box};
use pellucid_benches::{push_record, shapes};
use pellucid_record::{Container, Corrupt, Encoder, Kind, Shape, Slot, Tables, Walker, decode, validate};

fn main() {
    divan::main();
}

fn record() -> (Vec<u8>, Vec<Shape>) {
    let mut encoder = Encoder::new();
    push_record(&mut encoder).expect("the record is neither deep nor large");
    (encoder.take(), shapes().expect("the names are fit for shapes"))
}

fn root(bytes: &[u8], shapes: &Vec<Shape>) -> Container {
    Container::root(bytes, shapes).expect("what was written can be read")
}

#[divan::bench]
fn encode_the_record(bencher: Bencher) {
    let mut encoder = Encoder::new();
    bencher.bench_local(|| push_record(black_box(&mut encoder)));
}

#[divan::bench]
fn encode_a_hundred_strings(bencher: Bencher) {
    let mut encoder = Encoder::new();
    bencher.bench_local(|| {
        encoder.clear();
        encoder.begin(Kind::Tuple, 100, 0)?;
        for _ in 0..100 {
            encoder.str(black_box(b"some string"));
        }
        encoder.end()
    });
}

#[divan::bench]
fn encode_a_keyed_map_of_twenty(bencher: Bencher) {
    let mut encoder = Encoder::new();
    bencher.bench_local(|| {
        encoder.clear();
        encoder.begin(Kind::Keyed, 40, 0)?;
        for value in 0..20 {
            encoder.str(black_box(b"some key"));
            encoder.int(value);
        }
        encoder.end()
    });
}

#[divan::bench]
fn read_the_head(bencher: Bencher) {
    let (bytes, shapes) = record();
    bencher.bench_local(|| Container::root(black_box(&bytes), &shapes));
}

#[divan::bench(args = ["name", "age", "mydict"])]
fn read_a_field(bencher: Bencher, name: &str) {
    let (bytes, shapes) = record();
    let root = root(&bytes, &shapes);
    let slot = shapes.first().and_then(|shape| shape.slot(name)).expect("the record has the field");
    bencher.bench_local(|| root.slot(black_box(&bytes), &shapes, black_box(slot)));
}

#[divan::bench]
fn read_a_field_by_name(bencher: Bencher) {
    let (bytes, shapes) = record();
    let root = root(&bytes, &shapes);
    bencher.bench_local(|| root.field(black_box(&bytes), &shapes, black_box("amt")));
}

fn walk(bytes: &[u8], shapes: &Vec<Shape>, container: Container) -> Result<(u64, u32), Corrupt> {
    let mut walker = Walker::new(container);
    let mut count = 0;
    while let Some(slot) = walker.next(bytes, shapes)? {
        count += 1;
        if let Slot::Container(inner) = slot {
            let (inner_count, end) = walk(bytes, shapes, inner)?;
            walker.consumed(end)?;
            count += inner_count;
        }
    }
    Ok((count, walker.end()))
}

#[divan::bench]
fn walk_the_record(bencher: Bencher) {
    let (bytes, shapes) = record();
    let root = root(&bytes, &shapes);
    bencher.bench_local(|| walk(black_box(&bytes), &shapes, root));
}

#[divan::bench]
fn decode_the_record(bencher: Bencher) {
    let (bytes, shapes) = record();
    bencher.bench_local(|| decode(black_box(&bytes), &shapes));
}

#[divan::bench]
fn validate_the_record(bencher: Bencher) {
    let (bytes, shapes) = record();
    bencher.bench_local(|| validate(black_box(&bytes), &shapes));
}

#[divan::bench]
fn wrap_a_megabyte_in_an_envelope(bencher: Bencher) {
    let (tables, record) = (Tables::new(), vec![7; 1 << 20]);
    bencher.bench_local(|| tables.envelope(black_box(&record)));
}
