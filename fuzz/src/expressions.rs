//! Is any text that is an expression shown as one, and can evaluating it over any bytes do harm?
//!
//! A file of its own, apart from `lib.rs`: that one is about records alone, and is included by the tests of their crate.

use std::sync::LazyLock;

use pellucid_query::Evaluator;
use pellucid_query::expression::parse;
use pellucid_record::{Shape, Shapes};
use pellucid_store::Row;

/// Shapes that records may name: those of the other targets, so that their records are of use here.
struct Few;

static SHAPES: LazyLock<Vec<Shape>> = LazyLock::new(|| {
    let lists: [&[&str]; 5] = [
        &["a"],
        &["name", "age", "tags"],
        &[],
        &["a", "b", "c", "d", "e", "f", "g", "h", "i", "a.b", "", "\u{e4}"],
        &["b", "a"],
    ];
    lists.iter().filter_map(|names| Shape::new(names).ok()).collect()
});

impl Shapes for Few {
    fn shape(&self, id: u32) -> Option<&Shape> {
        SHAPES.get(id as usize)
    }
}

/// A text, the code of a key and a record, with a line break between them.
pub fn expressions(data: &[u8]) {
    let mut parts = data.splitn(3, |byte| *byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (text, key, record) = (part(), part(), part());
    let text = String::from_utf8_lossy(text);
    let expression = match parse(&text) {
        Ok(expression) => expression,
        Err(error) => {
            let shown = error.to_string();
            assert_eq!(shown.lines().count(), 3, "{shown}");
            assert!(error.column <= text.chars().count() + 1, "{shown}");
            return;
        }
    };
    let shown = expression.to_string();
    let again = parse(&shown).unwrap_or_else(|error| panic!("{text:?} is shown as {shown:?}: {error}"));
    assert_eq!(again, expression, "{text:?} is shown as {shown:?}");
    assert_eq!(again.to_string(), shown);

    let mut evaluator =
        Evaluator::new(&expression).expect("each regular expression in it was compiled before");
    let row = Row { key, spelling: &[], record };
    // The second time it knows where fields stood.
    let first = evaluator.is_true(&row, &Few);
    assert_eq!(evaluator.is_true(&row, &Few), first);
    let value = evaluator.value(&row, &Few);
    assert_eq!(evaluator.value(&row, &Few), value);
}
