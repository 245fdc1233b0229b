"""How rows are found on a server: the SQL of queries, scans, and the watch of changes."""
