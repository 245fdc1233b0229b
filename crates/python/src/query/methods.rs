//! Defines the methods of `Query` that Python sees.

use crate::arrow::ArrowStream;
use crate::errors;
use crate::expression::handle::Expression;
use crate::expression::operand;
use crate::query::group::{self, Groups};
use crate::query::handle::Query;
use crate::query::spec::{self, sort_part};
use crate::query::{after, change, cursor, explain, pushdown, terminals, words};
use pyo3::basic::CompareOp;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyList, PyString, PyTuple};

#[pymethods]
impl Query {
    /// The rows of which all these conditions are true as well.
    #[pyo3(signature = (*conditions, **fields), text_signature = "($self, *conditions)")]
    pub fn r#where(
        &self,
        conditions: &Bound<'_, PyTuple>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        words::refuse_fields(fields)?;
        self.with(conditions.py(), |spec| {
            for condition in conditions {
                spec.conditions.push(operand::node_of(&condition)?);
            }
            Ok(())
        })
    }

    /// The rows whose fields equal these values.
    ///
    /// >>> import pellucid
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people.update(ann={"age": 30, "city": "Bath"}, bob={"age": 20, "city": "Bath"})
    /// >>> people.find(city="Bath", age=20).one()
    /// {'age': 20, 'city': 'Bath'}
    #[pyo3(signature = (*arguments, **fields), text_signature = "($self, **fields)")]
    pub fn find(&self, arguments: &Bound<'_, PyTuple>, fields: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        words::refuse_arguments(arguments)?;
        self.with(arguments.py(), |spec| {
            for (name, value) in fields.into_iter().flatten() {
                words::refuse_double_underscores("find", &name.to_string())?;
                spec.conditions.push(spec::equality(&name, &value)?);
            }
            Ok(())
        })
    }

    /// The rows for which a Python function returns something true. Slow: it runs Python code for
    /// each row.
    ///
    /// The function is called with each row that the other conditions leave, in order. An exception
    /// that it raises ends the iteration.
    pub fn filter(&self, function: &Bound<'_, PyAny>) -> PyResult<Self> {
        operand::refuse_unready(function)?;
        if function.is_callable() && !function.is_instance_of::<Expression>() {
            return self.with(function.py(), |spec| {
                spec.filters.push(function.clone().unbind());
                Ok(())
            });
        }
        Err(errors::type_error(format!(
            "filter() takes a function of a record, not {}; conditions like F.age > 20 go to where()",
            function.get_type().name()?
        )))
    }

    /// The same rows in the order of these expressions, or field paths, first to last;
    /// `F.age.desc()` reverses one.
    ///
    /// Values of unlike types are ordered as keys are: None, bytes, strings, numbers, Decimals,
    /// dates; then values without an order. Rows that lack the value come last in both directions.
    /// Rows with equal values come in the order of their keys.
    #[pyo3(signature = (*expressions, **keywords), text_signature = "($self, *expressions)")]
    pub fn order_by(
        &self,
        expressions: &Bound<'_, PyTuple>,
        keywords: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        words::refuse_orders(expressions, keywords)?;
        self.with(expressions.py(), |spec| {
            spec.order = expressions.iter().map(|part| sort_part(&part)).collect::<PyResult<_>>()?;
            if let Some((many, _)) = spec.order.iter().find(|(node, _)| node.branches()) {
                return Err(errors::value_error(format!(
                    "order_by() takes what has one value in a row, and {many} has one for each element; an index may be over these"
                )));
            }
            Ok(())
        })
    }

    /// The first `count` of these rows, at most. With `offset`, rows are skipped first, in
    /// whichever order the two are called.
    pub fn limit(&self, count: &Bound<'_, PyAny>) -> PyResult<Self> {
        let limit = spec::count_of(count, "limit")?;
        self.with(count.py(), |spec| {
            spec.limit = spec.limit.min(limit);
            Ok(())
        })
    }

    /// These rows without the first `count`.
    pub fn offset(&self, count: &Bound<'_, PyAny>) -> PyResult<Self> {
        let offset = spec::count_of(count, "offset")?;
        self.with(count.py(), |spec| {
            spec.offset = spec.offset.saturating_add(offset);
            Ok(())
        })
    }

    /// The rows that come after this one, a record of the same table that was read before: the next
    /// page. Instead of the row, its `cursor` can be given.
    ///
    /// Rows that were put or deleted meanwhile move no other row from page to page. Raises
    /// `ValueError` for a text that is no cursor of this table in this order.
    ///
    /// >>> import pellucid
    /// >>> numbers = pellucid.open(":memory:").table("numbers")
    /// >>> numbers.extend({"n": n % 3} for n in range(5))
    /// 5
    /// >>> pages = numbers.order_by("n").limit(2)
    /// >>> page = pages.to_list()
    /// >>> page, pages.after(page[-1]).to_list()
    /// ([{'n': 0}, {'n': 0}], [{'n': 1}, {'n': 1}])
    pub fn after(&self, row: &Bound<'_, PyAny>) -> PyResult<Self> {
        self.with(row.py(), |spec| {
            spec.after = Some(match row.cast::<PyString>() {
                Ok(text) => cursor::read(&text.to_string_lossy(), &self.of, row.py())?,
                Err(_) => after::After::of(row, &self.of)?,
            });
            Ok(())
        })
    }

    /// A text that stands for the place of a row in this query, for a URL: `after(cursor)` goes on
    /// there, in any process, also when the row was changed or deleted meanwhile.
    ///
    /// The text fits every query of the table in the same order, whatever its conditions. It has
    /// the row's key and the values that order it, in base64: they are not secret.
    ///
    /// >>> import pellucid
    /// >>> numbers = pellucid.open(":memory:").table("numbers")
    /// >>> numbers.extend({"n": n} for n in range(4))
    /// 4
    /// >>> pages = numbers.order_by("n").limit(2)
    /// >>> cursor = pages.cursor(pages.to_list()[-1])
    /// >>> pages.after(cursor).to_list()
    /// [{'n': 2}, {'n': 3}]
    fn cursor(slf: &Bound<'_, Self>, row: &Bound<'_, PyAny>) -> PyResult<String> {
        cursor::of(&slf.get().spec, after::After::of(row, &slf.get().of)?, &slf.get().of, slf.py())
    }

    /// Instead of records, dicts of these expressions: fields under their paths, others under the
    /// names given.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people["ann"] = {"name": {"last": "Lee"}, "age": 30}
    /// >>> people.select(F.name.last, adult=F.age >= 18).first()
    /// {'name.last': 'Lee', 'adult': True}
    #[pyo3(signature = (*expressions, **named))]
    pub fn select(
        &self,
        expressions: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        self.with(expressions.py(), |spec| {
            spec.chosen = Some(spec::chosen("select", expressions, named)?);
            Ok(())
        })
    }

    /// The rows in groups that have these expressions, or field paths, in common; see `Groups.agg`.
    #[pyo3(signature = (*expressions, **named))]
    pub fn group_by(
        slf: &Bound<'_, Self>,
        expressions: &Bound<'_, PyTuple>,
        named: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Groups> {
        Groups::new(slf, expressions, named)
    }

    /// Aggregates over all rows, in a dict: `agg(n=count(), oldest=F.age.max())`.
    #[pyo3(signature = (*arguments, **aggregates), text_signature = "($self, **aggregates)")]
    pub fn agg<'py>(
        slf: &Bound<'py, Self>,
        arguments: &Bound<'py, PyTuple>,
        aggregates: Option<&Bound<'py, PyDict>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        words::refuse_unnamed(arguments)?;
        group::whole(slf, aggregates)
    }

    /// All rows as a list: records, or the dicts that `select` makes.
    fn to_list<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::to_list(slf)
    }

    /// All rows as plain dicts (or whatever their values are), or the dicts that `select` makes.
    fn to_dicts<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::to_dicts(slf)
    }

    /// The keys of the rows, as an iterator.
    fn keys<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::iterate(slf, crate::values::views::Shows::Keys)
    }

    /// Pairs of key and record, as an iterator.
    fn items<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::iterate(slf, crate::values::views::Shows::Items)
    }

    fn __iter__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::rows(slf)
    }

    /// The first row; None if there is none.
    fn first<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::first(slf)
    }

    /// The only row. Raises `NotOneRow`, a `LookupError`, if there is no row or more than one.
    fn one<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::one(slf)
    }

    /// The first row with its key, as a pair; None if there is no row.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people.update(ann={"age": 30}, bob={"age": 20})
    /// >>> people.order_by(F.age).first_item()
    /// ('bob', {'age': 20})
    fn first_item<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::first_item(slf)
    }

    /// The only row with its key, as a pair. Raises `NotOneRow`, a `LookupError`, if there is no
    /// row or more than one.
    fn one_item<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        terminals::one_item(slf)
    }

    /// Whether there is any row.
    fn exists(slf: &Bound<'_, Self>) -> PyResult<bool> {
        terminals::exists(slf)
    }

    /// How many rows there are; with an expression or a field path, how many have it (None counts,
    /// a missing field does not).
    #[pyo3(signature = (path=None))]
    fn count<'py>(slf: &Bound<'py, Self>, path: Option<&Bound<'py, PyAny>>) -> PyResult<u64> {
        match path {
            None => terminals::count(slf),
            Some(path) => match pushdown::answer(slf, "count", path)? {
                Some(count) => count.extract(),
                None => crate::column::count(slf, path),
            },
        }
    }

    /// The sum of an expression, or of the numbers at a field path; see `Table.sum`.
    fn sum<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match pushdown::answer(slf, "sum", path)? {
            Some(sum) => Ok(sum),
            None => crate::column::sum(slf, path),
        }
    }

    /// The least value of an expression, or at a field path; see `Table.min`.
    fn min<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match pushdown::answer(slf, "min", path)? {
            Some(least) => Ok(least),
            None => crate::column::least(slf, path),
        }
    }

    /// The greatest value of an expression, or at a field path; see `Table.max`.
    fn max<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        match pushdown::answer(slf, "max", path)? {
            Some(greatest) => Ok(greatest),
            None => crate::column::greatest(slf, path),
        }
    }

    /// The mean of an expression, or of the numbers at a field path; see `Table.mean`.
    fn mean<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::column::mean(slf, path)
    }

    /// The values of an expression, or at a field path, in a list; None for a row that has none.
    fn column<'py>(
        slf: &Bound<'py, Self>,
        path: &Bound<'py, PyAny>,
    ) -> PyResult<Bound<'py, pyo3::types::PyList>> {
        crate::column::column(slf, path)
    }

    /// The rows as columns, which any library that knows Arrow takes without a copy: an
    /// `ArrowStream`.
    ///
    /// The columns are those of `select`; without `select`, all fields that any row has, in the
    /// order in which they were met. A column whose values have no common Arrow type becomes text.
    fn to_arrow<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, ArrowStream>> {
        terminals::to_arrow(slf)
    }

    /// `to_arrow()`, for a library that asks for it: `polars.DataFrame(query)`.
    #[pyo3(signature = (requested_schema=None))]
    fn __arrow_c_stream__<'py>(
        slf: &Bound<'py, Self>,
        requested_schema: Option<&Bound<'py, PyAny>>,
    ) -> PyResult<Bound<'py, PyAny>> {
        terminals::to_arrow(slf)?.call_method1("__arrow_c_stream__", (requested_schema,))
    }

    /// The rows as a DataFrame of polars.
    fn to_polars<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        crate::arrow::to_polars(&terminals::to_arrow(slf)?)
    }

    /// The rows as a DataFrame of pandas.
    fn to_pandas<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        crate::arrow::to_pandas(&terminals::to_arrow(slf)?)
    }

    /// The values of an expression, or at a field path, as an array of NumPy; see `Table.to_numpy`.
    fn to_numpy<'py>(slf: &Bound<'py, Self>, path: &Bound<'py, PyAny>) -> PyResult<Bound<'py, PyAny>> {
        crate::numpy::to_numpy(slf, path)
    }

    /// Change the rows, in one transaction: set each field to a value, or to an expression computed
    /// from the row as it was. Returns in how many rows a field was set, be it to the value that it
    /// had.
    ///
    /// If an expression gives no value, since something in it is missing, the field stays as it is.
    /// A dict as the one argument names fields by their paths: `{"address.city": "York"}`, or
    /// tuples. If the table has a type, each changed row is then made into an instance; if that
    /// raises, nothing is changed.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people.update(ann={"age": 30}, bob={"age": 20})
    /// >>> people.where(F.age > 25).update(age=F.age + 1, senior=True)
    /// 1
    /// >>> people["ann"]
    /// {'age': 31, 'senior': True}
    #[pyo3(signature = (changes=None, /, **fields))]
    fn update(
        slf: &Bound<'_, Self>,
        changes: Option<&Bound<'_, PyAny>>,
        fields: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<u64> {
        change::update(slf, changes, fields)
    }

    /// Delete the rows, in one transaction. Returns how many there were.
    fn delete(slf: &Bound<'_, Self>) -> PyResult<u64> {
        change::delete(slf)
    }

    /// What the query does, in lines for people. With `analyze`, the query is run, and the lines
    /// also say how many rows were found in what time. Notes tell what makes a query find nothing:
    /// a field that no record has, a type that no record has there, a table that does not exist.
    ///
    /// >>> import pellucid
    /// >>> from pellucid import F
    /// >>> people = pellucid.open(":memory:").table("people")
    /// >>> people["ann"] = {"age": 30}
    /// >>> print(people.where(F.agee > 25).explain())
    /// scan table "people", all 1 rows, in the order of keys
    /// filter natively: agee > 25
    /// on 1 thread
    /// note: no record in "people" has "agee"; did you mean "age"?
    #[pyo3(signature = (*, analyze=false))]
    fn explain(
        slf: &Bound<'_, Self>,
        #[pyo3(from_py_with = errors::analyze_flag)] analyze: bool,
    ) -> PyResult<String> {
        explain::explain(slf, analyze)
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __reduce__(&self) -> PyResult<()> {
        Err(words::not_pickled("a query holds"))
    }

    // A query never changes, so a copy is the query itself.
    fn __copy__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    fn __deepcopy__(slf: Py<Self>, _memo: &Bound<'_, PyAny>) -> Py<Self> {
        slf
    }

    fn __repr__(slf: &Bound<'_, Self>) -> PyResult<String> {
        let (py, this) = (slf.py(), slf.get());
        this.spec.shown(py, &this.of.table_ref(py).name(py))
    }

    fn __getattr__(slf: &Bound<'_, Self>, name: &str) -> PyResult<()> {
        Err(words::of_query(slf.as_any(), name))
    }

    // `list` asks for the length, and goes on without it.
    #[expect(clippy::unused_self, reason = "a slot")]
    fn __len__(&self) -> PyResult<usize> {
        Err(errors::type_error(
            "a query has no length before it is asked; query.count() is how many rows there are",
        ))
    }

    #[expect(clippy::unused_self, reason = "a slot")]
    fn __getitem__(&self, _index: &Bound<'_, PyAny>) -> PyResult<()> {
        Err(errors::type_error(
            "a query has no rows by their index; offset(10).limit(5) gives some, first() the first, to_list() all of them",
        ))
    }

    fn __richcmp__<'py>(
        slf: &Bound<'py, Self>,
        other: &Bound<'py, PyAny>,
        operation: CompareOp,
    ) -> PyResult<Bound<'py, PyAny>> {
        let py = slf.py();
        let is_same = slf.is(other);
        let is_rows = other.is_instance_of::<Self>() || other.is_instance_of::<PyList>();
        match operation {
            CompareOp::Eq | CompareOp::Ne if is_same => {
                Ok(PyBool::new(py, matches!(operation, CompareOp::Eq)).to_owned().into_any())
            }
            CompareOp::Eq | CompareOp::Ne if is_rows => Err(errors::type_error(
                "a query is no list of rows to compare; compare what it gives: query.to_list() == rows",
            )),
            _ => Ok(py.NotImplemented().into_bound(py)),
        }
    }

    fn __hash__(slf: &Bound<'_, Self>) -> u64 {
        slf.as_ptr() as u64
    }

    // A query has no length before it runs, and would be true like any object. To count its rows,
    // `if query` would hide a whole scan.
    #[expect(clippy::unused_self, reason = "a slot")]
    fn __bool__(&self) -> PyResult<bool> {
        Err(errors::type_error(
            "a query is neither true nor false; ask query.exists(), or query.count()".to_owned(),
        ))
    }
}
