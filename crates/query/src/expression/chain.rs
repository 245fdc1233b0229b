//! How does a chain of `and` or `or` grow without being copied?
//!
//! Who joins conditions in a loop makes a chain for each of them. A chain is a few runs of its parts, each longer than the next, which it shares with
//! those that go on with it: one part more is one run more, and the last runs become one where they are as long. So each part is copied as
//! often as its run has doubled.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::Node;

/// Some parts that follow each other, and how deep the deepest is.
struct Run {
    parts: Box<[Node]>,
    depth: u32,
}

/// The parts of `and` or `or`, in order.
#[derive(Clone, Default)]
pub struct Chain {
    runs: Vec<Arc<Run>>,
}

impl Chain {
    /// All parts.
    #[must_use]
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Node> {
        self.runs.iter().flat_map(|run| run.parts.iter())
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.runs.iter().map(|run| run.parts.len()).sum()
    }

    /// How deep the deepest is.
    pub(super) fn depth(&self) -> u32 {
        self.runs.iter().map(|run| run.depth).max().unwrap_or(0)
    }

    /// Adds a part at the end.
    pub(super) fn push(&mut self, part: Node) {
        self.add(Arc::new(Run { depth: part.depth, parts: Box::new([part]) }));
    }

    /// Adds all parts of another chain at the end.
    pub(super) fn append(&mut self, other: &Chain) {
        for run in &other.runs {
            self.add(Arc::clone(run));
        }
    }

    fn add(&mut self, run: Arc<Run>) {
        self.runs.push(run);
        while let [.., before, last] = &self.runs[..]
            && before.parts.len() <= last.parts.len()
        {
            let joined = Run {
                parts: before.parts.iter().chain(&last.parts).cloned().collect(),
                depth: before.depth.max(last.depth),
            };
            self.runs.truncate(self.runs.len() - 2);
            self.runs.push(Arc::new(joined));
        }
    }
}

impl From<Vec<Node>> for Chain {
    fn from(parts: Vec<Node>) -> Self {
        let depth = parts.iter().map(|part| part.depth).max().unwrap_or(0);
        Self { runs: vec![Arc::new(Run { parts: parts.into(), depth })] }
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Chain {}

impl Hash for Chain {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.count().hash(state);
        self.iter().for_each(|part| part.hash(state));
    }
}

impl fmt::Debug for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Expression, Step};
    use super::*;

    #[test]
    fn a_chain_that_goes_on_shares_what_it_had() {
        let field = |number: i64| Expression::field(vec![Step::Index(number)]);
        let (mut chain, mut copied) = (Chain::default(), 0);
        for number in 0..10_000 {
            let before = chain.clone();
            chain.push(field(number));
            let is_shared = |run: &&Arc<Run>| !before.runs.iter().any(|other| Arc::ptr_eq(run, other));
            copied += chain.runs.iter().filter(is_shared).map(|run| run.parts.len()).sum::<usize>();
            assert!(chain.runs.len() < 16);
        }
        assert!(copied < 16 * 10_000, "{copied}");
        assert!(chain.iter().eq((0..10_000).map(field).collect::<Vec<_>>().iter()));
        assert_eq!(chain, Chain::from((0..10_000).map(field).collect::<Vec<_>>()));
    }
}
