//! The steps that a history is made of, and histories by chance.
//!
//! A step says all that it needs; what depends on the array's state when it is
//! reached (which member can fail without asking too much of the level) is
//! decided then, from the step's own number. So any steps can be dropped from a
//! history and the rest still means something: that is how a failing one is shrunk.

use super::changes::{BitmapChange, Way};
use super::others::Use;
use super::setup::Setup;
use crate::random::Random;
use engine::SweepTransfers;
use format::geometry::Level;
use std::fmt;

/// A history: an array, and what happens to it.
#[derive(Debug, Clone)]
pub struct History {
    /// From which everything follows.
    pub seed: u64,
    /// The array.
    pub setup: Setup,
    /// Whether more may fail than the level bears.
    pub beyond: bool,
    /// What happens, in order.
    pub steps: Vec<Step>,
}

/// One thing that happens. Positions in the array are in millionths of its length, to mean something at any size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Starts a write; `stable` waits for stable storage.
    Write {
        /// Millionths of the array.
        place: u32,
        /// Cut at the array's end.
        bytes: u32,
        /// Position and length in whole sectors of this size.
        align: u32,
        /// As [`engine::Durability::Stable`].
        stable: bool,
    },
    /// Starts writes that lie side by side, all at once.
    Burst {
        /// Millionths of the array.
        place: u32,
        /// Of each; cut at the array's end.
        bytes: u32,
        /// How many.
        writes: u32,
    },
    /// Makes a range zeros, with nothing else under way.
    Zero {
        /// Millionths of the array.
        place: u32,
        /// Cut at the array's end.
        bytes: u32,
        /// How.
        means: Means,
    },
    /// Starts a read.
    Read {
        /// Millionths of the array.
        place: u32,
        /// Cut at the array's end.
        bytes: u32,
    },
    /// Starts a stream of reads, one behind the other.
    ReadOn {
        /// Millionths of the array.
        place: u32,
        /// Of each; cut at the array's end.
        bytes: u32,
        /// How many.
        reads: u32,
    },
    /// Starts a flush.
    Flush,
    /// Lets time pass.
    Wait {
        /// Microseconds.
        micros: u32,
    },
    /// Nothing is asked for a long time.
    Rest {
        /// Seconds.
        seconds: u32,
    },
    /// Waits for everything that was started, but resyncs.
    Settle,
    /// Starts a resync.
    Resync,
    /// Something happens to a member: the one of this number, of those to which it can.
    Befall {
        /// Which member, counted round.
        member: u32,
        /// What happens to it.
        fault: Fault,
    },
    /// A member's faults end.
    Heal {
        /// Which member, counted round.
        member: u32,
    },
    /// A member that does not take part comes to the array.
    Join {
        /// Which member, counted round.
        member: u32,
        /// How.
        way: Way,
    },
    /// A living member is replaced: by a spare or by a member that does not take part.
    Replace {
        /// Which member, counted round.
        member: u32,
    },
    /// A write-intent bitmap is added or removed.
    ChangeBitmap(BitmapChange),
    /// The bitmap's file is gone; until the next assembly, or for good.
    LoseFile,
    /// A failed member is let go of.
    Remove {
        /// Which member, counted round.
        member: u32,
    },
    /// Linux's md uses members, and perhaps those that it did not use after that; between two lives alone.
    Others {
        /// Its use of some.
        first: Use,
        /// Its use of others.
        second: Option<Use>,
    },
    /// Stops the array and assembles it anew.
    Restart,
    /// The program ends where it stands, and is started anew.
    Kill,
    /// The power goes; then the array is assembled anew.
    PowerCut(Cut),
}

/// When the power goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// At this write or flush of any member, counted from when the array was last assembled, or here at the latest.
    Boundary(u32),
    /// At this write that is not of data, counted so too; or when what is under way is over.
    Mark(u32),
    /// At this write or flush, counted from here; or when what is under way is over.
    Behind(u32),
}

/// How a range becomes zeros.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// As [`engine::Array::write_zeroes`].
    Write,
    /// As [`engine::Array::punch_hole`].
    Punch,
    /// As [`engine::Array::discard`]: perhaps.
    Discard,
}

/// What happens to a member. Positions are millionths of its data area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Failed by hand.
    Failed,
    /// It is not there any more.
    Gone,
    /// It is not there for so many microseconds.
    Away(u32),
    /// No write succeeds any more.
    BadWrites,
    /// No write to its superblock and bitmap succeeds any more.
    BadMetadata,
    /// No read of its data succeeds any more.
    BadReads,
    /// Reads of 4 KiB of its data fail until these are rewritten.
    Latent(u32),
    /// A write fails, after so many more.
    WriteFails(u32),
    /// A flush fails, after so many more.
    FlushFails(u32),
    /// A read fails, after so many more.
    ReadFails(u32),
    /// It answers nothing for so many microseconds.
    Hangs(u32),
    /// It is slower by so many microseconds.
    Slow(u32),
    /// Bytes of its data change.
    Corrupt(u32),
    /// A write to its data is lost, after so many more writes.
    LosesWrite(u32),
    /// A write to its data goes elsewhere, after so many more writes.
    Misdirects(u32),
}

impl Fault {
    /// Whether a level must bear it: without redundancy a request would fail.
    pub fn is_borne(self, setup: &Setup) -> bool {
        match self {
            Self::Hangs(_) | Self::Slow(_) => setup.patience_micros.is_some(),
            _ => !self.is_silent() || setup.integrity,
        }
    }

    /// Whether nobody is told.
    pub fn is_silent(self) -> bool {
        matches!(self, Self::Corrupt(_) | Self::LosesWrite(_) | Self::Misdirects(_))
    }
}

const MILLION: u64 = 1_000_000;

impl History {
    /// The history of `seed`.
    pub fn random(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let mut setup = Setup::random(&mut random);
        // By chances of their own, so that all else of a history is the same with one.
        setup.prompt = Random::new(seed ^ 0xa11_0ca7).once_in(8);
        let mut sweeps = Random::new(seed ^ 0x5eeb_5eeb);
        if sweeps.once_in(8) {
            let (window, in_flight) = (4096 << sweeps.within(0..8), 4096 << sweeps.within(0..8));
            setup.sweep_transfers = SweepTransfers { window_bytes: Some(window), in_flight_bytes: in_flight };
        }
        let beyond = random.once_in(8);
        let mut steps = Chooser::new(&setup, &mut random).steps(&mut random);
        let mut others = Random::new(seed ^ OTHERS);
        if others.once_in(8) && !matches!(setup.level, Level::Linear | Level::Raid0) {
            steps = with_others(&setup, steps, &mut others);
        }
        Self { seed, setup, beyond, steps }
    }
}

/// By chances of its own, with which no history is another that is known by its seed elsewhere (xtask's mutants).
const OTHERS: u64 = 0x7e5_021d;

/// The steps with uses by md behind them and, by chance, behind any end of a life; and more steps with what they leave.
fn with_others(setup: &Setup, mut steps: Vec<Step>, random: &mut Random) -> Vec<Step> {
    let use_of_some = |random: &mut Random| Use {
        without: random.number() as u32,
        changes: random.within(1..6) as u32,
        seed: random.number(),
    };
    let others = |random: &mut Random| Step::Others {
        first: use_of_some(random),
        second: (!random.once_in(3)).then(|| use_of_some(random)),
    };
    steps.push(Step::Restart);
    let first = steps.len();
    steps.extend(Chooser::new(setup, random).steps(random));
    let mut all = Vec::with_capacity(steps.len() + 4);
    for (index, step) in steps.into_iter().enumerate() {
        let is_end = matches!(step, Step::Restart | Step::Kill | Step::PowerCut(_));
        all.push(step);
        if index + 1 == first || (is_end && random.once_in(2)) {
            all.push(others(random));
        }
    }
    all
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.setup)?;
        if self.beyond {
            writeln!(f, "more may fail than the level bears")?;
        }
        self.steps.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "{index:3}  {step:?}"))
    }
}

/// How often each kind of step comes in one history: some kinds often, some never, so that each
/// history has a character of its own.
struct Chooser {
    weights: Vec<(u64, Make)>,
    /// Requests keep to this part of the array, in millionths.
    hot: std::ops::Range<u64>,
    bytes_max: u64,
}

/// The first of the kinds that are about members that go and come.
const BEFALLING: usize = 9;

type Make = fn(&Chooser, &mut Random) -> Step;

impl Chooser {
    fn new(setup: &Setup, random: &mut Random) -> Self {
        let kinds: [(u64, Make); 20] = [
            (12, Self::write),
            (3, Self::burst),
            (2, Self::zero),
            (4, Self::read),
            (3, Self::read_on),
            (4, |_, _| Step::Flush),
            (4, |_, random| Step::Wait { micros: random.within(1..3000) as u32 }),
            (1, |_, random| Step::Rest { seconds: random.within(4..16) as u32 }),
            (3, |_, _| Step::Settle),
            (2, |_, _| Step::Resync),
            (3, |_, random| Step::Befall { member: random.within(0..64) as u32, fault: fault(random) }),
            (1, |_, random| Step::Heal { member: random.within(0..64) as u32 }),
            (2, |_, random| Step::Join { member: random.within(0..64) as u32, way: Way::Added }),
            (3, |_, random| Step::Join { member: random.within(0..64) as u32, way: Way::Returned }),
            (2, |_, random| Step::Replace { member: random.within(0..64) as u32 }),
            (1, |_, random| Step::ChangeBitmap(bitmap_change(random))),
            (1, |_, random| if random.once_in(4) { Step::LoseFile } else { Step::Settle }),
            (1, |_, random| Step::Remove { member: random.within(0..64) as u32 }),
            (1, |_, random| if random.once_in(3) { Step::Kill } else { Step::Restart }),
            (3, |_, random| Step::PowerCut(cut(random))),
        ];
        let weigh = |(weight, make)| (weight * random.within(0..4), make);
        let mut weights: Vec<_> = kinds.into_iter().map(weigh).collect();
        weights[0].0 += 6; // without writes nothing happens
        if random.once_in(3) {
            // Members that go and come back.
            weights.iter_mut().skip(BEFALLING).take(6).for_each(|(weight, _)| *weight += 4);
        }
        let start = random.within(0..MILLION);
        let hot = if random.once_in(2) { start..(start + MILLION / 8).min(MILLION) } else { 0..MILLION };
        let bytes_max = setup.chunk_bytes.max(8192) * random.within(1..4);
        Self { weights, hot, bytes_max }
    }

    fn steps(&self, random: &mut Random) -> Vec<Step> {
        let total: u64 = self.weights.iter().map(|(weight, _)| weight).sum();
        let choose = |random: &mut Random| {
            let mut number = random.within(0..total);
            let (_, make) = self
                .weights
                .iter()
                .find(|(weight, _)| {
                    let is_it = number < *weight;
                    number = number.saturating_sub(*weight);
                    is_it
                })
                .expect("a number below the sum of all weights");
            make(self, random)
        };
        let count = random.within(3..30);
        (0..count).map(|_| choose(random)).collect()
    }

    fn place(&self, random: &mut Random) -> u32 {
        random.within(self.hot.clone()) as u32
    }

    fn bytes(&self, random: &mut Random) -> u32 {
        let most = self.bytes_max >> random.within(0..4);
        random.within(1..most.max(1024)) as u32
    }

    fn write(&self, random: &mut Random) -> Step {
        Step::Write {
            place: self.place(random),
            bytes: self.bytes(random),
            align: *random.pick(&[1, 512, 4096]),
            stable: random.once_in(6),
        }
    }

    fn burst(&self, random: &mut Random) -> Step {
        let bytes = *random.pick(&[512, 4096, 4096, 8192]);
        Step::Burst { place: self.place(random), bytes, writes: random.within(2..9) as u32 }
    }

    fn zero(&self, random: &mut Random) -> Step {
        let means = *random.pick(&[Means::Write, Means::Punch, Means::Discard]);
        Step::Zero { place: self.place(random), bytes: self.bytes(random), means }
    }

    fn read(&self, random: &mut Random) -> Step {
        Step::Read { place: self.place(random), bytes: self.bytes(random) }
    }

    fn read_on(&self, random: &mut Random) -> Step {
        let bytes = *random.pick(&[512, 4096, 12288]);
        Step::ReadOn { place: self.place(random), bytes, reads: random.within(4..40) as u32 }
    }
}

fn cut(random: &mut Random) -> Cut {
    match random.within(0..3) {
        0 => Cut::Boundary(random.within(0..120) as u32),
        1 => Cut::Mark(random.within(0..60) as u32),
        _ => Cut::Behind(random.within(0..40) as u32),
    }
}

fn bitmap_change(random: &mut Random) -> BitmapChange {
    let bytes = 4096 << random.within(0..3);
    *random.pick(&[BitmapChange::OnMembers(bytes), BitmapChange::InFile(bytes), BitmapChange::Removed])
}

fn fault(random: &mut Random) -> Fault {
    let place = random.within(0..MILLION) as u32;
    let micros = random.within(1..4000) as u32;
    let after = random.within(0..12) as u32;
    let longer = *random.pick(&[1, 160]); // than members' patience, where they have one
    *random.pick(&[
        Fault::Failed,
        Fault::Gone,
        Fault::Away(micros),
        Fault::BadWrites,
        Fault::BadMetadata,
        Fault::BadReads,
        Fault::Latent(place),
        Fault::WriteFails(after),
        Fault::FlushFails(after / 2),
        Fault::ReadFails(after),
        Fault::Hangs(micros * longer),
        Fault::Slow(micros * longer),
        Fault::Corrupt(place),
        Fault::LosesWrite(after),
        Fault::Misdirects(after),
    ])
}
