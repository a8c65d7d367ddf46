//! The speed of every kernel of the table, beside memory's own and beside ISA-L's, if its library can be loaded.
//!
//! All contenders of a scenario take turns, sample by sample, so that other load affects them equally. The bench prints
//! the best and the median sample, in GB of data per second (8 data blocks, P and Q, unless stated otherwise). Compare
//! figures of one run only; it asserts none. `cargo bench -p mdspace-parity [-- --kernel NAME]` measures all supported
//! kernels, or one kernel and its streaming variant, if there is one. It takes about ten seconds.

use std::ffi::{c_int, c_void};
use std::hint::black_box;
use std::time::{Duration, Instant};

use mdspace_parity::{CRC_BLOCK_BYTES, Kernel, Symbol, crc32c, kernels, recovery};

const DATA: usize = 8;
const BLOCKS: usize = DATA + 2;

/// Several times the last-level cache of any known machine.
const COLD_BYTES: usize = 512 << 20;
const ROUNDS: usize = 75;
const SAMPLE: Duration = Duration::from_micros(400);

/// Whether a scenario's blocks are in the cache when a sample starts.
#[derive(Clone, Copy)]
enum Cache {
    Hot,
    Cold,
}

/// The blocks of one stripe.
struct Stripe<'a> {
    data: [&'a [u8]; DATA],
    p: &'a mut [u8],
    q: &'a mut [u8],
}

/// A contender: its name, the number of blocks it is credited with, and its work.
struct Contender {
    group: &'static str,
    name: String,
    blocks: usize,
    work: Box<dyn Fn(&mut Stripe<'_>)>,
}

fn main() {
    let chosen = chosen_kernels();
    let contenders = contenders(&chosen);
    let mut memory = vec![0u8; COLD_BYTES + 4096];
    for (k, byte) in memory.iter_mut().enumerate() {
        *byte = (k * 31 % 251) as u8; // private pages, not the shared zero page
    }
    let start = memory.as_ptr().align_offset(4096);
    let memory = &mut memory[start..][..COLD_BYTES];
    for (bytes, cache) in
        [(4 << 10, Cache::Hot), (64 << 10, Cache::Hot), (4 << 10, Cache::Cold), (64 << 10, Cache::Cold)]
    {
        let stripes = match cache {
            Cache::Hot => 1,
            Cache::Cold => COLD_BYTES / (BLOCKS * bytes),
        };
        let mut stripes: Vec<_> = memory.chunks_exact_mut(BLOCKS * bytes).take(stripes).map(stripe).collect();
        let samples = measure(&contenders, &mut stripes);
        report(&contenders, &samples, bytes, cache);
    }
}

/// The kernels named on the command line, or all supported ones.
fn chosen_kernels() -> Vec<&'static Kernel> {
    let arguments: Vec<String> = std::env::args().collect();
    let named = arguments.iter().position(|argument| argument == "--kernel").map(|at| arguments.get(at + 1));
    match named {
        Some(name) => {
            let named = Kernel::by_name(name.map_or("", |name| name)).unwrap_or_else(|error| {
                eprintln!("--kernel: {error}");
                std::process::exit(2);
            });
            std::iter::once(named).chain(Kernel::by_name(&format!("{}-stream", named.name()))).collect()
        }
        None => {
            let (run, skipped): (Vec<_>, Vec<_>) = kernels().iter().partition(|kernel| kernel.is_supported());
            println!("kernels measured: {run:?}; not supported here: {skipped:?}");
            run
        }
    }
}

fn stripe(memory: &mut [u8]) -> Stripe<'_> {
    let bytes = memory.len() / BLOCKS;
    let (data, parity) = memory.split_at_mut(DATA * bytes);
    let (p, q) = parity.split_at_mut(bytes);
    let data = &*data;
    Stripe { data: std::array::from_fn(|k| &data[k * bytes..][..bytes]), p, q }
}

fn contenders(kernels: &[&'static Kernel]) -> Vec<Contender> {
    let mut contenders = vec![];
    let mut add = |group, name: &str, blocks, work: Box<dyn Fn(&mut Stripe<'_>)>| {
        contenders.push(Contender { group, name: name.to_owned(), blocks, work });
    };
    add("memory", "read", DATA, Box::new(|stripe| stripe.data.iter().for_each(|block| read(block))));
    let copy = |stripe: &mut Stripe<'_>| {
        stripe.p.copy_from_slice(stripe.data[0]);
        stripe.q.copy_from_slice(stripe.data[1]);
    };
    add("memory", "memcpy", 2, Box::new(copy));

    add("CRC-32C", "blocks of 4 KiB", DATA, Box::new(|stripe| stripe.data.iter().for_each(|block| sum(block))));

    for &kernel in kernels {
        add("xor", kernel.name(), DATA, Box::new(|stripe| kernel.xor(stripe.p, &stripe.data)));
    }
    let isal = Isal::load();
    if let Some(isal) = &isal {
        add("xor", "ISA-L xor_gen", DATA, isal.xor());
    }
    for &kernel in kernels {
        add("P+Q", kernel.name(), DATA, Box::new(|stripe| kernel.pq(stripe.p, stripe.q, &stripe.data)));
    }
    if let Some(isal) = &isal {
        add("P+Q", "ISA-L pq_gen", DATA, isal.pq());
    }

    // The last two of the eight data blocks are lost. The terms are six data blocks, P and Q. Which memory stands for
    // them does not affect the speed.
    let exponents: Vec<u8> = (0..DATA as u8).collect();
    let lost = [Symbol::Data(6), Symbol::Data(7)];
    let [x, y] = lost.map(|wanted| coefficients(&exponents, &lost, wanted));
    for &kernel in kernels {
        let (x, y) = (x, y);
        let one = move |stripe: &mut Stripe<'_>| {
            let terms: [_; DATA] = std::array::from_fn(|k| (x[k], stripe.data[k]));
            kernel.combine(stripe.p, &terms);
        };
        add("one of two lost data", kernel.name(), DATA, Box::new(one));
        let both = move |stripe: &mut Stripe<'_>| {
            let terms: [_; DATA] = std::array::from_fn(|k| ([x[k], y[k]], stripe.data[k]));
            kernel.combine_two([stripe.p, stripe.q], &terms);
        };
        add("both of two lost data", kernel.name(), DATA, Box::new(both));
    }
    contenders.sort_by_key(|contender| GROUPS.iter().position(|&group| group == contender.group));
    contenders
}

const GROUPS: [&str; 6] = ["memory", "CRC-32C", "xor", "P+Q", "one of two lost data", "both of two lost data"];

/// The coefficients that reconstruct a block, in the order of the terms.
fn coefficients(exponents: &[u8], lost: &[Symbol], wanted: Symbol) -> [u8; DATA] {
    let terms = recovery(exponents, lost, wanted).expect("two lost blocks can be reconstructed");
    std::array::from_fn(|k| terms[k].0)
}

/// Reads all bytes, at least sixteen at a time.
fn read(block: &[u8]) {
    let mut sums = [0u64; 16];
    for chunk in block.chunks_exact(128) {
        for (sum, word) in sums.iter_mut().zip(chunk.chunks_exact(8)) {
            *sum ^= u64::from_ne_bytes(word.try_into().expect("eight bytes"));
        }
    }
    black_box(sums);
}

/// Computes the checksum of every 4 KiB.
fn sum(block: &[u8]) {
    block.chunks_exact(CRC_BLOCK_BYTES).for_each(|block| {
        black_box(crc32c(block));
    });
}

/// Seconds per stripe, for every sample of every contender.
fn measure(contenders: &[Contender], stripes: &mut [Stripe<'_>]) -> Vec<Vec<f64>> {
    let mut samples = vec![vec![]; contenders.len()];
    let mut next = 0;
    for round in 0..=ROUNDS {
        for (contender, samples) in contenders.iter().zip(&mut samples) {
            let (start, mut done) = (Instant::now(), 0);
            // The clock is read only every few stripes, because that costs as much as 2 KiB.
            while start.elapsed() < SAMPLE {
                for _ in 0..8 {
                    (contender.work)(&mut stripes[next]);
                    next = (next + 1) % stripes.len();
                }
                done += 8;
            }
            let elapsed = start.elapsed();
            if round > 0 {
                samples.push(elapsed.as_secs_f64() / f64::from(done)); // the first round warms up
            }
        }
    }
    samples
}

fn report(contenders: &[Contender], samples: &[Vec<f64>], bytes: usize, cache: Cache) {
    let state = match cache {
        Cache::Hot => "hot in cache",
        Cache::Cold => "cold",
    };
    println!("\n{} KiB blocks, {state}: GB/s of data, best and median", bytes >> 10);
    for (contender, samples) in contenders.iter().zip(samples) {
        let mut samples = samples.clone();
        samples.sort_by(f64::total_cmp);
        let speed = |seconds: f64| (contender.blocks * bytes) as f64 / seconds / 1e9;
        let (best, median) = (speed(samples[0]), speed(samples[samples.len() / 2]));
        println!("  {:22} {:18} {best:7.1} {median:7.1}", contender.group, contender.name);
    }
}

/// Intel's library, for comparison.
struct Isal {
    xor: Generate,
    pq: Generate,
}

/// `int xor_gen(int vects, int len, void **array)`: the last one or two vectors are targets.
type Generate = unsafe extern "C" fn(c_int, c_int, *mut *mut c_void) -> c_int;

impl Isal {
    /// `None`, with a printed note, when the library is not installed.
    fn load() -> Option<Self> {
        // SAFETY: a plain C library; its initializers only read the processor's features. The symbols have the types
        // that its raid.h declares, and it is never unloaded.
        let loaded = unsafe {
            libloading::Library::new("libisal.so.2").and_then(|library| {
                let library = Box::leak(Box::new(library));
                Ok(Self { xor: *library.get(b"xor_gen\0")?, pq: *library.get(b"pq_gen\0")? })
            })
        };
        loaded.inspect_err(|error| println!("ISA-L is absent, and not compared with: {error}")).ok()
    }

    fn xor(&self) -> Box<dyn Fn(&mut Stripe<'_>)> {
        Self::work(self.xor, DATA + 1)
    }

    fn pq(&self) -> Box<dyn Fn(&mut Stripe<'_>)> {
        Self::work(self.pq, DATA + 2)
    }

    fn work(generate: Generate, vectors: usize) -> Box<dyn Fn(&mut Stripe<'_>)> {
        Box::new(move |stripe| {
            let data = stripe.data.map(|block| block.as_ptr().cast_mut().cast());
            let mut array: [*mut c_void; BLOCKS] = [std::ptr::null_mut(); BLOCKS];
            array[..DATA].copy_from_slice(&data);
            array[DATA] = stripe.p.as_mut_ptr().cast();
            array[DATA + 1] = stripe.q.as_mut_ptr().cast();
            // SAFETY: all blocks have P's length, a multiple of 4096, and are aligned to it; only the targets, borrowed
            // mutably, are written.
            let status = unsafe { generate(vectors as c_int, stripe.p.len() as c_int, array.as_mut_ptr()) };
            assert_eq!(status, 0, "ISA-L took the blocks");
        })
    }
}
