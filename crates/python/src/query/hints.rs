//! What the hints of `explain()` need to know of a query, for `pellucid/hints.py`, which words
//! them.
//!
//! Python sees the form of expressions, the kinds of values that rows have, and whether an index
//! would serve conditions. No value is decoded, so that no code of a stored value runs.

use std::collections::BTreeSet;
use std::ops::ControlFlow;

use pellucid_query::evaluate::found::Found;
use pellucid_query::exec::ROW_COUNT_MIN;
use pellucid_query::exec::table_index::TableIndex;
use pellucid_query::expression::{Expression, Kind, Node, Source, Step};
use pellucid_query::plan::code_ranges::LOOKED_UP_MAX;
use pellucid_query::plan::{Candidate, index_range};
use pellucid_query::walk::for_each;
use pellucid_query::{Column, Walk, key_range};
use pellucid_record::value::OwnedZone;
use pellucid_record::view::Slot;
use pellucid_record::{Corrupt, Kind as RecordKind, Shapes, Value};
use pellucid_store::Row;
use pyo3::prelude::*;

use crate::expression::handle::Expression as Handle;
use crate::expression::method;
use crate::index::describe;
use crate::query::handle::Query;
use crate::store_errors;
use crate::table::handle::Table;
use crate::values::table_ref::TableRef;
use crate::work::walks::{Queried, Stop, Walked, Work, WorkResult, over};

/// The hints on a query, a line each. `is_scan`: no index serves it.
pub fn of(query: &Bound<'_, Query>, table: &Bound<'_, Table>, is_scan: bool) -> PyResult<Vec<String>> {
    let facts = Facts { query: query.clone().unbind(), of: table.clone().unbind(), is_scan };
    query.py().import("pellucid.hints")?.call_method1("of", (facts,))?.extract()
}

/// The names in nested dicts are those of this many rows: to reach a dict takes longer than to see
/// the shape of a row.
const NESTED_ROW_COUNT_MAX: u64 = 10_000;

/// The name of an index, its parts, its condition, the number of its entries, and whether it is
/// ready.
type IndexFacts = (String, Vec<Handle>, Option<Handle>, u64, bool);
/// Expressions, and the kinds of the first of them that answer the question; None: any kind.
type KindQuery<'py> = (Vec<Bound<'py, Handle>>, Option<BTreeSet<String>>);
/// Whether the question was answered, and else the kinds that were met: those of the first
/// expression if it is alone, else those of the other ones together in the rows that have them.
type Answer = (bool, Vec<Vec<&'static str>>);

/// A query, and what is asked about it, its table and its expressions.
#[pyclass(frozen, module = "pellucid")]
struct Facts {
    query: Py<Query>,
    of: Py<Table>,
    #[pyo3(get)]
    is_scan: bool,
}

#[pymethods]
impl Facts {
    #[classattr]
    const SCAN_ROW_COUNT: u64 = ROW_COUNT_MIN;
    #[classattr]
    const ISIN_COUNT_MAX: usize = LOOKED_UP_MAX;

    #[getter]
    fn table<'py>(&self, py: Python<'py>) -> Bound<'py, Table> {
        self.of.bind(py).clone()
    }

    /// Whether the table exists.
    fn has_table(&self, py: Python<'_>) -> PyResult<bool> {
        Ok(self.of.bind(py).source(Walked::ByOne)?.is_some())
    }

    /// The names of all tables.
    fn table_names(&self, py: Python<'_>) -> PyResult<Vec<String>> {
        let tables = self.of.bind(py).get().core().snapshot(py)?.tables();
        let tables = tables.map_err(|error| store_errors::of_store(py, error))?;
        Ok(tables.into_iter().map(|(name, _)| name).collect())
    }

    #[getter]
    fn conditions(&self) -> Vec<Handle> {
        key_range::parts(&self.query.get().spec.all_conditions()).into_iter().map(Handle::of).collect()
    }

    #[getter]
    fn order(&self) -> Vec<Handle> {
        self.query.get().spec.order.iter().map(|(node, _)| Handle::of(node.clone())).collect()
    }

    #[getter]
    fn chosen(&self) -> Vec<Handle> {
        self.query.get().spec.chosen.iter().flatten().map(|(_, node)| Handle::of(node.clone())).collect()
    }

    /// The indexes of the table, without those that a newer version made.
    fn indexes(&self, py: Python<'_>) -> PyResult<Vec<IndexFacts>> {
        let described = |(info, entries)| {
            let TableIndex { info, definition, .. } = TableIndex::parse(info)?;
            let parts = definition.parts.into_iter().map(|(node, _)| Handle::of(node)).collect();
            let condition = definition.condition.map(Handle::of);
            Some((info.name.to_string(), parts, condition, entries, info.building.is_none()))
        };
        let found = describe::counted(self.of.bind(py))?;
        Ok(found.into_iter().filter_map(described).collect())
    }

    /// The name of the expression's form, and its parts.
    #[staticmethod]
    fn form(expression: &Bound<'_, Handle>) -> (&'static str, Vec<Handle>) {
        let kind = expression.get().node().kind();
        (word(kind), kind.parts().into_iter().map(|part| Handle::of(part.clone())).collect())
    }

    /// The steps of a field's path: the name of each, if it is one, and the field that it leads to.
    #[staticmethod]
    fn steps(field: &Bound<'_, Handle>) -> Vec<(Option<String>, Handle)> {
        let Kind::Field(Source::Record, path) = field.get().node().kind() else { return Vec::new() };
        let step = |(place, step): (usize, &Step)| {
            let name = if let Step::Field(name) = step { Some(name.to_string()) } else { None };
            Some((name, Handle::of(Expression::field(path.get(..=place)?.to_vec()))))
        };
        path.iter().enumerate().filter_map(step).collect()
    }

    /// How many values stand in an expression itself, and their kinds.
    #[staticmethod]
    fn literals(expression: &Bound<'_, Handle>) -> (usize, BTreeSet<&'static str>) {
        let values = match expression.get().node().kind() {
            Kind::Literal(value) => std::slice::from_ref(value),
            Kind::IsIn(_, values) => values,
            _ => &[],
        };
        (values.len(), values.iter().map(kind_of).collect())
    }

    /// Whether a row may have several values of the expression.
    #[staticmethod]
    fn branches(expression: &Bound<'_, Handle>) -> bool {
        expression.get().node().branches()
    }

    /// Whether expressions have a method of this name.
    #[staticmethod]
    fn is_method(py: Python<'_>, name: &str) -> bool {
        method::is_name(py, name)
    }

    /// Whether an index over `parts` would serve these conditions, which all have to be true.
    /// `has_all`: each row has an entry in it.
    #[staticmethod]
    fn serves(
        parts: Vec<Bound<'_, Handle>>,
        condition: Option<&Bound<'_, Handle>>,
        has_all: bool,
        conditions: Vec<Bound<'_, Handle>>,
    ) -> bool {
        let node = |expression: &Bound<'_, Handle>| expression.get().node().clone();
        let index = Candidate {
            name: String::new(),
            parts: parts.iter().map(|part| (node(part), false)).collect(),
            condition: condition.map(node),
            entries: u64::from(has_all),
            is_unique: false,
        };
        let conditions: Vec<Node> = conditions.iter().map(node).collect();
        index_range(&index, &key_range::parts(&conditions), 1)
            .is_some_and(|index_range| index_range.point_count > 0 || index_range.has_code_range)
    }

    /// Walks over the rows of the table until each question is answered. None if there is no row.
    fn kinds(&self, py: Python<'_>, questions: Vec<KindQuery<'_>>) -> PyResult<Option<Vec<Answer>>> {
        let mut asked = Vec::with_capacity(questions.len());
        for (expressions, wanted) in questions {
            let columns: Result<Vec<_>, _> =
                expressions.iter().map(|expression| Column::new(expression.get().node())).collect();
            // Of a pattern that cannot be matched, nothing can be said.
            let is_answered = columns.is_err();
            let columns = columns.unwrap_or_default();
            asked.push(Question { columns, wanted, met: BTreeSet::new(), is_answered });
        }
        let table = self.of.bind(py);
        let Some(source) = table.source(Walked::ByOne)? else { return Ok(None) };
        let Some(asked) = over(py, &TableRef::new(table), source, Questions(asked))? else { return Ok(None) };
        Ok(Some(
            asked.into_iter().map(|asked| (asked.is_answered, asked.met.into_iter().collect())).collect(),
        ))
    }

    /// The names of the fields in the dicts that an expression gives; without one, in the rows.
    fn names(&self, py: Python<'_>, expression: Option<&Bound<'_, Handle>>) -> PyResult<BTreeSet<String>> {
        let node =
            expression.map_or_else(|| Expression::field(Vec::new()), |given| given.get().node().clone());
        let table = self.of.bind(py);
        match (Column::new(&node), table.source(Walked::ByOne)?) {
            (Ok(column), Some(source)) => {
                let row_count_max = if expression.is_none() { u64::MAX } else { NESTED_ROW_COUNT_MAX };
                over(py, &TableRef::new(table), source, Names { column, row_count_max })
            }
            _ => Ok(BTreeSet::new()),
        }
    }
}

fn word(kind: &Kind) -> &'static str {
    match kind {
        Kind::Field(Source::Record, _) => "field",
        Kind::Field(Source::Key, _) => "key",
        Kind::Literal(_) => "literal",
        Kind::Compare(comparison, ..) => comparison.sign(),
        Kind::And(_) => "and",
        Kind::Or(_) => "or",
        Kind::Not(_) => "not",
        Kind::Arithmetic(operation, ..) => operation.sign(),
        Kind::Negative(_) => "negative",
        Kind::Between(..) => "between",
        Kind::IsIn(..) => "isin",
        Kind::Has(part, ..) => part.word(),
        Kind::Matches(..) => "matches",
        Kind::Exists(_) => "exists",
        Kind::IsNone(_) => "is_none",
        Kind::Call(function, _) => function.word(),
    }
}

struct Question {
    columns: Vec<Column>,
    wanted: Option<BTreeSet<String>>,
    met: BTreeSet<Vec<&'static str>>,
    is_answered: bool,
}

impl Question {
    fn meet<S: Shapes>(&mut self, row: &Row<'_>, shapes: &S) -> Result<(), Corrupt> {
        let Self { columns, wanted, met, is_answered } = self;
        let Some((first, rest)) = columns.split_first_mut() else { return Ok(()) };
        first.visit(row, shapes, &mut |found| {
            if let Some(kind) = kind_found(found, shapes)? {
                *is_answered |= wanted.as_ref().is_none_or(|wanted| wanted.contains(kind));
                if rest.is_empty() && !met.contains(&[kind][..]) {
                    met.insert(vec![kind]);
                }
            }
            Ok(())
        })?;
        if *is_answered || rest.is_empty() {
            return Ok(());
        }
        meet_together(rest, row, shapes, &mut Vec::new(), met)
    }
}

fn meet_together<S: Shapes>(
    columns: &mut [Column],
    row: &Row<'_>,
    shapes: &S,
    kinds: &mut Vec<&'static str>,
    met: &mut BTreeSet<Vec<&'static str>>,
) -> Result<(), Corrupt> {
    let Some((column, rest)) = columns.split_first_mut() else {
        if !met.contains(&kinds[..]) {
            met.insert(kinds.clone());
        }
        return Ok(());
    };
    column.visit(row, shapes, &mut |found| {
        if let Some(kind) = kind_found(found, shapes)? {
            kinds.push(kind);
            meet_together(rest, row, shapes, kinds, met)?;
            kinds.pop();
        }
        Ok(())
    })
}

struct Questions(Vec<Question>);

impl Work for Questions {
    /// The answers; None if there is no row.
    type Result = Option<Vec<Question>>;

    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let mut is_empty = true;
        for_each::<()>(rows, stop.check(), |row| {
            is_empty = false;
            let mut is_done = true;
            for question in self.0.iter_mut().filter(|question| !question.is_answered) {
                // A damaged value may be of any kind.
                question.is_answered |= question.meet(&row, shapes).is_err();
                is_done &= question.is_answered;
            }
            if is_done { ControlFlow::Break(Ok(())) } else { ControlFlow::Continue(()) }
        })?;
        Ok((!is_empty).then_some(self.0))
    }
}

struct Names {
    column: Column,
    row_count_max: u64,
}

impl Work for Names {
    type Result = BTreeSet<String>;

    fn run<S: Shapes>(mut self, rows: &mut impl Walk, shapes: &S, stop: Stop<'_>) -> WorkResult<Self> {
        let (mut names, mut last, mut row_count) = (BTreeSet::new(), None, 0);
        for_each::<()>(rows, stop.check(), |row| {
            // A damaged record adds no names.
            let _ = self.column.visit(&row, shapes, &mut |found| {
                let Found::Slot(Slot::Container(dict), record) = found else { return Ok(()) };
                if dict.kind == RecordKind::Shaped && last.replace(dict.shape) != Some(dict.shape) {
                    let shape = shapes.shape(dict.shape);
                    names.extend(shape.iter().flat_map(|shape| shape.names()).map(ToString::to_string));
                }
                if dict.kind == RecordKind::Keyed {
                    for entry in (0..dict.count).step_by(2) {
                        if let Slot::Str(name) = dict.slot(record, shapes, entry)? {
                            names.extend(std::str::from_utf8(name).ok().map(str::to_owned));
                        }
                    }
                }
                Ok(())
            });
            row_count += 1;
            if row_count == self.row_count_max {
                ControlFlow::Break(Ok(()))
            } else {
                ControlFlow::Continue(())
            }
        })?;
        Ok(names)
    }
}

/// The name of a value's type in Python, or of its part that compares with others of that part.
fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::None => "None",
        Value::Bool(_) => "bool",
        Value::Int(_) | Value::BigInt(_) => "int",
        Value::Float(_) => "float",
        Value::Decimal(_) => "Decimal",
        Value::Complex(..) => "complex",
        Value::Str(_) | Value::Surrogates(_) => "str",
        Value::Bytes(_) | Value::Bytearray(_) => "bytes",
        Value::Date(_) => "date",
        Value::Datetime(..) => "naive datetime",
        Value::Aware { zone: OwnedZone::Key(key), .. } if key != "UTC" => "datetime of a ZoneInfo",
        Value::Aware { .. } => "aware datetime",
        Value::Time(..) => "time",
        Value::Timedelta(_) => "timedelta",
        Value::Uuid(_) => "UUID",
        Value::List(_) => "list",
        Value::Tuple(_) => "tuple",
        Value::Set(_) | Value::FrozenSet(_) => "set",
        Value::Dict(_) => "dict",
        _ => "other",
    }
}

/// The kind of what was found; None if it is missing.
fn kind_found<S: Shapes + ?Sized>(found: &Found<'_>, shapes: &S) -> Result<Option<&'static str>, Corrupt> {
    Ok(Some(match found {
        Found::Missing => return Ok(None),
        Found::Slot(Slot::None, _) => "None",
        Found::Slot(Slot::Int(_), _) => "int",
        Found::Slot(Slot::Float(_), _) => "float",
        Found::Slot(Slot::Bool(_), _) => "bool",
        Found::Slot(Slot::Str(_), _) => "str",
        Found::Slot(Slot::Container(container), _) => match container.kind {
            RecordKind::Tuple => "tuple",
            RecordKind::Set | RecordKind::FrozenSet => "set",
            kind if kind.is_dict() => "dict",
            _ => "list",
        },
        found => return Ok(found.to_value(shapes)?.as_ref().map(kind_of)),
    }))
}
