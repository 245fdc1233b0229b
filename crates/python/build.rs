//! Which Python is the build for? Gives the crate the `cfg`s that PyO3 has: `Py_GIL_DISABLED`, `Py_3_14`.

fn main() {
    pyo3_build_config::use_pyo3_cfgs();
}
