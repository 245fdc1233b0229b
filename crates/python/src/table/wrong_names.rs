//! Says what to call in place of a name that tables, databases and snapshots do not have.
//!
//! Other libraries have methods with these names. Each is a descriptor on the class that raises an
//! `AttributeError` with the hint. A `__getattr__` would know every name, but it takes away the
//! interpreter's fast path to all methods: `table.get(key)` took 35 % longer with one. `dir()` of
//! an instance and of the class leaves these names out, and so does `help()`. For a misspelt name
//! Python itself suggests another.

use pyo3::exceptions::PyAttributeError;
use pyo3::prelude::*;
use pyo3::types::{PyString, PyType};

use crate::errors;

/// What has no attribute of a name.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A table.
    Table,
    /// A database.
    Database,
    /// A snapshot.
    Snapshot,
}

/// Names, separated by blanks, and what to write instead.
type Words = &'static [(&'static str, &'static str)];

const EVERYWHERE: Words = &[
    (
        "insert insert_one add add_row set store write create create_row new",
        "table[key] = value stores a row, append(value) stores one under the next int key",
    ),
    (
        "insert_many insert_all insert_multiple add_all bulk_insert bulk_create put_many put_all executemany",
        "extend(rows) appends rows in one transaction, update(mapping) stores rows under their keys",
    ),
    (
        "upsert upsert_all insert_or_replace replace replace_one",
        "table[key] = value stores a row or replaces it, where(F.city == \"Bath\").update(age=5) changes fields",
    ),
    (
        "update_one update_many update_all modify",
        "where(F.city == \"Bath\").update(age=F.age + 1) changes the rows",
    ),
    (
        "search query select_where filter_by find_all get_by lookup exclude scan",
        "where(F.city == \"Bath\") or find(city=\"Bath\") chooses rows",
    ),
    (
        "find_one get_one get_or_none one one_or_none fetchone scalar",
        "find(city=\"Bath\").first() is the first such row or None, one() the only one",
    ),
    ("get_many get_all multi_get mget", "where(KEY.isin(keys)) finds the rows of several keys"),
    (
        "delete remove drop discard delete_one delete_many delete_where delete_all remove_all truncate",
        "del table[key] deletes a row, where(F.city == \"Bath\").delete() some, clear() all",
    ),
    (
        "to_csv to_json to_jsonl to_parquet to_sql to_sqlite to_excel to_feather dump dumps export write_csv \
         write_json write_parquet",
        "pellucid.export_to(table, \"rows.csv\") writes a file",
    ),
    (
        "read_csv read_json read_parquet from_csv from_json from_dicts from_pandas load loads import_from",
        "pellucid.import_from(\"rows.csv\", db, table=\"people\") reads a file, extend(rows) takes rows or a frame",
    ),
    (
        "commit rollback begin atomic autocommit batch write_batch session",
        "each write is a commit of its own, and `with db.transaction():` makes many of them one",
    ),
    ("groupby group aggregate pivot", "group_by(\"city\").agg(n=count()) groups"),
    (
        "columns dtypes schema info structure column_names field_names summary profile",
        "fields() lists the fields with their types",
    ),
    ("shape length nrows num_rows row_count n_rows height size", "len(table) is how many rows there are"),
    (
        "rows all fetchall fetch collect to_pylist records iterrows itertuples iter_rows docs documents find_many",
        "iterate over items() or values(), or take to_list() or to_dicts()",
    ),
    ("to_dict as_dict", "dict(table) has the rows by their keys, to_dicts() plain dicts in a list"),
    (
        "sort sort_by sort_values sorted orderby order reverse",
        "order_by(F.age.desc()) sorts, reversed(table) goes through the keys from the last on",
    ),
    (
        "loc iloc at iat row",
        "table[key] is the row under a key, offset(10).limit(5) gives rows by their place",
    ),
    ("take top nth slice skip fetchmany", "limit(count) gives the first rows, offset(count) leaves them out"),
    ("distinct unique nunique drop_duplicates counts", "value_counts(path) has each value once"),
    (
        "map apply assign with_columns with_column transform project pluck values_list",
        "select(\"name\", next=F.age + 1) computes dicts, column(path) is a list of values",
    ),
    (
        "add_column add_field set_column drop_column rename_column alter fillna dropna",
        "where().update(name=F.old) sets a field of all rows",
    ),
    (
        "join merge sql execute executescript raw",
        "DuckDB takes to_arrow(): rows = table.to_arrow(), then duckdb.sql(\"select ... from rows join ...\")",
    ),
    (
        "cursor after",
        "where().order_by(F.age) is a query, and its cursor(row) and after(cursor) begin the next page",
    ),
    ("contains has has_key exists has_row", "`key in table` says whether there is a row"),
    ("is_empty empty any", "`if table:` says whether there is any row"),
    ("avg average std var median quantile quantiles", "mean(path) is the mean, describe() has more"),
    (
        "add_index ensure_index set_index index_on create_unique_index reset_index",
        "create_index(\"by_age\", F.age) creates an index",
    ),
    ("list_indexes index_names", "indexes() lists the indexes"),
    ("subscribe on_change listen changes observe", "watch() gives the changes as they are committed"),
    ("print show display to_string to_html", "print(table) shows the first rows, a notebook a table of them"),
    ("plot hist", "to_pandas() is a DataFrame, which plots"),
];

const OF_TABLES: Words = &[
    ("rename", "db.rename_table(\"old\", \"new\") gives a table another name"),
    (
        "transaction snapshot close sync compact check backup tables path create_table drop_table rename_table",
        "that is a method of the database",
    ),
    (
        "copy clone",
        "pellucid.copy(source, target, tables=[\"people\"]) copies tables, dict(table) takes the rows",
    ),
    ("flush save persist", "each write is stored when it returns, and db.sync() makes it durable"),
    (
        "touch ttl setex expire_at",
        "put(key, value, expire=seconds) stores a row for some time, and its field \"_expires\" says until when",
    ),
    ("database db", "a table has no way back; keep the database that table() was called on"),
];

const OF_DATABASES: Words = &[
    (
        "create_table add_table get_table create_collection collection get_collection",
        "table(\"people\") is a table, and its first write creates it",
    ),
    ("table_names list_tables list_collections collections show_tables", "tables() lists the names"),
    ("delete_table remove_table", "drop_table(\"people\") deletes a table"),
    ("rename", "rename_table(\"old\", \"new\") gives a table another name"),
    ("flush save persist checkpoint", "each write is stored when it returns, and sync() makes it durable"),
    ("vacuum optimize shrink defragment gc", "compact() makes the file shorter"),
    ("verify integrity_check validate", "check() reads everything and lists what is wrong"),
    ("copy clone", "backup(path) copies the file, pellucid.copy(source, target) tables"),
    ("name filename file file_path", "path is the path of the file"),
    ("file_size disk_usage", "stats()[\"file_size\"] is the size of the file"),
    ("connect reopen open_db", "pellucid.open(path) opens a database"),
    ("is_open is_closed", "closed says whether the database was closed"),
];

const OF_SNAPSHOTS: Words = &[(
    "append extend update pop popitem setdefault clear edit increment compare_and_set put_if_absent get_or_create \
     claim put expire create_index drop_index rebuild_index transaction run watch drop_table rename_table sync backup",
    "a snapshot does not change; write through the database",
)];

/// The words of a kind.
fn words_of(kind: Kind) -> impl Iterator<Item = (&'static str, &'static str)> {
    let own: &[Words] = match kind {
        Kind::Table => &[OF_TABLES],
        Kind::Database => &[OF_DATABASES],
        Kind::Snapshot => &[OF_DATABASES, OF_SNAPSHOTS],
    };
    let all = EVERYWHERE.iter().chain(own.iter().copied().flatten());
    all.flat_map(|(words, hint)| words.split(' ').map(move |word| (word, *hint)))
}

fn what(kind: Kind) -> &'static str {
    match kind {
        Kind::Table => "a table",
        Kind::Database => "a database",
        Kind::Snapshot => "a snapshot",
    }
}

fn no_attribute(kind: Kind, name: &str, hint: Option<&str>) -> PyErr {
    let hint = hint.map_or_else(String::new, |hint| format!("; {hint}"));
    PyAttributeError::new_err(format!("{} has no attribute {name:?}{hint}", what(kind)))
}

/// A name that the class does not have.
#[pyclass(frozen, module = "pellucid", name = "WrongName")]
pub struct WrongName {
    kind: Kind,
    name: &'static str,
    hint: &'static str,
}

#[pymethods]
impl WrongName {
    fn __get__(&self, _owner: Option<&Bound<'_, PyAny>>, _class: Option<&Bound<'_, PyType>>) -> PyResult<()> {
        Err(no_attribute(self.kind, self.name, Some(self.hint)))
    }
}

/// Puts the words of a kind on its class.
///
/// # Errors
/// `MemoryError`.
pub fn install(class: &Bound<'_, PyType>, kind: Kind) -> PyResult<()> {
    for (name, hint) in words_of(kind) {
        class.setattr(PyString::intern(class.py(), name), WrongName { kind, name, hint })?;
    }
    Ok(())
}

/// The error for a name that a table, database or snapshot on a server does not have.
#[pyfunction]
#[pyo3(name = "_no_attribute")]
pub fn no_attribute_of(object: &Bound<'_, PyAny>, kind: &str, name: &str) -> PyErr {
    let kind = match kind {
        "table" => Kind::Table,
        "database" => Kind::Database,
        _ => Kind::Snapshot,
    };
    if name.starts_with('_') {
        return no_attribute(kind, name, None);
    }
    if let Some((_, hint)) = words_of(kind).find(|(word, _)| *word == name) {
        return no_attribute(kind, name, Some(hint));
    }
    let close = errors::public_names(object)
        .and_then(|names| errors::close_match(object.py(), name, names))
        .unwrap_or_default();
    no_attribute(kind, name, close.map(|close| format!("did you mean {close}?")).as_deref())
}
