//! The experiments, one a file. Each has a function `run` that makes its [`Report`](crate::Report). (`beside` and
//! `md_sync` serve several of them.)

mod beside;
pub(crate) mod checksums;
pub(crate) mod e1;
pub(crate) mod e10;
pub(crate) mod e2;
pub(crate) mod e3;
pub(crate) mod e4;
pub(crate) mod e5;
pub(crate) mod e6;
pub(crate) mod e7;
pub(crate) mod e8;
pub(crate) mod e9;
pub(crate) mod logs;
mod md_sync;
pub(crate) mod rot;
pub(crate) mod sweep;
