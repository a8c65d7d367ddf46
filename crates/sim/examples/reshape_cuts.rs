//! Writes the members of an array that gets more slots, as they are when power goes at one of its writes: images for
//! `tests/kernel/more_slots.sh`, which has the real driver go on with them.
//!
//! `reshape_cuts DIRECTORY EVERY` makes `DIRECTORY/CASE/model`, the array's bytes, and `DIRECTORY/CASE/CUT/mN`: all cuts of the
//! first and last superblocks, and every so many of the others.

use mdspace_sim::reshaped::{Scene, cases};
use mdspace_sim::{Random, World};
use std::fs;
use std::io::Result;
use std::path::PathBuf;

/// Cuts at the begin and at the end of a reshape, all of which are written.
const NEAR: u64 = 24;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(directory), Some(every)) = (arguments.next(), arguments.next()) else {
        eprintln!("usage: reshape_cuts DIRECTORY EVERY");
        std::process::exit(2);
    };
    let every: u64 = every.to_string_lossy().parse().expect("EVERY is a number");
    for (seed, case) in cases() {
        let directory = PathBuf::from(&directory).join(format!("{seed}"));
        fs::create_dir_all(&directory)?;
        let (scene, mut random) = (Scene::new(case, seed), Random::new(seed ^ 0xcafe));
        fs::write(directory.join("model"), &scene.bytes)?;
        let mut boundaries = 1;
        while scene.cut(boundaries, &World::new(boundaries), &mut random).is_some() {
            boundaries += 1;
        }
        let is_wanted = |cut: &u64| *cut <= NEAR || *cut + NEAR >= boundaries || cut.is_multiple_of(every);
        for cut in (1..boundaries).filter(is_wanted) {
            let (members, _) = scene.cut(cut, &World::new(cut), &mut random).expect("it was cut there before");
            let place = directory.join(format!("{cut}"));
            fs::create_dir_all(&place)?;
            for member in members {
                fs::write(place.join(member.name()), member.contents())?;
            }
        }
    }
    Ok(())
}
