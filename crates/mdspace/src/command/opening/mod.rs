//! From arguments to an open array or a server: which members are meant, where sockets are, what is safe to open.

pub(crate) mod arguments;
pub(crate) mod assembly;
pub(crate) mod bitmap_file;
pub(crate) mod by_hand;
pub(crate) mod cache_mode;
pub(crate) mod container;
pub(crate) mod doubt;
pub(crate) mod mdadm_conf;
pub(crate) mod members;
pub(crate) mod ownership;
pub(crate) mod sockets;
pub(crate) mod target;
