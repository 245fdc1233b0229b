//! Row counts that WAL records add to a table without a change of its catalog entry.

use crate::row_key::TableId;

/// How many rows a table has more (or fewer) than before the memtable, after each counted WAL
/// record.
pub(crate) struct Counted {
    pub(crate) table: TableId,
    runs: Vec<Run>,
}

/// Consecutive WAL records that each count the same number. A loop that fills a table makes one
/// run.
struct Run {
    /// The sequence number of the first WAL record, and the number of records.
    first: u64,
    wal_records: u64,
    /// What each record counts, and the total before them.
    each: i64,
    before: i64,
}

impl Run {
    /// The total after the first `wal_records` records of the run.
    fn total(&self, wal_records: u64) -> i64 {
        self.before + self.each * wal_records.min(self.wal_records).cast_signed()
    }
}

impl Counted {
    /// For the first WAL record that counts rows of this table.
    pub(crate) fn new(table: TableId, sequence: u64, more: i64) -> Self {
        Self { table, runs: vec![Run { first: sequence, wal_records: 1, each: more, before: 0 }] }
    }

    /// The total after a WAL record.
    pub(crate) fn at(&self, sequence: u64) -> i64 {
        let begun = self.runs.partition_point(|run| run.first <= sequence);
        let last = begun.checked_sub(1).and_then(|last| self.runs.get(last));
        last.map_or(0, |run| run.total(sequence - run.first + 1))
    }

    /// Add `more`, counted by the next WAL record or by the last one again.
    pub(crate) fn count(&mut self, sequence: u64, more: i64) {
        let before = match self.runs.last_mut() {
            Some(run) if run.each == more && run.first + run.wal_records == sequence => {
                run.wal_records += 1;
                return;
            }
            Some(run) if run.first == sequence => {
                run.each += more;
                return self.join();
            }
            Some(run) if run.first + run.wal_records == sequence + 1 => {
                // The last WAL record of the run now counts another number than those before it.
                run.wal_records -= 1;
                let (each, before) = (run.each, run.total(run.wal_records));
                self.runs.push(Run { first: sequence, wal_records: 1, each: each + more, before });
                return;
            }
            last => last.map_or(0, |run| run.total(run.wal_records)),
        };
        self.runs.push(Run { first: sequence, wal_records: 1, each: more, before });
    }

    /// Merge the last two runs if each of their records counts the same number.
    fn join(&mut self) {
        if let [.., before, last] = &mut self.runs[..]
            && before.each == last.each
            && before.first + before.wal_records == last.first
        {
            before.wal_records += last.wal_records;
            self.runs.pop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wal_record_counts_any_number_of_rows() {
        let mut random = 1_u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % limit
        };
        for kinds in [1, 2, 4] {
            let mut counted = Counted { table: TableId(1), runs: Vec::new() };
            let (mut totals, mut total) = (vec![0; 3], 0);
            for sequence in 3..300 {
                // Some WAL records count nothing; some count as many rows in as out.
                for _ in 0..below(kinds) * 3 {
                    let more = if below(4) == 0 { -1 } else { 1 };
                    counted.count(sequence, more);
                    total += more;
                }
                totals.push(total);
            }
            for (sequence, total) in (0..).zip(&totals) {
                assert_eq!(counted.at(sequence), *total, "after WAL record {sequence}");
            }
        }
        let mut counted = Counted { table: TableId(1), runs: Vec::new() };
        for sequence in 1..100 {
            for _ in 0..10 {
                counted.count(sequence, 1);
            }
        }
        assert_eq!(counted.runs.len(), 1, "a loop that fills a table leaves one run");
    }
}
