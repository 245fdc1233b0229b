//! Remarks on a query in `explain()`, to show why it finds nothing.
//!
//! There is a remark for each of these: a table that does not exist; a field that no record has, at
//! any depth; a comparison with a type that no record has in that field; an order by the negative
//! of a value that is no number; a computed value that is missing in every row; a condition on an
//! indexed field that no index serves. Rows are walked over until each of these is ruled out.

mod computed;
mod indexed;

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use pellucid_query::evaluate::found::Found;
use pellucid_query::expression::{Expression, Kind, Node, Part, Source, Step};
use pellucid_query::walk::for_each;
use pellucid_query::{Column, Evaluator, Fault, Walk};
use pellucid_record::view::{Root, Slot, root};
use pellucid_record::{Corrupt, Kind as RecordKind, Shapes, Value};
use pyo3::prelude::*;

use self::computed::Computed;
use crate::errors;
use crate::expression::method;
use crate::query::explain::Explained;
use crate::query::handle::Query;
use crate::store_errors;
use crate::work::walks::{Queried, Stop, Walked, Work, over};

/// The remarks, a line each.
pub fn of(query: &Bound<'_, Query>, name: &str, explained: &Explained) -> PyResult<Vec<String>> {
    let (py, table, plan) = (query.py(), query.table(), &query.get().plan);
    let Some(source) = table.source(Walked::ByOne)? else {
        let tables = table.get().core().snapshot(py)?.tables();
        let tables = tables.map_err(|error| store_errors::of_store(py, error))?;
        let names: Vec<String> = tables.into_iter().map(|(name, _)| name).collect();
        let close = errors::close_match(py, name, names)?;
        let hint = close.map_or_else(String::new, |close| format!("; did you mean {close:?}?"));
        return Ok(vec![format!("note: there is no table {name:?}{hint}")]);
    };
    let mut looked = Looked::default();
    for node in plan.conditions.iter() {
        looked.note_condition(node);
    }
    for (node, _) in &plan.order {
        looked.note_order(node);
    }
    for (_, node) in plan.chosen.iter().flatten() {
        looked.note_fields(node);
        Computed::gather(node, &mut looked.computed);
    }
    let looked = over(table, source, looked)?;
    if looked.is_empty {
        return Ok(Vec::new());
    }
    let mut remarks = Vec::new();
    for field in &looked.fields {
        remarks.extend(field.remark(query, name)?);
    }
    remarks.extend(looked.kinds.iter().filter_map(|kind| kind.remark(name)));
    remarks.extend(looked.computed.iter().filter_map(|computed| computed.remark(py, name)));
    if let Some(reader) = &explained.reader {
        remarks.extend(indexed::remarks(query, reader, explained)?);
    }
    Ok(remarks)
}

/// What is looked for in the rows.
#[derive(Default)]
struct Looked {
    fields: Vec<Field>,
    kinds: Vec<Kinds>,
    computed: Vec<Computed>,
    is_empty: bool,
}

/// A field, and how far down its path some record has a value.
struct Field {
    path: Vec<Step>,
    exists: Vec<Evaluator>,
    met: usize,
}

/// The kinds of values that a field has, and those that the query compares it with.
struct Kinds {
    path: Vec<Step>,
    column: Column,
    wanted: BTreeSet<&'static str>,
    met: BTreeSet<&'static str>,
    is_met: bool,
    is_order: bool,
}

fn field_of(node: &Node) -> Option<&[Step]> {
    match node.kind() {
        Kind::Field(Source::Record, path) if !path.is_empty() => Some(path),
        _ => None,
    }
}

fn literal(node: &Node) -> Option<&Value> {
    match node.kind() {
        Kind::Literal(value) => Some(value),
        _ => None,
    }
}

impl Looked {
    fn note_fields(&mut self, node: &Node) {
        node.for_each_field(&mut |path| {
            if path.is_empty() || self.fields.iter().any(|field| field.path == path) {
                return;
            }
            let exists = |count: usize| {
                let field = Expression::field(path.get(..count)?.to_vec());
                Evaluator::new(&*Expression::new(Kind::Exists(field)).ok()?).ok()
            };
            let exists: Option<Vec<_>> = (1..=path.len()).map(exists).collect();
            if let Some(exists) = exists {
                self.fields.push(Field { path: path.to_vec(), exists, met: 0 });
            }
        });
    }

    fn note_condition(&mut self, node: &Node) {
        self.note_fields(node);
        self.note_kinds(node);
        Computed::gather(node, &mut self.computed);
    }

    fn note_kinds(&mut self, node: &Node) {
        match node.kind() {
            Kind::And(parts) | Kind::Or(parts) => parts.iter().for_each(|part| self.note_kinds(part)),
            Kind::Not(part) => self.note_kinds(part),
            Kind::Compare(_, one, other) => {
                self.want(one, literal(other).into_iter(), &[]);
                self.want(other, literal(one).into_iter(), &[]);
            }
            Kind::Between(field, least, greatest) => {
                self.want(field, literal(least).into_iter().chain(literal(greatest)), &[]);
            }
            Kind::IsIn(field, values) => self.want(field, values.iter(), &[]),
            Kind::Has(Part::Anywhere, field, piece) => {
                self.want(field, literal(piece).into_iter(), &["list", "tuple", "set", "dict"]);
            }
            Kind::Has(_, field, piece) => self.want(field, literal(piece).into_iter(), &[]),
            Kind::Matches(field, _) => self.want(field, std::iter::empty(), &["str"]),
            _ => {}
        }
    }

    /// Notes that any of these kinds is looked for in a field.
    fn want<'a>(&mut self, field: &Node, values: impl Iterator<Item = &'a Value>, beside: &[&'static str]) {
        let Some(path) = field_of(field) else { return };
        let mut wanted: BTreeSet<_> = beside.iter().copied().collect();
        for value in values {
            // None is often looked for among other values.
            let Some(kind) = kind_of(value).filter(|_| *value != Value::None) else { return };
            wanted.insert(kind);
        }
        let is_text = wanted.contains("str") || wanted.contains("bytes");
        if wanted.is_empty() || wanted.len() == beside.len() && !is_text {
            return;
        }
        self.push(path, wanted, false);
    }

    fn note_order(&mut self, node: &Node) {
        self.note_fields(node);
        if let Kind::Negative(field) = node.kind()
            && let Some(path) = field_of(field)
        {
            self.push(path, ["number", "timedelta"].into(), true);
        } else {
            Computed::gather(node, &mut self.computed);
        }
    }

    fn push(&mut self, path: &[Step], wanted: BTreeSet<&'static str>, is_order: bool) {
        if let Ok(column) = Column::new(&Expression::field(path.to_vec())) {
            let (path, met) = (path.to_vec(), BTreeSet::new());
            self.kinds.push(Kinds { path, column, wanted, met, is_met: false, is_order });
        }
    }
}

impl Work for Looked {
    type Result = Self;

    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> Result<Self, Fault> {
        self.is_empty = true;
        let (fields, kinds, computed) = (&mut self.fields, &mut self.kinds, &mut self.computed);
        let is_empty = &mut self.is_empty;
        for_each::<()>(
            rows,
            || stop.is_set(),
            |row| {
                *is_empty = false;
                let mut is_done = true;
                for field in fields.iter_mut() {
                    // A damaged record may have the field.
                    while let Some(exists) = field.exists.get_mut(field.met)
                        && exists.is_true(&row, shapes).unwrap_or(true)
                    {
                        field.met += 1;
                    }
                    is_done &= field.met == field.exists.len();
                }
                for kind in kinds.iter_mut().filter(|kind| !kind.is_met) {
                    let Kinds { column, wanted, met, is_met, .. } = kind;
                    let visited = column.visit(&row, shapes, &mut |found| {
                        match kind_found(found, shapes)? {
                            Some(kind) if wanted.contains(kind) => *is_met = true,
                            Some(kind) => {
                                met.insert(kind);
                            }
                            // A value that may be any of them.
                            None => *is_met = !found.is_missing() && !found.is_none() || *is_met,
                        }
                        Ok(())
                    });
                    *is_met |= visited.is_err();
                    is_done &= *is_met;
                }
                for computed in computed.iter_mut().filter(|computed| !computed.is_met) {
                    computed.meet(&row, shapes);
                    is_done &= computed.is_met;
                }
                if is_done { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
            },
        )?;
        Ok(self)
    }
}

/// The kind of a value; values of one kind compare with each other. None for a value without such a
/// kind.
fn kind_of(value: &Value) -> Option<&'static str> {
    Some(match value {
        Value::Bool(_) | Value::Int(_) | Value::BigInt(_) | Value::Float(_) | Value::Decimal(_) => "number",
        Value::Str(_) | Value::Surrogates(_) => "str",
        Value::Bytes(_) | Value::Bytearray(_) => "bytes",
        Value::Date(_) => "date",
        Value::Datetime(..) => "naive datetime",
        Value::Aware { .. } => "aware datetime",
        Value::Time(..) => "time",
        Value::Timedelta(_) => "timedelta",
        Value::Uuid(_) => "UUID",
        Value::List(_) => "list",
        Value::Tuple(_) => "tuple",
        Value::Set(_) | Value::FrozenSet(_) => "set",
        Value::Dict(_) => "dict",
        Value::None => "None",
        _ => return None,
    })
}

fn kind_found<S: Shapes + ?Sized>(found: &Found<'_>, shapes: &S) -> Result<Option<&'static str>, Corrupt> {
    Ok(match found {
        Found::Missing | Found::Slot(Slot::None, _) => None,
        Found::Slot(Slot::Int(_) | Slot::Float(_) | Slot::Bool(_), _) => Some("number"),
        Found::Slot(Slot::Str(_), _) => Some("str"),
        Found::Slot(Slot::Container(container), _) => Some(match container.kind {
            RecordKind::Tuple => "tuple",
            RecordKind::Set | RecordKind::FrozenSet => "set",
            kind if kind.is_dict() => "dict",
            _ => "list",
        }),
        found => found.to_value(shapes)?.as_ref().filter(|value| **value != Value::None).and_then(kind_of),
    })
}

/// The kind with its article.
fn a(kind: &str) -> String {
    if kind.starts_with('a') { format!("an {kind}") } else { format!("a {kind}") }
}

fn shown(path: &[Step]) -> String {
    match path {
        [Step::Field(name)] => name.to_string(),
        path => Expression::field(path.to_vec()).to_string(),
    }
}

impl Field {
    fn remark(&self, query: &Bound<'_, Query>, name: &str) -> PyResult<Option<String>> {
        let Some((missing, above)) = self.path.get(..=self.met).and_then(|path| path.split_last()) else {
            return Ok(None);
        };
        let place = shown(self.path.get(..=self.met).unwrap_or_default());
        let Step::Field(field) = missing else {
            return Ok(Some(format!("note: no record in {name:?} has {place:?}")));
        };
        let Some(source) = query.table().source(Walked::ByOne)? else { return Ok(None) };
        let names: Vec<String> = if above.is_empty() {
            over(query.table(), source, FieldNames)?.into_iter().collect()
        } else {
            match Column::new(&Expression::field(above.to_vec())) {
                Ok(column) => over(query.table(), source, NamesIn(column))?.into_iter().collect(),
                Err(_) => Vec::new(),
            }
        };
        if names.is_empty() && above.is_empty() {
            // No row is a dict.
            return Ok(None);
        }
        let close = errors::close_match(query.py(), field, names)?;
        let parts: Vec<_> = field.split("__").collect();
        if parts.len() > 1 && parts.iter().all(|part| !part.is_empty()) {
            return Ok(Some(format!(
                "note: no record in {name:?} has {place:?}; a field in another is F.{0} in where(), \"{0}\" as a path",
                parts.join(".")
            )));
        }
        if method::is_name(query.py(), field) && !above.is_empty() {
            return Ok(Some(format!(
                "note: no record in {name:?} has {place:?}; to call it applies the function: F.{place}()"
            )));
        }
        let hint = close.map_or_else(String::new, |close| {
            let path: Vec<_> = above.iter().cloned().chain([Step::Field(close.into())]).collect();
            format!("; did you mean {:?}?", shown(&path))
        });
        Ok(Some(format!("note: no record in {name:?} has {place:?}{hint}")))
    }
}

impl Kinds {
    fn remark(&self, name: &str) -> Option<String> {
        if self.is_met || self.met.is_empty() {
            return None;
        }
        let place = shown(&self.path);
        let met: Vec<_> = self.met.iter().map(|kind| a(kind)).collect();
        if self.is_order {
            return Some(format!(
                "note: no record in {name:?} has a number in {place:?}, of which -{place} is made; {place} descending is \
                 F.{place}.desc()"
            ));
        }
        // In other libraries, this means any of the values.
        let is_several = self.wanted.iter().all(|kind| matches!(*kind, "list" | "tuple" | "set"));
        let advice = if is_several {
            format!("; where(F.{place}.isin([...])) finds any of several values")
        } else {
            String::new()
        };
        let wanted: Vec<_> = self.wanted.iter().map(|kind| a(kind)).collect();
        Some(format!(
            "note: no record in {name:?} has {} in {place:?}, as the condition asks; what they have there is {}{advice}",
            wanted.join(" or "),
            met.join(" or ")
        ))
    }
}

/// The names in the dicts of a column, from the first rows.
struct NamesIn(Column);

impl Work for NamesIn {
    type Result = BTreeSet<String>;

    fn run<S: Shapes>(
        mut self,
        rows: &mut impl Walk,
        shapes: &S,
        stop: Stop<'_>,
    ) -> Result<Self::Result, Fault> {
        const ROW_COUNT_MAX: usize = 10_000;
        let (mut names, mut count) = (BTreeSet::new(), 0);
        for_each::<()>(
            rows,
            || stop.is_set(),
            |row| {
                // A damaged record adds no names.
                let _ = self.0.visit(&row, shapes, &mut |found| {
                    if let Some(Value::Dict(entries)) = found.to_value(shapes)? {
                        names.extend(entries.into_iter().filter_map(|(key, _)| match key {
                            Value::Str(name) => Some(name),
                            _ => None,
                        }));
                    }
                    Ok(())
                });
                count += 1;
                if count == ROW_COUNT_MAX { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
            },
        )?;
        Ok(names)
    }
}

/// The names of the fields of records, from their shapes.
struct FieldNames;

impl Work for FieldNames {
    type Result = BTreeSet<String>;

    fn run<S: Shapes>(self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> Result<Self::Result, Fault> {
        let mut names = BTreeSet::new();
        let mut last = None;
        for_each::<()>(
            rows,
            || stop.is_set(),
            |row| {
                let Ok(Root::Container(dict)) = root(row.record, shapes) else {
                    return ControlFlow::Continue(());
                };
                if dict.kind == RecordKind::Shaped && last.replace(dict.shape) != Some(dict.shape) {
                    let shape = shapes.shape(dict.shape);
                    names.extend(shape.iter().flat_map(|shape| shape.names()).map(ToString::to_string));
                }
                if dict.kind == RecordKind::Keyed {
                    for entry in (0..dict.count).step_by(2) {
                        if let Ok(Slot::Str(name)) = dict.slot(row.record, shapes, entry) {
                            names.extend(std::str::from_utf8(name).ok().map(str::to_owned));
                        }
                    }
                }
                ControlFlow::Continue(())
            },
        )?;
        Ok(names)
    }
}
