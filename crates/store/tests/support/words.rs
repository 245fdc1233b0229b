//! A simple deriver for tests: records are texts, and a definition gives the positions of words.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use pellucid_record::key::{KeyEncoder, parts_size, push_part};
use pellucid_record::{Corrupt, Shapes};
use pellucid_store::{Derive, Derived, Deriver, Row};

/// "0" uses the first word, "1-" the second one in descending order, "*" makes an entry for each
/// word.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// How many rows were derived.
    pub derived: Arc<AtomicU64>,
}

struct WordEntries {
    definition: String,
    derived: Arc<AtomicU64>,
}

impl Deriver for Words {
    fn prepare(&self, definition: &str) -> Result<Box<dyn Derive>, String> {
        if definition.is_empty() {
            return Err("a definition names words".to_owned());
        }
        Ok(Box::new(WordEntries { definition: definition.to_owned(), derived: Arc::clone(&self.derived) }))
    }
}

/// The words of a record made by the support's `record`: a text.
pub fn words_of(record: &[u8]) -> Vec<String> {
    let text: String =
        String::from_utf8_lossy(record).chars().filter(|c| c.is_ascii_lowercase() || *c == ' ').collect();
    text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

pub fn parts_of(definition: &str, words: &[String]) -> BTreeSet<Vec<u8>> {
    let encode = |picked: &[(&String, bool)]| {
        let mut encoder = KeyEncoder::new();
        encoder.clear_for_parts();
        for (word, is_descending) in picked {
            push_part(&mut encoder, *is_descending, |encoder| {
                encoder.str(word.as_bytes());
                true
            });
        }
        encoder.parts().to_vec()
    };
    if definition == "*" {
        return words.iter().map(|word| encode(&[(word, false)])).collect();
    }
    let picked: Option<Vec<(&String, bool)>> = definition
        .split(',')
        .map(|part| {
            let place: usize = part.trim_end_matches('-').parse().unwrap();
            words.get(place).map(|word| (word, part.ends_with('-')))
        })
        .collect();
    picked.map(|picked| encode(&picked)).into_iter().collect()
}

impl Derive for WordEntries {
    fn derive(&mut self, row: &Row<'_>, _: &dyn Shapes, entries: &mut Derived) -> Result<(), Corrupt> {
        self.derived.fetch_add(1, Ordering::Relaxed);
        for parts in parts_of(&self.definition, &words_of(row.record)) {
            entries.push(&parts, &[]);
        }
        Ok(())
    }

    fn parts_size(&self, code: &[u8]) -> Option<usize> {
        let descending: Vec<bool> = self.definition.split(',').map(|part| part.ends_with('-')).collect();
        parts_size(code, &descending)
    }

    fn again(&self) -> Box<dyn Derive> {
        Box::new(WordEntries { definition: self.definition.clone(), derived: Arc::clone(&self.derived) })
    }
}
