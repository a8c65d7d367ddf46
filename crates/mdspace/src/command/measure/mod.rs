//! Commands that measure: this machine (`bench`), and modelled drives in virtual time (`lab`).

pub(crate) mod arguments;
pub(crate) mod bench;
mod html;
pub(crate) mod lab;
