//! Parity of RAID-5 and RAID-6 on blocks of memory, as Linux md computes it. P is the exclusive or of a stripe's data.
//! Q is its Reed-Solomon syndrome over GF(2^8) with polynomial 0x11d and generator 2.
//!
//! - [`Kernel`] computes on blocks, with one of several instruction sets that all give the same bytes. [`Kernel::best`]
//!   is the one to use.
//! - [`recovery()`] returns the blocks and coefficients whose sum is a lost block; [`Kernel::combine`] computes it.
//! - [`gf`] is the field itself.
//! - [`crc32c()`] is the checksum of a block.
//!
//! The crate does no I/O, starts no threads, keeps no state, and never allocates on the data path. It knows no layouts:
//! `mdspace-format` determines which block of a stripe is where. Sources: H. P. Anvin, "The mathematics of RAID-6";
//! the real md driver, for known results (`tests/parity/kernels.rs`).
//!
//! ```
//! use mdspace_parity::{Kernel, Symbol, recovery};
//!
//! let kernel = Kernel::best();
//! let data = [b"some", b"more", b"data"].map(|block| &block[..]);
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! kernel.pq(&mut p, &mut q, &data);
//!
//! // The first two data blocks are lost. Reconstruct the second.
//! let lost = [Symbol::Data(0), Symbol::Data(1)];
//! let terms = recovery(&[0, 1, 2], &lost, Symbol::Data(1)).expect("two lost blocks can be reconstructed");
//! let sources: Vec<(u8, &[u8])> = terms
//!     .iter()
//!     .map(|&(coefficient, symbol)| match symbol {
//!         Symbol::Data(k) => (coefficient, data[k as usize]),
//!         Symbol::P => (coefficient, &p[..]),
//!         Symbol::Q => (coefficient, &q[..]),
//!     })
//!     .collect();
//! let mut block = [0; 4];
//! kernel.combine(&mut block, &sources);
//! assert_eq!(&block, b"more");
//! ```

mod crc32c;
pub mod gf;
mod isa;
mod kernel;
mod recovery;
mod routines;
mod vector;

pub use crc32c::{BLOCK_BYTES as CRC_BLOCK_BYTES, copy_with_crc32c, crc32c};
pub use kernel::{Kernel, UnknownOrUnsupported, kernels};
pub use recovery::{Symbol, recovery};
