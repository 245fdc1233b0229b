//! The class `Expression`: a condition or a computed value, built with Python operators.
//!
//! `F.age >= 21` makes an [`Expression`], a description that a query runs later, without Python.
//! `==` makes a condition, too, so `same_as` tests for equality. `operand.rs` makes expressions of
//! Python values, `python_text.rs` shows them as Python code; `pellucid-query` evaluates them.

use std::hash::{DefaultHasher, Hash, Hasher};

use pellucid_query::Pattern;
use pellucid_query::expression::{
    self, Comparison, DEPTH_MAX, Function, Kind, Node, Operation, Part, Source, Step,
};
use pellucid_record::Value;
use pyo3::basic::CompareOp;
use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyFrozenSet, PyList, PySet, PyString, PyTuple};

use crate::errors;
use crate::expression::aggregate::{self, Aggregate};
use crate::expression::operand::{condition, key_step, operand, refuse_condition, term, values_of};
use crate::expression::sort_by::SortBy;
use crate::expression::{method, python_text, words};

/// A condition or computed value over the fields of a record, built from `F` and operators.
///
/// `F.age` and `F["age"]` are the field `age`, `F.name.last` is a nested field, `F.parts[0]` an
/// element of a list, `F.tags.each()` any of its elements, and `pellucid.KEY` the row's key. An
/// attribute is always a field, whatever its name: `F.year` is the field `year`. A call applies the
/// last name as a function: `F.born.year()` is the year of `born`.
///
/// An expression is neither true nor false by itself. Write `&`, `|` and `~` for `and`, `or` and
/// `not`, and put comparisons in parentheses, since these operators bind tighter. If a field is
/// missing or has an unlike type, every comparison with it is False, and `!=` is exactly `~(==)`.
/// `same_as` compares two expressions. `str` gives the text that `pellucid.parse` reads.
///
/// >>> from pellucid import F
/// >>> (F.age >= 21) & F.name.last.startswith("B")
/// (F.age >= 21) & F.name.last.startswith('B')
/// >>> print((F.age >= 21) & F.name.last.startswith("B"))
/// age >= 21 and name.last startswith 'B'
#[pyclass(frozen, module = "pellucid", name = "Expression")]
pub struct Expression {
    pub(super) node: Node,
    /// Whether its last step is an attribute, so that a call may apply it as a function.
    is_attribute: bool,
}

/// An expression as Python code, for messages.
pub fn shown(py: Python<'_>, node: &Node) -> String {
    python_text::of(py, node).unwrap_or_else(|_| node.to_string())
}

/// Makes an expression of this kind.
///
/// # Errors
/// `ValueError` if it nests too deep.
fn made(kind: Kind) -> PyResult<Expression> {
    match expression::Expression::new(kind) {
        Ok(node) => Ok(Expression::of(node)),
        Err(error) => Err(errors::value_error(error.to_string())),
    }
}

impl Expression {
    /// The expression for the whole record, or for the row's key.
    pub fn root(source: Source) -> PyResult<Self> {
        made(Kind::Field(source, Vec::new()))
    }

    /// The Python object for a node.
    pub fn of(node: Node) -> Self {
        Self { node, is_attribute: false }
    }

    /// The path up to its last name, and that name, if a call may apply it as a function: `F.born`
    /// and `year` for `F.born.year`.
    fn as_call(&self) -> Option<(Self, &str)> {
        let Kind::Field(source, path) = self.node.kind() else { return None };
        let (Step::Field(name), above) = path.split_last()? else { return None };
        let above = made(Kind::Field(*source, above.to_vec())).ok()?;
        self.is_attribute.then_some((above, name))
    }

    /// The call that a user may have meant, for messages: `F.born.year()` for `F.born.year`.
    pub fn meant_call(&self, py: Python<'_>) -> Option<String> {
        let (above, name) = self.as_call()?;
        method::is_name(py, name).then(|| format!("{}.{name}()", shown(py, &above.node)))
    }

    /// The node of the expression.
    pub fn node(&self) -> &Node {
        &self.node
    }

    fn compare(&self, comparison: Comparison, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        let is_bare = !other.is_exact_instance_of::<Self>();
        let other = operand(other)?;
        // Users seldom compare such a condition; mostly, a comparison lacks its parentheses.
        let is_condition = matches!(self.node.kind(), Kind::And(_) | Kind::Or(_) | Kind::Not(_));
        if is_condition && is_bare && !matches!(other.kind(), Kind::Literal(Value::Bool(_))) {
            return Err(errors::type_error(format!(
                "the condition ({}) is compared with {}; &, | and ~ bind tighter than comparisons, which stand in \
                 parentheses: (F.a >= 1) & (F.b == 2)",
                self.node.brief(),
                other.brief()
            )));
        }
        made(Kind::Compare(comparison, self.node.clone(), other))
    }

    fn arithmetic(&self, operation: Operation, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        made(Kind::Arithmetic(operation, self.node.clone(), term(operation, other)?))
    }

    fn reflected(&self, operation: Operation, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        made(Kind::Arithmetic(operation, term(operation, other)?, self.node.clone()))
    }

    /// A search for `piece` in a string, in bytes or, with `Anywhere`, in a container. For the
    /// start and the end, `piece` must be text, since nothing else could be found there.
    fn has(&self, part: Part, piece: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (field, word) = (python_text::short(&self.node), part.word());
        // Python's own str takes tuples.
        let is_several = piece.is_instance_of::<PyTuple>()
            || piece.is_instance_of::<PyList>()
            || piece.is_instance_of::<PySet>()
            || piece.is_instance_of::<PyFrozenSet>();
        let refused = |instead: &str| {
            let kind = errors::a_kind(piece)?;
            Err(errors::type_error(format!("{word}() takes one str, or bytes, not {kind}{instead}")))
        };
        if part != Part::Anywhere && is_several {
            return refused(&format!("; join several by |: {field}.{word}(\"a\") | {field}.{word}(\"b\")"));
        }
        let node = operand(piece)?;
        if let Kind::Literal(value) = node.kind()
            && !part.may_be(value)
        {
            return refused("");
        }
        made(Kind::Has(part, self.node.clone(), node))
    }

    fn call(&self, function: Function) -> PyResult<Self> {
        made(Kind::Call(function, self.node.clone()))
    }

    /// The path with one more step; the text says why there is none.
    fn stepped(&self, step: Step) -> Result<Self, String> {
        let Kind::Field(source, path) = self.node.kind() else {
            return Err(format!("{} is computed, and has no parts to choose from", self.node.brief()));
        };
        if *source == Source::Key && !matches!(step, Step::Index(_)) {
            return Err("a row's key has elements, by their index: KEY[0]".to_owned());
        }
        let path = path.iter().cloned().chain([step]).collect();
        made(Kind::Field(*source, path))
            .map_err(|_| format!("a path has {DEPTH_MAX} steps at most; records nest no deeper than 64"))
    }
}

fn is_dunder(name: &str) -> bool {
    name.starts_with("__") && name.ends_with("__")
}

fn no_assignment(py: Python<'_>, node: &Node) -> String {
    format!(
        "{} stands for the field of any record, and none of them is at hand: query.update(age=3) sets a field in the rows of a query, \
         record.age = 3 in one",
        shown(py, node)
    )
}

fn no_floor_division(node: &Node) -> PyErr {
    let node = node.brief();
    errors::type_error(format!(
        "expressions have + - * / %, and no //; for whole numbers, ({node} - {node} % b) / b is the same, as a float"
    ))
}

#[pymethods]
impl Expression {
    /// None makes NumPy's scalars leave operators with an expression to the expression.
    #[classattr]
    #[pyo3(name = "__array_ufunc__")]
    fn array_ufunc() -> Option<()> {
        None
    }

    fn __getattribute__<'py>(
        slf: &Bound<'py, Self>,
        name: &Bound<'py, PyString>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let expression = slf.get();
        // Dunder names, which the interpreter and libraries look up, are not fields.
        let is_field = matches!(expression.node.kind(), Kind::Field(Source::Record, _))
            && name.to_str().is_ok_and(|name| !is_dunder(name));
        if is_field && let Ok(field) = expression.stepped(Step::Field(name.to_str()?.into())) {
            return Ok(Bound::new(slf.py(), Self { is_attribute: true, ..field })?.into_any());
        }
        let object = slf.py().get_type::<PyAny>();
        method::attribute(slf, name, object.call_method1("__getattribute__", (slf, name))?)
    }

    fn __getattr__(&self, name: &Bound<'_, PyString>) -> PyResult<Self> {
        let Ok(text) = name.to_str() else { return self.__getitem__(name.as_any()) };
        if is_dunder(text) {
            return Err(PyAttributeError::new_err(format!("an expression has no attribute {text:?}")));
        }
        self.stepped(Step::Field(text.into())).map_err(|why| {
            let hint = words::of_function(text).map_or_else(String::new, |instead| format!("; {instead}"));
            PyAttributeError::new_err(format!("{why}{hint}"))
        })
    }

    fn __getitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.stepped(key_step(key)?).map_err(errors::type_error)
    }

    fn __setattr__(
        &self,
        py: Python<'_>,
        name: &Bound<'_, PyString>,
        _value: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        let field =
            self.stepped(Step::Field(name.to_string_lossy().into())).map_err(PyAttributeError::new_err)?;
        Err(PyAttributeError::new_err(no_assignment(py, &field.node)))
    }

    fn __delattr__(&self, py: Python<'_>, name: &Bound<'_, PyString>) -> PyResult<()> {
        self.__setattr__(py, name, name.as_any())
    }

    fn __setitem__(&self, key: &Bound<'_, PyAny>, _value: &Bound<'_, PyAny>) -> PyResult<()> {
        let field = self.__getitem__(key)?;
        Err(errors::type_error(no_assignment(key.py(), &field.node)))
    }

    fn __delitem__(&self, key: &Bound<'_, PyAny>) -> PyResult<()> {
        self.__setitem__(key, key)
    }

    fn __iter__(&self) -> PyResult<()> {
        Err(errors::type_error(format!(
            "an expression is no list to loop over; {}.each() stands for each element in a condition",
            python_text::short(&self.node)
        )))
    }

    #[pyo3(signature = (_digits=None, /))]
    fn __round__(&self, _digits: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        Err(errors::type_error(format!(
            "expressions have no round(); {0} - {0} % 1 cuts a positive number off, .filter(lambda row: ...) computes it in Python",
            python_text::short(&self.node)
        )))
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __xor__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(errors::type_error(
            "expressions have & | ~, and no ^; that one of two is true is (a | b) & ~(a & b)",
        ))
    }

    fn __rxor__(&self, other: &Bound<'_, PyAny>) -> PyResult<()> {
        self.__xor__(other)
    }

    fn __format__(&self, specification: &Bound<'_, PyString>) -> PyResult<String> {
        if specification.is_empty()? {
            return Ok(self.__str__());
        }
        Err(errors::type_error(format!(
            "the expression ({}) has no value to format before a record is there; its text is str(expression)",
            self.node.brief()
        )))
    }

    fn __contains__(&self, element: &Bound<'_, PyAny>) -> PyResult<bool> {
        let (field, element) = (python_text::short(&self.node), element.repr()?);
        Err(errors::type_error(format!(
            "`in` has no answer before a record is there; write {field}.contains({element})"
        )))
    }

    /// Applies the last name of a path as a function.
    #[pyo3(signature = (*arguments, **keywords))]
    fn __call__<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        keywords: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        if let Some((above, name)) = slf.get().as_call()
            && let Some(method) = method::of_name(slf.py(), name)?
        {
            let above = Bound::new(slf.py(), above)?.into_any();
            let arguments =
                PyTuple::new(slf.py(), std::iter::once(above).chain(arguments.iter()).collect::<Vec<_>>())?;
            return method.call(arguments, keywords);
        }
        let node = &slf.get().node;
        let shown = shown(slf.py(), node);
        let Kind::Field(source, path) = node.kind() else {
            return Err(errors::type_error(format!("the expression {shown} is no function")));
        };
        if *source == Source::Key {
            return Err(errors::type_error(format!(
                "{shown} is no function: KEY is the row's key, KEY[0] an element of it"
            )));
        }
        if path.is_empty() {
            return Err(errors::type_error(
                "F is no function: F.age is the field of a record, F[\"two words\"] one of any name, F itself the record",
            ));
        }
        if let Some(Step::Field(name)) = path.last()
            && !slf.get().is_attribute
            && method::is_name(slf.py(), name)
        {
            return Err(errors::type_error(format!(
                "{shown} is a field: a name in brackets is no function; write it after a dot, F.age.{name}()"
            )));
        }
        let hint = match path.last() {
            Some(Step::Field(name)) => match words::of_function(name) {
                Some(instead) => format!("; {instead}"),
                None => errors::close_match(slf.py(), name, errors::public_names(slf.as_any())?)?
                    .map_or_else(String::new, |close| format!("; did you mean {close}()?")),
            },
            _ => String::new(),
        };
        Err(errors::type_error(format!("{shown} is a field, and no function of expressions{hint}")))
    }

    fn __bool__(&self) -> PyResult<bool> {
        if let Kind::Compare(Comparison::Equal, field, value) = self.node.kind()
            && matches!((field.kind(), value.kind()), (Kind::Field(..), Kind::Literal(_)))
        {
            return Err(errors::type_error(format!(
                "the expression ({}) is neither true nor false before a record is there; in place of `in`, write {}.isin([...]), and &, \
                 | and ~, with parentheses, in place of `and`, `or` and `not`",
                self.node.brief(),
                python_text::short(field)
            )));
        }
        Err(errors::type_error(format!(
            "the expression ({}) is neither true nor false before a record is there; join conditions with &, | and ~ instead of \
             `and`, `or` and `not`, put comparisons in parentheses, (F.a >= 1) & (F.b == 2), and write F.a.between(1, 5) \
             instead of 1 <= F.a <= 5",
            self.node.brief()
        )))
    }

    fn __richcmp__(&self, other: &Bound<'_, PyAny>, operation: CompareOp) -> PyResult<Self> {
        let comparison = match operation {
            CompareOp::Eq => Comparison::Equal,
            CompareOp::Ne => Comparison::NotEqual,
            CompareOp::Lt => Comparison::Less,
            CompareOp::Le => Comparison::LessOrEqual,
            CompareOp::Gt => Comparison::Greater,
            CompareOp::Ge => Comparison::GreaterOrEqual,
        };
        self.compare(comparison, other)
    }

    fn __hash__(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.node.hash(&mut hasher);
        hasher.finish()
    }

    fn __and__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        made(Kind::all(vec![self.node.clone(), condition(other, "&")?]))
    }

    fn __rand__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        made(Kind::all(vec![condition(other, "&")?, self.node.clone()]))
    }

    fn __or__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        made(Kind::any(vec![self.node.clone(), condition(other, "|")?]))
    }

    fn __ror__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        made(Kind::any(vec![condition(other, "|")?, self.node.clone()]))
    }

    fn __invert__(&self) -> PyResult<Self> {
        made(Kind::Not(self.node.clone()))
    }

    fn __neg__(&self) -> PyResult<Self> {
        made(Kind::Negative(self.node.clone()))
    }

    fn __abs__(&self) -> PyResult<Self> {
        self.call(Function::Abs)
    }

    fn __floordiv__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(no_floor_division(&self.node))
    }

    fn __rfloordiv__(&self, _other: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(no_floor_division(&self.node))
    }

    fn __pow__(&self, _exponent: &Bound<'_, PyAny>, _modulus: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(errors::type_error(format!(
            "expressions have + - * / %, and no **; {} * {} is a square",
            self.node.brief(),
            self.node.brief()
        )))
    }

    fn __len__(&self) -> PyResult<usize> {
        Err(errors::type_error(format!(
            "len() has no answer before a record is there; write {}.length()",
            python_text::short(&self.node)
        )))
    }

    fn __add__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.arithmetic(Operation::Add, other)
    }

    fn __radd__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.reflected(Operation::Add, other)
    }

    fn __sub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.arithmetic(Operation::Subtract, other)
    }

    fn __rsub__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.reflected(Operation::Subtract, other)
    }

    fn __mul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.arithmetic(Operation::Multiply, other)
    }

    fn __rmul__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.reflected(Operation::Multiply, other)
    }

    fn __truediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.arithmetic(Operation::Divide, other)
    }

    fn __rtruediv__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.reflected(Operation::Divide, other)
    }

    fn __mod__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.arithmetic(Operation::Remainder, other)
    }

    fn __rmod__(&self, other: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.reflected(Operation::Remainder, other)
    }

    /// Return the condition that the value lies between two values, both included.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.age.between(20, 30))
    /// age between 20 and 30
    fn between(&self, least: &Bound<'_, PyAny>, greatest: &Bound<'_, PyAny>) -> PyResult<Self> {
        made(Kind::Between(self.node.clone(), operand(least)?, operand(greatest)?))
    }

    /// Return the condition that the value equals any of these values.
    ///
    /// `values` is any iterable. It is read at once; the values of a set get a fixed order. Raises
    /// `TypeError` for a str, since each of its characters would be a value.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.city.isin(["Bath", "York"]))
    /// city in ['Bath', 'York']
    #[pyo3(signature = (values, *others), text_signature = "($self, values)")]
    fn isin(&self, values: &Bound<'_, PyAny>, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        if !others.is_empty() {
            return Err(errors::type_error(format!(
                "isin() takes its values in one list: isin([{}, {}])",
                errors::brief(values),
                others.iter().map(|other| errors::brief(&other)).collect::<Vec<_>>().join(", ")
            )));
        }
        made(Kind::IsIn(self.node.clone(), values_of(values)?))
    }

    /// Return the condition that a string or bytes begins with `prefix`.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.name.startswith("B"))
    /// name startswith 'B'
    #[pyo3(signature = (prefix, *others), text_signature = "($self, prefix)")]
    fn startswith(&self, prefix: &Bound<'_, PyAny>, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        // Unlike Python's own method, it takes only one prefix and no position.
        self.has(Part::Start, if others.is_empty() { prefix } else { others.as_any() })
    }

    /// Return the condition that a string or bytes ends with `suffix`.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.name.endswith("n"))
    /// name endswith 'n'
    #[pyo3(signature = (suffix, *others), text_signature = "($self, suffix)")]
    fn endswith(&self, suffix: &Bound<'_, PyAny>, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        // Unlike Python's own method, it takes only one suffix and no position.
        self.has(Part::End, if others.is_empty() { suffix } else { others.as_any() })
    }

    /// Return the condition that the value contains `part`: a string contains a string, a list,
    /// tuple or set an element, a dict a key.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.tags.contains("a"))
    /// tags contains 'a'
    #[pyo3(signature = (part, *others), text_signature = "($self, part)")]
    fn contains(&self, part: &Bound<'_, PyAny>, others: &Bound<'_, PyTuple>) -> PyResult<Self> {
        if !others.is_empty() {
            let field = python_text::short(&self.node);
            return Err(errors::type_error(format!(
                "contains() takes one value; join several by &, or by | for any of them: {field}.contains(\"a\") & {field}.contains(\"b\")"
            )));
        }
        self.has(Part::Anywhere, part)
    }

    /// Return the condition that a regular expression matches anywhere in a string.
    ///
    /// The syntax is that of Python's `re` without backreferences and lookaround; it finds what
    /// `re.search` finds, in linear time. Raises `ValueError` for other patterns. `^` and `$`
    /// anchor.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.name.matches("^B.*n$"))
    /// name matches '^B.*n$'
    #[pyo3(signature = (pattern, *flags, **named), text_signature = "($self, pattern)")]
    fn matches(
        &self,
        pattern: &Bound<'_, PyAny>,
        flags: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        if !flags.is_empty() || named.is_some() {
            return Err(errors::type_error(
                "matches() takes the pattern alone; flags stand in it: \"(?i)^b\" for re.I, (?m) for re.M, (?s) for re.S, (?x) for re.X",
            ));
        }
        let text = errors::argument(
            pattern,
            pattern.cast::<PyString>().map_err(PyErr::from),
            "pattern",
            "a str, the regular expression",
        )?;
        let text = errors::utf8(text, "pattern", "no regular expression can have")?.to_owned();
        Pattern::new(&text).map_err(|why| {
            errors::value_error(format!(
                "{} is no regular expression: {why}; those are Python's, without what takes more than linear time",
                errors::brief(pattern)
            ))
        })?;
        made(Kind::Matches(self.node.clone(), text))
    }

    /// Return the condition that the field exists; its value may be None.
    ///
    /// >>> from pellucid import F
    /// >>> print(~F.email.exists())
    /// not email exists
    fn exists(&self) -> PyResult<Self> {
        made(Kind::Exists(self.node.clone()))
    }

    /// Return the condition that the value is None. A missing field is not None.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.email.is_none())
    /// email is none
    fn is_none(&self) -> PyResult<Self> {
        made(Kind::IsNone(self.node.clone()))
    }

    /// Return how many characters a string has, bytes has bytes, or a container has elements.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.tags.length() > 2)
    /// length(tags) > 2
    fn length(&self) -> PyResult<Self> {
        self.call(Function::Length)
    }

    /// Return the string in lower case.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.email.lower() == "ann@bath.example")
    /// lower(email) == 'ann@bath.example'
    fn lower(&self) -> PyResult<Self> {
        self.call(Function::Lower)
    }

    /// Return the string in upper case.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.code.upper() == "BA1")
    /// upper(code) == 'BA1'
    fn upper(&self) -> PyResult<Self> {
        self.call(Function::Upper)
    }

    /// Return the number without its sign, as `abs(...)` does.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.balance.abs() < 1)
    /// abs(balance) < 1
    fn abs(&self) -> PyResult<Self> {
        self.call(Function::Abs)
    }

    /// Return the year of a date or datetime.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.born.year() == 2000)
    /// year(born) == 2000
    fn year(&self) -> PyResult<Self> {
        self.call(Function::Year)
    }

    /// Return the month of a date or datetime, 1 to 12.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.born.month() == 12)
    /// month(born) == 12
    fn month(&self) -> PyResult<Self> {
        self.call(Function::Month)
    }

    /// Return the day of the month of a date or datetime.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.born.day() == 31)
    /// day(born) == 31
    fn day(&self) -> PyResult<Self> {
        self.call(Function::Day)
    }

    /// Return each element of a list, tuple or set: a condition is true if it is true for any.
    ///
    /// >>> from pellucid import F
    /// >>> print(F.people.each().name == "Ann")
    /// people[*].name == 'Ann'
    fn each(&self) -> PyResult<Self> {
        self.stepped(Step::Each).map_err(errors::type_error)
    }

    /// Return a descending order for `order_by`: from the greatest to the least.
    ///
    /// >>> from pellucid import F
    /// >>> F.age.desc()
    /// F.age.desc()
    fn desc(&self) -> SortBy {
        SortBy::new(self.node.clone(), true)
    }

    /// Return an ascending order (the default) for `order_by`: from the least to the greatest.
    fn asc(&self) -> SortBy {
        SortBy::new(self.node.clone(), false)
    }

    /// Return an aggregate for `agg`: how many rows have a value there, None included.
    fn count(&self) -> PyResult<Aggregate> {
        if matches!(self.node.kind(), Kind::Field(Source::Record, path) if path.is_empty()) {
            return Err(errors::type_error(
                "F.count() counts no field: pellucid.count() counts the rows, F.age.count() those with a value there; the field is F.count",
            ));
        }
        refuse_condition(&self.node)?;
        Ok(Aggregate::new(aggregate::Kind::Count, Some(self.node.clone())))
    }

    /// Return an aggregate for `agg`: the sum of the numbers; 0 if there are none.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> sales = pellucid.open(":memory:").table("sales")
    /// >>> sales.extend([{"n": 2, "price": 5}, {"n": 1, "price": 3}])
    /// 2
    /// >>> sales.agg(total=(F.n * F.price).sum())
    /// {'total': 13}
    fn sum(&self) -> Aggregate {
        Aggregate::new(aggregate::Kind::Sum, Some(self.node.clone()))
    }

    /// Return an aggregate for `agg`: the mean of the numbers; None if there are none.
    fn mean(&self) -> Aggregate {
        Aggregate::new(aggregate::Kind::Mean, Some(self.node.clone()))
    }

    /// Return an aggregate for `agg`: the least value that is not None, in the order of keys.
    fn min(&self) -> Aggregate {
        Aggregate::new(aggregate::Kind::Least, Some(self.node.clone()))
    }

    /// Return an aggregate for `agg`: the greatest value that is not None, in the order of keys.
    fn max(&self) -> Aggregate {
        Aggregate::new(aggregate::Kind::Greatest, Some(self.node.clone()))
    }

    /// Return whether the other is the same expression. (`==` makes a condition.)
    ///
    /// >>> from pellucid import F
    /// >>> (F.age == 1).same_as(F.age == 1), (F.age == 1).same_as(F.age == 2)
    /// (True, False)
    fn same_as(&self, other: &Bound<'_, PyAny>) -> bool {
        other.cast_exact::<Self>().is_ok_and(|other| other.get().node == self.node)
    }

    fn __str__(&self) -> String {
        self.node.to_string()
    }

    fn __repr__(&self, py: Python<'_>) -> PyResult<String> {
        python_text::of(py, &self.node)
    }

    fn __reduce__<'py>(&self, py: Python<'py>) -> PyResult<(Bound<'py, PyAny>, (String,))> {
        Ok((py.import("pellucid")?.getattr("parse")?, (self.node.to_string(),)))
    }

    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }
}
