//! How many rows have the groups counted that say nothing of it in the catalog?

use crate::row_key::TableId;

/// The rows that a table has more than before the layer, behind the groups that counted some.
pub(crate) struct Counted {
    pub(crate) table: TableId,
    runs: Vec<Run>,
}

/// Groups in a row of which each counted as many: what somebody who fills a table leaves is one.
struct Run {
    /// The first group's number, and how many there are.
    first: u64,
    groups: u64,
    /// What each counts, and the total ahead of them.
    each: i64,
    before: i64,
}

impl Run {
    /// The total behind its first few groups.
    fn total(&self, groups: u64) -> i64 {
        self.before + self.each * groups.min(self.groups).cast_signed()
    }
}

impl Counted {
    /// Of a table of which a group is the first to count any.
    pub(crate) fn new(table: TableId, sequence: u64, more: i64) -> Self {
        Self { table, runs: vec![Run { first: sequence, groups: 1, each: more, before: 0 }] }
    }

    /// The total behind a group.
    pub(crate) fn at(&self, sequence: u64) -> i64 {
        let begun = self.runs.partition_point(|run| run.first <= sequence);
        let last = begun.checked_sub(1).and_then(|last| self.runs.get(last));
        last.map_or(0, |run| run.total(sequence - run.first + 1))
    }

    /// Count one more of what the next group says, or of what the last one does.
    pub(crate) fn count(&mut self, sequence: u64, more: i64) {
        let before = match self.runs.last_mut() {
            Some(run) if run.each == more && run.first + run.groups == sequence => {
                run.groups += 1;
                return;
            }
            Some(run) if run.first == sequence => {
                run.each += more;
                return self.join();
            }
            Some(run) if run.first + run.groups == sequence + 1 => {
                // The last group of a run counts another one than those ahead of it.
                run.groups -= 1;
                let (each, before) = (run.each, run.total(run.groups));
                self.runs.push(Run { first: sequence, groups: 1, each: each + more, before });
                return;
            }
            last => last.map_or(0, |run| run.total(run.groups)),
        };
        self.runs.push(Run { first: sequence, groups: 1, each: more, before });
    }

    /// Make one of the last two runs, where the last one counts as many as the one ahead of it.
    fn join(&mut self) {
        if let [.., before, last] = &mut self.runs[..]
            && before.each == last.each
            && before.first + before.groups == last.first
        {
            before.groups += last.groups;
            self.runs.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_counts_any_number_of_rows() {
        let mut random = 1_u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % limit
        };
        for kinds in [1, 2, 4] {
            let mut counted = Counted { table: TableId(1), runs: Vec::new() };
            let (mut totals, mut total) = (vec![0; 3], 0);
            for sequence in 3..300 {
                // Some groups count nothing, some as much in as out.
                for _ in 0..below(kinds) * 3 {
                    let more = if below(4) == 0 { -1 } else { 1 };
                    counted.count(sequence, more);
                    total += more;
                }
                totals.push(total);
            }
            for (sequence, total) in (0..).zip(&totals) {
                assert_eq!(counted.at(sequence), *total, "behind group {sequence}");
            }
        }
        let mut counted = Counted { table: TableId(1), runs: Vec::new() };
        for sequence in 1..100 {
            for _ in 0..10 {
                counted.count(sequence, 1);
            }
        }
        assert_eq!(counted.runs.len(), 1, "whoever fills a table leaves one run");
    }
}
