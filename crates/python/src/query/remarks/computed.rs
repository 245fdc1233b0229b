//! Remarks on expressions that compute with values of the wrong kind.
//!
//! If that is so in every row, the query finds nothing, and nothing else says why.

use std::collections::BTreeSet;

use pellucid_query::Column;
use pellucid_query::evaluate::compute;
use pellucid_query::evaluate::found::Found;
use pellucid_query::expression::{Function, Kind, Node, Operation};
use pellucid_record::value::OwnedZone;
use pellucid_record::view::Slot;
use pellucid_record::{Corrupt, Shapes, Value};
use pellucid_store::Row;
use pyo3::prelude::*;

use crate::expression::handle::shown;
use crate::query::remarks::{kind_found, kind_of};

/// The largest number of kinds that a remark names.
const KIND_COUNT_MAX: usize = 3;

/// A computed expression, and the kinds of its operands.
pub(super) struct Computed {
    node: Node,
    form: Form,
    met: BTreeSet<Vec<&'static str>>,
    /// Whether it has given a value in some row.
    pub(super) is_met: bool,
}

enum Form {
    Two(Operation, Column, Column),
    Negative(Column),
    Call(Function, Column),
}

impl Computed {
    /// Adds all computed parts of an expression to `all`.
    pub(super) fn gather(node: &Node, all: &mut Vec<Computed>) {
        node.kind().parts().into_iter().for_each(|part| Self::gather(part, all));
        let form = match node.kind() {
            Kind::Arithmetic(operation, one, other) => {
                Column::new(one).and_then(|one| Ok(Form::Two(*operation, one, Column::new(other)?)))
            }
            Kind::Negative(part) => Column::new(part).map(Form::Negative),
            Kind::Call(function, part) => Column::new(part).map(|part| Form::Call(*function, part)),
            _ => return,
        };
        if let Ok(form) = form
            && all.iter().all(|other| other.node != *node)
        {
            all.push(Computed { node: node.clone(), form, met: BTreeSet::new(), is_met: false });
        }
    }

    pub(super) fn meet<S: Shapes>(&mut self, row: &Row<'_>, shapes: &S) {
        let Self { form, met, is_met, .. } = self;
        let visited = match form {
            Form::Two(operation, one, other) => one.visit(row, shapes, &mut |one| {
                other.visit(row, shapes, &mut |other| {
                    let made = compute::arithmetic(*operation, one, other);
                    note(&made, &[one, other], shapes, met, is_met)
                })
            }),
            Form::Negative(part) => part
                .visit(row, shapes, &mut |part| note(&compute::negative(part), &[part], shapes, met, is_met)),
            Form::Call(function, part) => part.visit(row, shapes, &mut |part| {
                note(&compute::call(*function, part, shapes), &[part], shapes, met, is_met)
            }),
        };
        // A damaged value may be of any kind.
        *is_met |= visited.is_err();
    }

    pub(super) fn remark(&self, py: Python<'_>, name: &str) -> Option<String> {
        if self.is_met || self.met.is_empty() {
            return None;
        }
        let reasons: Vec<_> = self.met.iter().take(KIND_COUNT_MAX).map(|kinds| self.reason(kinds)).collect();
        let node = shown(py, &self.node);
        Some(format!("note: {node} is missing in all records of {name:?}: {}", reasons.join(", ")))
    }

    fn reason(&self, kinds: &[&str]) -> String {
        match (&self.form, kinds) {
            (Form::Two(operation, ..), [one, other]) if may_go(*operation, one, other) => {
                raises(&format!("{one} {} {other}", operation.sign()))
            }
            (Form::Two(operation, ..), kinds) => {
                let done = match operation {
                    Operation::Add => "added",
                    Operation::Subtract => "subtracted",
                    Operation::Multiply => "multiplied",
                    Operation::Divide | Operation::Remainder => "divided",
                };
                format!("{} cannot be {done}", kinds.join(" and "))
            }
            (Form::Negative(_), [kind @ ("Decimal" | "timedelta")]) => raises(&format!("-{kind}")),
            (Form::Call(Function::Abs, _), [kind @ ("Decimal" | "timedelta")]) => {
                raises(&format!("abs({kind})"))
            }
            (Form::Negative(_), kinds) => format!("{} has no negative", kinds.concat()),
            (Form::Call(function, _), kinds) => format!("{} has no {}()", kinds.concat(), function.word()),
        }
    }
}

fn raises(what: &str) -> String {
    format!("Python raises for each {what} there, as for a division by zero")
}

/// Notes the kinds of a row's operands, if none is missing, and whether there was a result.
fn note<S: Shapes>(
    made: &Found<'_>,
    parts: &[&Found<'_>],
    shapes: &S,
    met: &mut BTreeSet<Vec<&'static str>>,
    is_met: &mut bool,
) -> Result<(), Corrupt> {
    if parts.iter().any(|part| part.is_missing()) {
        return Ok(());
    }
    if !made.is_missing() {
        *is_met = true;
        return Ok(());
    }
    let mut kinds = Vec::with_capacity(parts.len());
    for part in parts {
        let Some(kind) = exact_kind(part, shapes)? else {
            *is_met = true;
            return Ok(());
        };
        kinds.push(kind);
    }
    met.insert(kinds);
    Ok(())
}

/// The name of a value's type in Python; None if it has no name here.
fn exact_kind<S: Shapes>(found: &Found<'_>, shapes: &S) -> Result<Option<&'static str>, Corrupt> {
    if let Found::Slot(Slot::Container(_), _) = found {
        return kind_found(found, shapes);
    }
    Ok(found.to_value(shapes)?.and_then(|value| {
        Some(match &value {
            Value::Bool(_) => "bool",
            Value::Int(_) | Value::BigInt(_) => "int",
            Value::Float(_) => "float",
            Value::Decimal(_) => "Decimal",
            Value::Complex(..) => "complex",
            Value::Aware { zone: OwnedZone::Key(key), .. } if key != "UTC" => "datetime of a ZoneInfo",
            value => return kind_of(value),
        })
    }))
}

/// Whether an operation on values of these kinds may give a result, at least for some values.
fn may_go(operation: Operation, one: &str, other: &str) -> bool {
    const NUMBERS: [&str; 3] = ["bool", "int", "float"];
    const EXACT: [&str; 3] = ["bool", "int", "Decimal"];
    const TIMES: [&str; 4] = ["date", "naive datetime", "aware datetime", "timedelta"];
    let among = |kinds: &[&str]| kinds.contains(&one) && kinds.contains(&other);
    among(&NUMBERS)
        || among(&EXACT)
        || match operation {
            Operation::Add => {
                TIMES.contains(&one) && other == "timedelta" || one == "timedelta" && TIMES.contains(&other)
            }
            Operation::Subtract => TIMES.contains(&one) && other == "timedelta",
            Operation::Multiply => {
                one == "timedelta" && NUMBERS.contains(&other)
                    || NUMBERS.contains(&one) && other == "timedelta"
            }
            Operation::Divide => one == "timedelta" && (NUMBERS.contains(&other) || other == "timedelta"),
            Operation::Remainder => among(&["timedelta"]),
        }
}
