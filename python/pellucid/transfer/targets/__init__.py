"""This package has one module for each kind of target.

Each has a function `write(export, target)`, which writes the rows and returns their number. That of SQLite
takes a list of exports, and returns a list.
"""
