"""This package has one module for each kind of target.

Each has a function `write(export, target)`, which writes the rows and returns their number.
"""
