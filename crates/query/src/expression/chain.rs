//! Chains of `and` or `or` that grow without copying.
//!
//! A loop that adds one condition at a time makes a new chain in each round. A chain is a binary
//! tree whose leaves are runs of parts. Joining two chains makes one node, whatever their lengths,
//! and leaves both unchanged. The tree may be as deep as it has parts, so traversal and drop use
//! their own stack instead of recursion.

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use super::node::Node;

/// A node of the tree: parts in order, at least one.
struct Tree {
    content: Content,
    count: usize,
    /// The depth of the deepest part.
    depth: u32,
}

enum Content {
    Parts(Box<[Node]>),
    Joined(Arc<Tree>, Arc<Tree>),
}

/// The parts of `and` or `or`, in order.
#[derive(Clone, Default)]
pub struct Chain {
    tree: Option<Arc<Tree>>,
}

impl Chain {
    /// Iterates over all parts.
    pub fn iter(&self) -> impl Iterator<Item = &Node> {
        Parts { run: [].iter(), rest: self.tree.as_deref().into_iter().collect() }
    }

    /// The number of parts.
    #[must_use]
    pub fn count(&self) -> usize {
        self.tree.as_ref().map_or(0, |tree| tree.count)
    }

    /// The depth of the deepest part.
    pub(super) fn depth(&self) -> u32 {
        self.tree.as_ref().map_or(0, |tree| tree.depth)
    }

    /// Adds a part at the end.
    pub fn push(&mut self, part: Node) {
        self.append(&Chain::from(vec![part]));
    }

    /// Adds all parts of another chain at the end.
    pub fn append(&mut self, other: &Chain) {
        let (Some(one), Some(other)) = (&self.tree, &other.tree) else {
            if self.tree.is_none() {
                self.tree.clone_from(&other.tree);
            }
            return;
        };
        let (count, depth) = (one.count + other.count, one.depth.max(other.depth));
        let content = Content::Joined(Arc::clone(one), Arc::clone(other));
        self.tree = Some(Arc::new(Tree { content, count, depth }));
    }
}

/// Iterates over the parts of a tree from left to right.
struct Parts<'a> {
    run: std::slice::Iter<'a, Node>,
    /// The subtrees after the run, in reverse order.
    rest: Vec<&'a Tree>,
}

impl<'a> Iterator for Parts<'a> {
    type Item = &'a Node;

    fn next(&mut self) -> Option<&'a Node> {
        loop {
            if let Some(part) = self.run.next() {
                return Some(part);
            }
            let mut tree = self.rest.pop()?;
            while let Content::Joined(one, other) = &tree.content {
                self.rest.push(other);
                tree = one;
            }
            if let Content::Parts(parts) = &tree.content {
                self.run = parts.iter();
            }
        }
    }
}

impl Drop for Tree {
    /// Drops subtrees one by one. Recursion would be as deep as the chain is long.
    fn drop(&mut self) {
        let mut rest = Vec::new();
        self.take_apart(&mut rest);
        while let Some(tree) = rest.pop() {
            if let Some(mut tree) = Arc::into_inner(tree) {
                tree.take_apart(&mut rest);
            }
        }
    }
}

impl Tree {
    fn take_apart(&mut self, rest: &mut Vec<Arc<Tree>>) {
        if let Content::Joined(..) = self.content
            && let Content::Joined(one, other) =
                std::mem::replace(&mut self.content, Content::Parts(Box::default()))
        {
            rest.extend([one, other]);
        }
    }
}

impl From<Vec<Node>> for Chain {
    fn from(parts: Vec<Node>) -> Self {
        let depth = parts.iter().map(|part| part.depth).max().unwrap_or(0);
        let count = parts.len();
        let content = Content::Parts(parts.into());
        Self { tree: (count > 0).then(|| Arc::new(Tree { content, count, depth })) }
    }
}

impl PartialEq for Chain {
    fn eq(&self, other: &Self) -> bool {
        self.count() == other.count() && self.iter().eq(other.iter())
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
    use super::super::node::{Expression, Step};
    use super::*;

    fn field(number: i64) -> Node {
        Expression::field(vec![Step::Index(number)])
    }

    #[test]
    fn a_chain_grows_at_either_end_and_shares_what_it_had() {
        const COUNT: i64 = 100_000;
        let (mut behind, mut before) = (Chain::default(), Chain::default());
        for number in 0..COUNT {
            let old = behind.clone();
            behind.push(field(number));
            if let (Some(old), Some(Content::Joined(one, _))) =
                (&old.tree, behind.tree.as_ref().map(|tree| &tree.content))
            {
                assert!(Arc::ptr_eq(old, one));
            }
            let mut longer = Chain::from(vec![field(COUNT - 1 - number)]);
            longer.append(&before);
            before = longer;
        }
        let whole = Chain::from((0..COUNT).map(field).collect::<Vec<_>>());
        assert!(behind == whole && before == whole);
        assert_eq!((behind.count(), before.count()), (100_000, 100_000));
        let mut twice = behind.clone();
        twice.append(&before);
        twice.append(&Chain::default());
        assert_eq!(twice.iter().count(), 200_000);
        // Dropped in a thread whose stack is too small for recursion.
        let freed =
            std::thread::Builder::new().stack_size(64 << 10).spawn(move || drop((behind, before, twice)));
        freed.unwrap().join().unwrap();
    }
}
