"""What is pellucid good for, on data that nobody made up?

    python -m pellucid.demo

reads every function and class of the running Python's own standard library, tens of thousands of nested
records of which hardly two are alike, stores them, closes, opens again, reads single fields, goes through all
of them, finds some by what is in them, with and without indexes, and changes some in place. Every figure that
it shows was measured while it ran. Only the public API is used: `tour.py` and `lookups.py` may be read as
examples.
"""
