//! The steps of a history, and random histories.
//!
//! A step holds all that it needs. What depends on the array's state (for instance, which member may fail so that the
//! level survives) is decided when the step is reached, from the step's own number. So any steps can be dropped and the
//! rest is still a history: that is how a failing one is shrunk.

use super::changes::{BitmapChange, Way};
use super::others::Use;
use super::setup::Setup;
use engine::{ConsistencyPolicy, SweepTransfers, WriteBack};
use std::fmt;
use world::Random;

/// A history: an array, and the steps that befall it.
#[derive(Debug, Clone)]
pub struct History {
    /// The seed from which everything follows.
    pub seed: u64,
    /// The array.
    pub setup: Setup,
    /// Whether more may fail than the level survives.
    pub beyond: bool,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// A step. Positions are in millionths of the array, so that they fit an array of any size.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Starts a write.
    Write {
        /// Millionths of the array.
        place: u32,
        /// The length; cut off at the array's end.
        bytes: u32,
        /// Position and length are multiples of this.
        align: u32,
        /// Whether the write is [`engine::Durability::Stable`].
        stable: bool,
    },
    /// Starts several consecutive writes at once.
    Burst {
        /// Millionths of the array.
        place: u32,
        /// The length of each; cut off at the array's end.
        bytes: u32,
        /// How many.
        writes: u32,
    },
    /// Zeroes a range, with no other request in flight.
    Zero {
        /// Millionths of the array.
        place: u32,
        /// The length; cut off at the array's end.
        bytes: u32,
        /// How.
        means: Means,
    },
    /// Starts a read.
    Read {
        /// Millionths of the array.
        place: u32,
        /// The length; cut off at the array's end.
        bytes: u32,
    },
    /// Starts a stream of consecutive reads, one at a time.
    ReadOn {
        /// Millionths of the array.
        place: u32,
        /// The length of each; cut off at the array's end.
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
    /// A long time without requests.
    Rest {
        /// Seconds.
        seconds: u32,
    },
    /// Waits for all requests, but not for resyncs.
    Settle,
    /// Starts a resync.
    Resync,
    /// A fault befalls a member: the first from this number on that it may befall.
    Befall {
        /// The member's number, modulo their count.
        member: u32,
        /// The fault.
        fault: Fault,
    },
    /// Ends a member's faults.
    Heal {
        /// The member's number, modulo their count.
        member: u32,
    },
    /// A member outside the array joins it.
    Join {
        /// The member's number, modulo their count.
        member: u32,
        /// How.
        way: Way,
    },
    /// Replaces a member in use, by a spare or by a member outside the array.
    Replace {
        /// The member's number, modulo their count.
        member: u32,
    },
    /// Adds or removes a write-intent bitmap.
    ChangeBitmap(BitmapChange),
    /// Changes the consistency policy.
    ChangePolicy(ConsistencyPolicy),
    /// Makes the array read-only, and then writable again.
    ReadOnly {
        /// Microseconds in between.
        micros: u32,
    },
    /// The bitmap file fails, until the next assembly or for good.
    LoseFile,
    /// Removes a failed member.
    Remove {
        /// The member's number, modulo their count.
        member: u32,
    },
    /// Linux's md uses some members, and perhaps afterwards others. Only between two lives.
    Others {
        /// The first use.
        first: Use,
        /// The second use, of members that the first did not have.
        second: Option<Use>,
    },
    /// Stops the array and assembles it again.
    Restart,
    /// Kills the process, and assembles the array again.
    Kill,
    /// Cuts the power, and assembles the array again.
    PowerCut(Cut),
}

/// The moment of a power cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cut {
    /// At this write or flush of any member since the assembly, or at this step at the latest.
    Boundary(u32),
    /// At this write of metadata since the assembly, or after this step when the requests in flight have ended.
    Mark(u32),
    /// At this write or flush after this step, or when the requests in flight have ended.
    Behind(u32),
}

/// How a range is zeroed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    /// As [`engine::Array::write_zeroes`].
    Write,
    /// As [`engine::Array::punch_hole`].
    Punch,
    /// As [`engine::Array::discard`], which may zero it or not.
    Discard,
}

/// A fault of a member. Positions are in millionths of its data area.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Failed by command.
    Failed,
    /// The member is gone.
    Gone,
    /// The member is gone for this many microseconds.
    Away(u32),
    /// All writes fail.
    BadWrites,
    /// All writes to superblock and bitmap fail.
    BadMetadata,
    /// All reads of data fail.
    BadReads,
    /// Reads of 4 KiB of data fail until the range is rewritten.
    Latent(u32),
    /// A write fails, after this many others.
    WriteFails(u32),
    /// A flush fails, after this many others.
    FlushFails(u32),
    /// A read fails, after this many others.
    ReadFails(u32),
    /// The member hangs for this many microseconds.
    Hangs(u32),
    /// Each operation takes this many microseconds longer.
    Slow(u32),
    /// Bytes of data change silently.
    Corrupt(u32),
    /// A write of data is acknowledged but not stored, after this many other writes.
    LosesWrite(u32),
    /// A write of data is stored elsewhere, after this many other writes.
    Misdirects(u32),
}

impl Fault {
    /// Whether the level has to survive it. Without redundancy a request would fail.
    pub fn is_borne(self, setup: &Setup) -> bool {
        match self {
            Self::Hangs(_) | Self::Slow(_) => setup.patience_micros.is_some(),
            _ => !self.is_silent() || setup.integrity,
        }
    }

    /// Whether the member reports nothing.
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
        setup.is_buffered = setup.writeback && !setup.is_old() && !Random::new(seed ^ 0xb0ff_e2ed).once_in(4);
        if seed % 5 == 3 {
            setup.answers = WriteBack::Streams;
        }
        let mut sweeps = Random::new(seed ^ 0x5eeb_5eeb);
        if sweeps.once_in(8) {
            let (window, in_flight) = (4096 << sweeps.within(0..8), 4096 << sweeps.within(0..8));
            setup.sweep_transfers = SweepTransfers { window_bytes: Some(window), in_flight_bytes: in_flight };
        }
        let mut logs = Random::new(seed ^ PARITY_LOGS);
        let has_logs = logs.once_in(3) && setup.may_log_parity();
        if has_logs {
            setup.log_parity(!logs.once_in(4));
        }
        let mut stripe_logs = Random::new(seed ^ STRIPE_LOGS);
        let has_stripe_logs = stripe_logs.once_in(8) && !has_logs && setup.may_log_stripes();
        setup.has_stripe_log = has_stripe_logs && !stripe_logs.once_in(4);
        let mut journals = Random::new(seed ^ JOURNALS);
        let has_journal = journals.once_in(8) && !has_logs && !has_stripe_logs && setup.may_log_stripes();
        if has_journal {
            setup.journal_writes(*journals.pick(&[0, 5, 60]));
        }
        let beyond = random.once_in(8);
        let mut steps = Chooser::new(&setup, &mut random).steps(&mut random);
        let mut others = Random::new(seed ^ OTHERS);
        if others.once_in(8) && setup.level.is_redundant() && !has_journal {
            steps = with_others(&setup, steps, &mut others);
        }
        use ConsistencyPolicy::{Bitmap, PartialParity, Resync, StripeLog};
        if has_logs && logs.once_in(2) {
            steps = with_policies(steps, [PartialParity, PartialParity, Bitmap, Resync], &mut logs);
        }
        if has_stripe_logs && stripe_logs.once_in(2) {
            steps = with_policies(steps, [StripeLog, StripeLog, Bitmap, Resync], &mut stripe_logs);
        }
        let mut pauses = Random::new(seed ^ PAUSES);
        if pauses.once_in(10) {
            steps = with_pauses(steps, &mut pauses);
        }
        Self { seed, setup, beyond, steps }
    }
}

/// A random stream of its own leaves the other histories as they are: xtask's mutants know histories by their seeds.
const OTHERS: u64 = 0x7e5_021d;

/// Likewise. With this number, no history in the table of mutants has a partial parity log.
const PARITY_LOGS: u64 = 0x9a7a_1863;

/// Likewise: with this number, no history in that table has a write journal. The model of md's use knows none.
const JOURNALS: u64 = 0x10a4_2a15;

/// Likewise: with this number, no history in that table has a stripe log.
const STRIPE_LOGS: u64 = 0x57a1_b120;

/// Likewise: with this number, no history in that table is read-only for a while.
const PAUSES: u64 = 0x4ead_0008;

/// Adds times in which the array is read-only.
fn with_pauses(mut steps: Vec<Step>, random: &mut Random) -> Vec<Step> {
    for _ in 0..random.within(1..6) {
        let most = 1 << random.within(1..20);
        let micros = random.within(0..most) as u32;
        insert(&mut steps, Step::ReadOnly { micros }, random);
    }
    steps
}

/// Adds a use by md after the steps, followed by more steps, and at random after other ends of a life.
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

/// Adds changes of the consistency policy, to some of these.
fn with_policies(mut steps: Vec<Step>, policies: [ConsistencyPolicy; 4], random: &mut Random) -> Vec<Step> {
    for _ in 0..random.within(1..5) {
        let policy = *random.pick(&policies);
        insert(&mut steps, Step::ChangePolicy(policy), random);
    }
    steps
}

/// Inserts a step anywhere, unless a use by md is there, which comes between two lives.
fn insert(steps: &mut Vec<Step>, step: Step, random: &mut Random) {
    let at = random.within(0..steps.len() as u64 + 1) as usize;
    let is_between = matches!(steps.get(at), Some(Step::Others { .. }));
    if !is_between {
        steps.insert(at, step);
    }
}

impl fmt::Display for History {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{:?}", self.setup)?;
        if self.beyond {
            writeln!(f, "more may fail than the level survives")?;
        }
        self.steps.iter().enumerate().try_for_each(|(index, step)| writeln!(f, "{index:3}  {step:?}"))
    }
}

/// Weights of the kinds of steps in one history. Some kinds are frequent and some absent, so that histories differ in
/// character.
struct Chooser {
    weights: Vec<(u64, Make)>,
    /// The part of the array that requests go to, in millionths.
    hot: std::ops::Range<u64>,
    bytes_max: u64,
}

/// The first of the kinds that are about members.
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
        weights[0].0 += 6; // a history needs writes
        if random.once_in(3) {
            // A third of the histories has many changes of members.
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
    let longer = *random.pick(&[1, 160]); // longer than the member timeout, where there is one
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
