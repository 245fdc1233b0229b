"""This package has one module for each kind of source.

Each has a function `parts(job)`: the tables of the source, each with its rows in chunks.
"""
