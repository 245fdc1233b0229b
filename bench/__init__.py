"""This package measures the speed of pellucid and of other libraries.

    python -m bench records        one record, many records: read, sum, encode, change
    python -m bench dict           a dict on disk: single writes and random reads
    python -m bench writes         the write path: commits, and when other processes see them
    python -m bench query          queries over a million rows: filter, sum, sort, export

All libraries run in the same process and in turn, so that the load of the machine affects all of them. The
report also shows the rows that we lose, and lists libraries that are not installed. The benchmarks use only
the public API, and are not installed. `docs/benchmarks.md` says what each row means and what is not measured.
"""
