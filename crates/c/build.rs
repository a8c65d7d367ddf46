//! Sets the name by which programs ask for the library at run time (SONAME).
//!
//! The number changes whenever a program that was linked before would not work with the library: a function went, or its
//! arguments changed. New functions leave it as it is.

const ABI: u32 = 0;

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libmdspace.so.{ABI}");
}
