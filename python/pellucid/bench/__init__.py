"""How fast is pellucid, compared with what?

    python -m pellucid.bench records        one record, many records: reading, summing, encoding, changing
    python -m pellucid.bench dict           a dict on disk: single writes and random reads
    python -m pellucid.bench writes         the write path: commits, and who sees them, and when
    python -m pellucid.bench query          a million rows asked: found, added up, put in order, handed over

Every rival runs in the same process and in turn with us, so that whatever else the machine does hits all
of them. Rows that we lose are shown as such; rivals that are not installed are listed. Only the public API
is used. `docs/benchmarks.md` says what each row means and what is not measured.
"""
