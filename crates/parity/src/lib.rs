//! Parity of RAID-5 and RAID-6 on blocks of memory, as Linux md computes it:
//! P is the exclusive or of a stripe's data, and Q its Reed-Solomon syndrome
//! over GF(2^8) with polynomial 0x11d and generator 2.
//!
//! - [`Kernel`] does the arithmetic on blocks, with one of several instruction
//!   sets that all give the same bytes; [`Kernel::best`] is the one to use.
//! - [`recovery()`] says which blocks with which coefficients add up to a lost
//!   one; [`Kernel::combine`] carries it out.
//! - [`gf`] is the field itself.
//! - [`crc32c()`] is the checksum of a block.
//!
//! Never here: I/O, allocation on the data path, threads, layouts (which block
//! of a stripe is where is the business of `mdspace-format`), state.
//!
//! ```
//! use mdspace_parity::{Kernel, Symbol, recovery};
//!
//! let kernel = Kernel::best();
//! let data = [b"some", b"more", b"data"].map(|block| &block[..]);
//! let (mut p, mut q) = ([0; 4], [0; 4]);
//! kernel.pq(&mut p, &mut q, &data);
//!
//! // The first two data blocks are lost; bring back the second.
//! let lost = [Symbol::Data(0), Symbol::Data(1)];
//! let terms = recovery(&[0, 1, 2], &lost, Symbol::Data(1)).expect("two lost blocks can be had back");
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
