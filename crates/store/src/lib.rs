//! Where do records live, and how does a change of them become lasting?
#![deny(unsafe_code)]
