"""The schema on a server: its catalog, the layouts of its tables, and the SQL about them."""
