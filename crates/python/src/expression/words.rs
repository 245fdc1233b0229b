//! Hints for functions that other libraries have and expressions do not.

/// Names of such functions, and what to write instead.
const FUNCTION_WORDS: &[(&str, &str)] = &[
    ("len size", "write length()"),
    ("like ilike regex regexp search match fullmatch test", "write matches(\"^B.*n$\")"),
    ("starts_with istartswith", "write startswith(), after lower() for either case"),
    ("ends_with iendswith", "write endswith(), after lower() for either case"),
    ("in_ is_in one_of", "write isin([...])"),
    ("not_in notin_", "write ~F.x.isin([...])"),
    ("is_null isnull isna is_missing", "is_none() is true of None, ~F.x.exists() of a missing field"),
    ("is_not_null notnull notna is_not_none not_null", "write F.x.exists() & ~F.x.is_none()"),
    ("has includes icontains", "write contains()"),
    ("any all any_of", "each() stands for any element, ~(F.x.each() != 1) for all"),
    ("avg average", "write mean()"),
    (
        "std stddev var variance median quantile percentile",
        "aggregates are sum, mean, min, max and count; NumPy computes others, as in query.to_numpy(\"age\").std()",
    ),
    (
        "round floor ceil sqrt strip split replace hour minute second weekday date time strftime total_seconds",
        ".filter(lambda row: ...) computes it in Python",
    ),
    ("alias as_ label rename", "select(next=F.age + 1) names what it computes"),
    ("append extend push add", "a loop changes rows: for row in query: row.tags.append(...)"),
    ("cast astype map apply", ".filter(lambda row: ...) computes it in Python"),
];

/// What to write instead of a function that expressions do not have.
pub fn of_function(name: &str) -> Option<&'static str> {
    let (_, instead) = FUNCTION_WORDS.iter().find(|(words, _)| words.split(' ').any(|word| word == name))?;
    Some(instead)
}
