"""This package shows the main features of pellucid on real data.

    python -m pellucid.demo

It reads every function and class of the standard library of the running Python. These are tens of thousands
of nested records, and hardly two are alike. It stores them, closes the database and opens it again. Then it
reads single fields, scans all records, finds some by their content, with and without indexes, and changes
some in place. It measures every figure while it runs. It uses only the public API, so you can read `tour.py`
and `lookups.py` as examples.
"""
