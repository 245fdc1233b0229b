//! Remarks on indexes that almost serve a query, and why they do not.
//!
//! It remarks on conditions that no index serves as they are written, and on indexes that lack rows
//! that the query may look for. If the query uses an index anyway, it remarks only on conditions of
//! a kind that no index ever serves.

use pellucid_query::exec::ROW_COUNT_MIN;
use pellucid_query::exec::table_index::{TableIndex, candidates};
use pellucid_query::expression::{Comparison, Expression, Kind, Node, Part, Step};
use pellucid_query::key_range;
use pellucid_query::plan::spans::{LOOKED_UP_MAX, Spans, is_equality, operand, spans};
use pellucid_query::plan::{AccessPath, Candidate, section};
use pyo3::prelude::*;

use crate::expression::handle::shown;
use crate::query::explain::Explained;
use crate::query::handle::Query;
use crate::query::reader::{TableReader, read};
use crate::query::remarks::{field_of, shown as path_text};
use crate::store_errors;
use crate::table::ready_indexes::Indexes;
use crate::work::walks::Queried;

/// Remarks on conditions and indexes, a line each.
pub(super) fn remarks(
    query: &Bound<'_, Query>,
    reader: &TableReader,
    explained: &Explained,
) -> PyResult<Vec<String>> {
    let (py, table, plan) = (query.py(), query.table(), &query.get().plan);
    let (indexes, conditions) = (&explained.indexes, &explained.conditions[..]);
    let best = explained.paths.as_ref().and_then(|paths| paths.paths.first());
    let is_scan = best.is_none_or(|best| best.access == AccessPath::TableScan);
    let mut remarks = Vec::new();
    let mut open: Vec<&Node> = plan.conditions.iter().collect();
    while let Some(node) = open.pop() {
        let negated = if is_scan { not_served(py, indexes, node) } else { None };
        match node.kind() {
            _ if negated.is_some() => remarks.extend(negated),
            Kind::And(parts) | Kind::Or(parts) => open.extend(parts.iter()),
            Kind::Not(part) => open.push(part),
            Kind::Has(part @ (Part::Anywhere | Part::End), field, _) => {
                remarks.extend(never_served(indexes, part.word(), field));
            }
            Kind::Matches(field, _) => remarks.extend(never_served(indexes, "matches", field)),
            Kind::IsIn(part, values) if values.len() > LOOKED_UP_MAX => {
                remarks.extend(too_many(indexes, part, values.len()));
            }
            _ if is_scan => remarks.extend(computed_otherwise(py, indexes, node)),
            _ => {}
        }
    }
    let of_query = OfQuery { py, conditions, indexes };
    remarks.extend(of_query.building(reader)?);
    let row_count = read!(reader, table, |rows, id| rows.count(id))?;
    let candidates = read!(reader, table, |rows, _id| candidates(rows, indexes, (conditions, &[])))?;
    for (ready, candidate) in indexes.iter().zip(candidates) {
        let is_small = explained.paths.is_none() && row_count < ROW_COUNT_MIN;
        if serves(&candidate, conditions, row_count) {
            if is_small {
                remarks.push(format!(
                    "note: index {:?} would serve, but to scan fewer than {ROW_COUNT_MIN} rows takes less",
                    ready.info.name
                ));
            }
        } else if is_scan {
            let lacking = || of_query.lacking(&candidate, row_count);
            remarks.extend(lacking().or_else(|| of_query.partial(&candidate)));
        }
    }
    Ok(remarks)
}

fn serves(candidate: &Candidate, conditions: &[Node], row_count: u64) -> bool {
    let section = section(candidate, conditions, row_count);
    section.is_some_and(|section| section.point_count > 0 || section.has_span)
}

/// An index that has this expression among its parts.
fn index_of<'a>(indexes: &'a Indexes, part: &Expression) -> Option<&'a TableIndex> {
    let has = |ready: &&TableIndex| ready.definition.parts.iter().any(|(node, _)| **node == *part);
    indexes.iter().find(has)
}

/// The remark on a condition of a kind that no index serves, on a field that has an index.
fn never_served(indexes: &Indexes, word: &str, field: &Node) -> Option<String> {
    let path = field_of(field)?;
    let each: Vec<_> = path.iter().cloned().chain([Step::Each]).collect();
    if word == "contains"
        && let Some(ready) = index_of(indexes, &Expression::field(each))
    {
        return Some(format!(
            "note: contains() goes through no index, since it looks into strings, too; F.{}.each() == ... goes through {:?}",
            path_text(path),
            ready.info.name
        ));
    }
    let ready = index_of(indexes, field)?;
    Some(format!(
        "note: {word}() goes through no index, not through {:?}, which serves == < <= > >= between isin startswith",
        ready.info.name
    ))
}

/// The remark on a condition with more values than are looked up in an index.
fn too_many(indexes: &Indexes, part: &Expression, value_count: usize) -> Option<String> {
    let ready = index_of(indexes, part)?;
    Some(format!(
        "note: isin() of {value_count} values goes through no index, not through {:?}: {LOOKED_UP_MAX} are looked up at most; several queries of \
         fewer values go through it",
        ready.info.name
    ))
}

/// The remark on `!=` or `~` before a condition that an index would serve.
fn not_served(py: Python<'_>, indexes: &Indexes, node: &Node) -> Option<String> {
    let (sign, inner) = match node.kind() {
        Kind::Compare(Comparison::NotEqual, one, other) => {
            let equal = Kind::Compare(Comparison::Equal, one.clone(), other.clone());
            ("!=", Expression::new(equal).ok()?)
        }
        Kind::Not(inner) => ("~", inner.clone()),
        _ => return None,
    };
    let part = operand(&inner)?;
    spans(&inner, part)?;
    let ready = index_of(indexes, part)?;
    let instead = opposite(&inner).map_or_else(String::new, |opposite| {
        format!("; {}, which is not, goes through it", shown(py, &opposite))
    });
    let name = &ready.info.name;
    let lacks = if part.branches() { "without any such value" } else { "without such a value" };
    Some(format!(
        "note: {sign} goes through no index, not through {name:?}: it is true of rows {lacks}, too{instead}"
    ))
}

/// The comparison that is true where this one is false, for values that compare.
fn opposite(condition: &Node) -> Option<Node> {
    let Kind::Compare(comparison, one, other) = condition.kind() else { return None };
    let compared = |comparison| Expression::new(Kind::Compare(comparison, one.clone(), other.clone())).ok();
    let opposite = match comparison {
        Comparison::Less => compared(Comparison::GreaterOrEqual)?,
        Comparison::LessOrEqual => compared(Comparison::Greater)?,
        Comparison::Greater => compared(Comparison::LessOrEqual)?,
        Comparison::GreaterOrEqual => compared(Comparison::Less)?,
        Comparison::Equal => {
            let both = vec![compared(Comparison::Less)?, compared(Comparison::Greater)?];
            Expression::new(Kind::Or(both.into())).ok()?
        }
        Comparison::NotEqual => return None,
    };
    // None equals itself, and has no order.
    let parts = key_range::parts(std::slice::from_ref(&opposite));
    let has_order = |node: &Node| operand(node).is_some_and(|part| spans(node, part).is_some());
    let is_served = match parts.first().map(|part| part.kind()) {
        Some(Kind::Or(parts)) => parts.iter().all(has_order),
        _ => parts.iter().all(has_order),
    };
    // With `each()`, one element may be less and another one equal, so that the two are not
    // opposites.
    (is_served && !operand(condition)?.branches()).then_some(opposite)
}

/// The remark on a condition whose operand is computed from an index's part, or from which an
/// index's part is computed.
fn computed_otherwise(py: Python<'_>, indexes: &Indexes, node: &Node) -> Option<String> {
    let asked = operand(node)?;
    spans(node, asked)?;
    if index_of(indexes, asked).is_some() {
        return None;
    }
    let asked = node.kind().parts().into_iter().find(|part| ***part == *asked)?;
    let remark = |ready: &TableIndex, part: &Node| {
        let (part_text, asked_text) = (shown(py, part), shown(py, asked));
        let begin = format!("note: index {:?} is over {part_text}, not over {asked_text}", ready.info.name);
        if is_made_of(asked, part) {
            Some(format!(
                "{begin}; a condition on {part_text} alone would go through it, or this one through an index over {asked_text}"
            ))
        } else if is_made_of(part, asked) {
            Some(format!("{begin}; a condition on {part_text} would go through it"))
        } else {
            None
        }
    };
    indexes.iter().find_map(|ready| ready.definition.parts.first().and_then(|(part, _)| remark(ready, part)))
}

fn is_made_of(whole: &Node, part: &Node) -> bool {
    whole.kind().parts().into_iter().any(|node| node == part || is_made_of(node, part))
}

/// What is known about a query while its indexes are checked one by one.
struct OfQuery<'a, 'py> {
    py: Python<'py>,
    conditions: &'a [Node],
    indexes: &'a Indexes,
}

impl OfQuery<'_, '_> {
    /// The remarks on indexes that are still being built.
    fn building(&self, reader: &TableReader) -> PyResult<Vec<String>> {
        let TableReader::Snapshot(snapshot, id) = reader else { return Ok(Vec::new()) };
        let all = snapshot.indexes(*id).map_err(|error| store_errors::of_store(self.py, error))?;
        let building = all.into_iter().filter(|info| info.building.is_some()).filter_map(TableIndex::parse);
        let remark = |ready: TableIndex| {
            // It is not known yet whether all rows will have an entry, so that the index serves
            // without its other parts as well.
            let is_total = Candidate { entries: u64::MAX, ..ready.candidate.clone() };
            let condition = match (&ready.candidate, &is_total) {
                (known, _) if serves(known, self.conditions, u64::MAX) => "",
                (_, total) if serves(total, self.conditions, u64::MAX) => " if each row has all its parts",
                _ => return None,
            };
            Some(format!(
                "note: index {:?} would serve{condition}, and is still being built; until then no query uses it",
                ready.info.name
            ))
        };
        Ok(building.filter_map(remark).collect())
    }

    /// The remark on an index of several parts that has no entry for some rows: those without a
    /// part that the conditions do not name.
    fn lacking(&self, candidate: &Candidate, row_count: u64) -> Option<String> {
        let is_said = |part: &Node| self.conditions.iter().any(|node| spans(node, part).is_some());
        let first = candidate.parts.first().map(|(part, _)| part).filter(|part| is_said(part))?;
        let (said, unsaid): (Vec<_>, Vec<_>) =
            candidate.parts.iter().cloned().partition(|(part, _)| is_said(part));
        let is_served_else = |ready: &TableIndex| {
            ready.definition.parts.first().is_some_and(|(part, _)| part == first)
                && serves(&ready.candidate, self.conditions, row_count)
        };
        let would_serve = serves(&Candidate { parts: said, ..candidate.clone() }, self.conditions, row_count);
        if unsaid.is_empty() || !would_serve || self.indexes.iter().any(is_served_else) {
            return None;
        }
        let shown_parts: Vec<_> = unsaid.iter().map(|(part, _)| shown(self.py, part)).collect();
        let missing = shown_parts.join(" or ");
        let lacks = match row_count.checked_sub(candidate.entries) {
            Some(count) if candidate.condition.is_none() && !candidate.is_multi_valued() => {
                format!("{count} of {row_count} rows")
            }
            _ => "rows".to_owned(),
        };
        Some(format!(
            "note: index {:?} has no entry for {lacks} in which {missing} is missing or can be no key, and the conditions say nothing of that; \
             an index over {} would serve, or a comparison of {} as well",
            candidate.name,
            shown(self.py, first),
            shown_parts.join(" and ")
        ))
    }

    /// The remark on a partial index, if the conditions do not say that the wanted rows are among
    /// its rows. There is none if the conditions exclude its rows.
    fn partial(&self, candidate: &Candidate) -> Option<String> {
        let condition = candidate.condition.as_ref()?;
        if !serves(&Candidate { condition: None, ..candidate.clone() }, self.conditions, u64::MAX) {
            return None;
        }
        let all = key_range::parts(std::slice::from_ref(condition));
        if all.iter().any(|wanted| self.conditions.iter().any(|node| excludes(node, wanted))) {
            return None;
        }
        let is_order = |wanted: &Node| matches!(wanted.kind(), Kind::Compare(..) | Kind::Between(..));
        let equals = |wanted: &Node| {
            let same = |node: &Node| is_equality(node) && operand(node) == operand(wanted);
            !is_equality(wanted) && is_order(wanted) && self.conditions.iter().any(same)
        };
        let why = if all.iter().any(equals) {
            "; that it equals a value does not say so, for a complex number may equal one and has no order"
        } else {
            ""
        };
        Some(format!(
            "note: index {:?} has only the rows where {condition}, which the conditions do not say; where(..., {}) as well would let it \
             serve{why}",
            candidate.name,
            shown(self.py, condition)
        ))
    }
}

/// Whether `wanted` is false for every row for which `condition` is true, as far as that can be
/// told.
fn excludes(condition: &Node, wanted: &Node) -> bool {
    match (condition.kind(), wanted.kind()) {
        (Kind::And(parts), _) => return parts.iter().any(|part| excludes(part, wanted)),
        (Kind::Or(parts), _) => return parts.iter().all(|part| excludes(part, wanted)),
        (Kind::Not(part), _) if part == wanted => return true,
        (_, Kind::Not(part)) if part == condition => return true,
        _ => {}
    }
    let Some(part) = operand(wanted).filter(|part| !part.branches()) else { return false };
    let left = |node: &Node| -> Option<Spans> { spans(node, part) };
    match (left(condition), left(wanted)) {
        (Some(one), Some(other)) => one.and(&other).spans.is_empty(),
        _ => false,
    }
}
