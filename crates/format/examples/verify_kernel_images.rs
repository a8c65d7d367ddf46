//! Compares the geometry with arrays that the real md driver created and filled.
//!
//! ```text
//! verify_kernel_images OUTDIR
//! ```
//!
//! OUTDIR is the output of `tests/kernel/geometry.sh`, which also describes its manifest. Every array that md filled
//! must satisfy three conditions. Its size is md's. Each byte is where [`Geometry`] puts it. In each stripe, P is the
//! XOR of the data, and Q the sum of 2^e times the data, with the exponents of
//! [`format::geometry::Stripe::q_exponent`]. P and Q are computed here one byte at a time. The geometry must refuse
//! what md refused or lost data in, and mdadm's layout names must mean the same.
//!
//! It prints each disagreement and the number of arrays checked. Exit status: 0 no disagreement; 1 some; 2 nothing to
//! check. It never writes a file.

use std::collections::HashMap;
use std::error::Error;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::ExitCode;

use mdspace_format::geometry::{Geometry, Level, Mapping, Parity, Role, Shape, parse_layout};
use mdspace_format::units::{ArrayByte, ComponentByte, Slot};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The number in the first 16-byte line of the array.
const FIRST_LINE: u64 = 100_000_000_000_000;
const LINE_BYTES: usize = 16;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: verify_kernel_images OUTDIR");
        return ExitCode::from(2);
    };
    let directory = Path::new(&directory);
    let manifest = match fs::read_to_string(directory.join("manifest")) {
        Ok(manifest) if !manifest.is_empty() => manifest,
        Ok(_) => {
            eprintln!("{}: the manifest is empty", directory.display());
            return ExitCode::from(2);
        }
        Err(error) => {
            eprintln!("{}/manifest: {error}", directory.display());
            return ExitCode::from(2);
        }
    };
    let mut wrong = 0;
    for line in manifest.lines() {
        if let Err(error) = check_line(directory, line) {
            println!("{line}\n    {error}");
            wrong += 1;
        }
    }
    println!("{} arrays checked, {wrong} wrong", manifest.lines().count());
    if wrong == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn check_line(directory: &Path, line: &str) -> Result<()> {
    let (kind, words) = line.split_once(' ').ok_or("no words")?;
    let words: HashMap<&str, &str> = words.split(' ').filter_map(|word| word.split_once('=')).collect();
    let word = |key: &str| words.get(key).copied().ok_or_else(|| format!("no {key}"));
    let level = level(word("level")?)?;
    let layout = word("layout")?.parse()?;
    if kind == "named" {
        let parsed = parse_layout(level, word("name")?);
        return if parsed == Some(layout) { Ok(()) } else { Err(format!("this crate reads it as {parsed:?}").into()) };
    }
    let members: Vec<u64> = word("members")?.split(',').map(str::parse).collect::<std::result::Result<_, _>>()?;
    let geometry = Geometry::new(&Shape {
        level,
        layout,
        chunk_bytes: word("chunk")?.parse()?,
        slots: members.len().try_into()?,
        component_bytes: word("component")?.parse()?,
        member_bytes: if matches!(level, Level::Linear | Level::Raid0) { members.clone() } else { Vec::new() },
    });
    match (kind, geometry) {
        ("refused" | "collides", Err(_)) => Ok(()),
        ("refused" | "collides", Ok(_)) => Err("this crate accepts it".into()),
        ("filled", Err(defect)) => Err(format!("this crate refuses it: {defect}").into()),
        ("filled", Ok(geometry)) => {
            let images = Images::read(directory, word("at")?.parse()?, &members)?;
            check_array(&geometry, word("bytes")?.parse()?, &images)
        }
        (other, _) => Err(format!("unknown kind {other}").into()),
    }
}

fn level(word: &str) -> Result<Level> {
    Ok(match word {
        "linear" => Level::Linear,
        "raid0" => Level::Raid0,
        "raid1" => Level::Raid1,
        "raid4" => Level::Raid4,
        "raid5" => Level::Raid5,
        "raid6" => Level::Raid6,
        "raid10" => Level::Raid10,
        other => return Err(format!("unknown level {other}").into()),
    })
}

/// The data areas of an array's members.
struct Images(Vec<Vec<u8>>);

impl Images {
    fn read(directory: &Path, at: u64, members: &[u64]) -> Result<Self> {
        let read = |(slot, &bytes): (usize, &u64)| -> Result<Vec<u8>> {
            let mut area = vec![0; usize::try_from(bytes)?];
            File::open(directory.join(format!("slot.{slot}")))?.read_exact_at(&mut area, at)?;
            Ok(area)
        };
        members.iter().enumerate().map(read).collect::<Result<_>>().map(Self)
    }

    fn slice(&self, slot: Slot, at: ComponentByte, bytes: u64) -> Result<&[u8]> {
        let (start, bytes) = (usize::try_from(at.0)?, usize::try_from(bytes)?);
        let area = &self.0[slot.index()];
        area.get(start..start + bytes).ok_or_else(|| format!("slot {slot} has no byte {start} + {bytes}").into())
    }
}

fn check_array(geometry: &Geometry, array_bytes: u64, images: &Images) -> Result<()> {
    if geometry.array_bytes() != array_bytes {
        return Err(format!("this crate's size is {}", geometry.array_bytes()).into());
    }
    for (slot, area) in (0..).zip(&images.0) {
        if geometry.used_bytes(Slot(slot)) > area.len() as u64 {
            return Err(format!("this crate uses {} bytes of slot {slot}", geometry.used_bytes(Slot(slot))).into());
        }
    }
    match geometry {
        Geometry::Mapping(mapping) => check_mapping(mapping, images),
        Geometry::Parity(parity) => check_parity(parity, images),
    }
}

fn check_mapping(mapping: &Mapping, images: &Images) -> Result<()> {
    let mut next = 0;
    for piece in mapping.pieces(ArrayByte(0), mapping.array_bytes()) {
        if piece.at.0 != next {
            return Err(format!("a piece begins at {}, not at {next}", piece.at.0).into());
        }
        next += piece.bytes;
        for &(slot, component) in &piece.copies {
            check_data(images.slice(slot, component, piece.bytes)?, piece.at.0)
                .map_err(|error| format!("slot {slot}, component byte {}: {error}", component.0))?;
        }
    }
    if next == mapping.array_bytes() { Ok(()) } else { Err(format!("the pieces end at {next}").into()) }
}

fn check_parity(parity: &Parity, images: &Images) -> Result<()> {
    let chunk = parity.chunk_bytes();
    for number in 0..parity.stripes() {
        let stripe = parity.stripe(number);
        let read = |role| {
            let slot = stripe.slot_of(role).ok_or_else(|| format!("stripe {number} has no {role:?}"))?;
            images.slice(slot, stripe.component(), chunk)
        };
        let mut p = vec![0; usize::try_from(chunk)?];
        let mut q = p.clone();
        let has_q = parity.parity_roles().any(|role| role == Role::Q);
        for index in 0..parity.data_chunks() {
            let data = read(Role::Data(index))?;
            check_data(data, number * parity.stripe_bytes() + u64::from(index) * chunk)
                .map_err(|error| format!("stripe {number}, data {index}: {error}"))?;
            add(&mut p, data, 0);
            if has_q {
                add(&mut q, data, stripe.q_exponent(index));
            }
        }
        if p != read(Role::P)? {
            return Err(format!("stripe {number}: P is not the sum of the data").into());
        }
        if has_q && q != read(Role::Q)? {
            return Err(format!("stripe {number}: Q is not the sum with the exponents of q_exponent").into());
        }
    }
    Ok(())
}

/// Checks that `data` is the array's contents from `at` on. Pieces start and end at sectors, so lines are whole. The
/// next expected line is the last one, incremented in place.
fn check_data(data: &[u8], at: u64) -> Result<()> {
    let mut expected = format!("{}\n", FIRST_LINE + at / LINE_BYTES as u64).into_bytes();
    for found in data.chunks(LINE_BYTES) {
        if found != expected {
            let (expected, found) = (String::from_utf8_lossy(&expected), String::from_utf8_lossy(found));
            return Err(format!("found {:?} instead of {:?}", found.trim_end(), expected.trim_end()).into());
        }
        for digit in expected[..LINE_BYTES - 1].iter_mut().rev() {
            *digit = if *digit == b'9' { b'0' } else { *digit + 1 };
            if *digit != b'0' {
                break;
            }
        }
    }
    Ok(())
}

/// sum += 2^exponent * data, in GF(2^8) with the polynomial 0x11d.
fn add(sum: &mut [u8], data: &[u8], exponent: u8) {
    let double = |x: u8| (x << 1) ^ if x & 0x80 == 0 { 0 } else { 0x1d };
    let products: Vec<u8> = (0..=255).map(|x| (0..exponent).fold(x, |x, _| double(x))).collect();
    for (sum, &byte) in sum.iter_mut().zip(data) {
        *sum ^= products[usize::from(byte)];
    }
}
