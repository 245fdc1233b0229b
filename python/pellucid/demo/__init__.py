"""This package shows in ten lines what pellucid does, on real input: the sources of the standard library.

    python -m pellucid.demo [--more] [FILE]

`library.py` reads the sources once, and the file keeps them. `tour.py` has the parts, each a few lines of
Python that are printed as they run. They use only the public API, so you can read them as examples.
"""
