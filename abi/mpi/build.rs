//! How the library is linked.
fn main() {
    // The name that programs record.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libmpi_abi.so.1");
    // Its table of functions holds its own, whatever a program defines; the dynamic linker does not
    // search for hundreds of names at each start.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-Bsymbolic-functions");
    println!("cargo::rerun-if-changed=build.rs");
}
