"""The tables on a server: rows, their entries in indexes, large values, and the handle on them."""
