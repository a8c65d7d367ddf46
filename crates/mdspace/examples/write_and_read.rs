//! Creates an array of three files in a directory, writes to it from several threads, opens it without a member, and
//! reads everything back.
//!
//! ```text
//! write_and_read DIRECTORY
//! ```
//!
//! It prints the array's status as JSON, as `mdspace status --json` does.

use mdspace::{Array, Create, Level, Options};
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const THREADS: u64 = 4;
const BYTES_EACH: u64 = 5 << 20;

fn main() -> ExitCode {
    let Some(directory) = std::env::args_os().nth(1) else {
        eprintln!("usage: write_and_read DIRECTORY");
        return ExitCode::from(2);
    };
    match write_and_read(Path::new(&directory)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn write_and_read(directory: &Path) -> Result<(), Box<dyn std::error::Error>> {
    let members: Vec<PathBuf> = (0..3).map(|index| directory.join(format!("member{index}.img"))).collect();
    Create::new(Level::Raid5).name("example").chunk_bytes(64 << 10).member_bytes(32 << 20).create(&members)?;

    let array = Options::new().write(true).open(&members)?;
    // The threads share the handle by reference, and their requests run concurrently.
    std::thread::scope(|scope| {
        let array = &array;
        let writers: Vec<_> = (0..THREADS).map(|number| scope.spawn(move || write_part(array, number))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().expect("a writer does not panic"))
    })?;
    array.flush()?;
    println!("{}", serde_json::to_string_pretty(&array.status()?)?);
    let left = array.close()?;
    eprintln!("closed, {}", left.state);

    // Without the first member the data is the same.
    let array = Array::open(&members[1..])?;
    eprintln!("opened, {}", array.status()?.state);
    let mut stream = BufReader::with_capacity(1 << 20, array.cursor());
    let mut found = vec![0; BYTES_EACH as usize];
    for number in 0..THREADS {
        stream.read_exact(&mut found)?;
        if found != part(number) {
            return Err(format!("part {number} is not what was written").into());
        }
    }
    eprintln!("{} bytes read back", THREADS * BYTES_EACH);
    Ok(())
}

fn write_part(array: &Array, number: u64) -> Result<(), mdspace::Error> {
    array.write_all_at(&part(number), number * BYTES_EACH)
}

/// Bytes that differ between parts and do not repeat at a power of two.
fn part(number: u64) -> Vec<u8> {
    (0..BYTES_EACH).map(|index| (index % 251) as u8 ^ (number + 1) as u8).collect()
}
