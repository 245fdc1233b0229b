//! Compiles LMDB, with `system.c` in the place of the system calls that it makes.

fn main() {
    println!("cargo::rerun-if-changed=lmdb");
    println!("cargo::rerun-if-changed=src/system.c");
    let mut build = cc::Build::new();
    build
        .file("src/system.c")
        .file("lmdb/midl.c")
        .include("lmdb")
        // Logarithm of the changed pages of a transaction beyond which some are written before its commit.
        .define("MDB_IDL_LOGN", "16")
        .flag_if_supported("-Wno-unused-parameter")
        .flag_if_supported("-Wno-implicit-fallthrough");
    // LMDB's assertions look at whole pages. They stay where Rust's own do.
    if std::env::var_os("PROFILE").is_some_and(|profile| profile == "release") {
        build.define("NDEBUG", None);
    }
    build.compile("pellucid_lmdb");
}
