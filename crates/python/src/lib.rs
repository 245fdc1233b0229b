//! How does Python see records, tables and databases?
