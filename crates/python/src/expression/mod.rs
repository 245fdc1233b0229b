//! Expressions over fields, which Python code builds with `F`.

pub mod aggregate;
pub mod handle;
pub mod method;
pub mod operand;
pub mod python_text;
pub mod sort_by;
pub mod text;
pub mod words;
