"""This package shows what is in a database: the first rows, the fields, and tables for a prompt or notebook.

The classes of tables, queries and records have its functions as methods, and import it when one is called.
"""
