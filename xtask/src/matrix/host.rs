//! The host's side of the matrix: the command `mdspace` on the members' images, compared with a model in memory.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};

use anyhow::{Context, Result, bail, ensure};

use super::cell::{Cell, Origin};
use super::random::Random;
use super::tally::Tally;

/// Bytes that arrays are filled with; each cell uses a part of them.
const POOL_BYTES: usize = 128 << 20;
/// A part begins within these first bytes of the pool, so that parts of up to [`POOL_BYTES`] less this fit.
const POOL_BEGIN_BYTES: u64 = 24 << 20;

/// The capacity of a pipe.
const PIECE_BYTES: usize = 64 << 10;

/// If there are more combinations of missing members than this, some are chosen at random.
const SUBSETS_MAX: usize = 4;

/// Exit statuses of a command that refuses, or finds the array unusable.
const REFUSALS: [Option<i32>; 2] = [Some(1), Some(2)];

/// Random bytes in memory, and in a file for the guests.
pub(crate) struct Pool {
    bytes: Vec<u8>,
    pub(crate) path: PathBuf,
}

impl Pool {
    pub(crate) fn create(directory: &Path) -> Result<Pool> {
        let bytes = Random::new(0).bytes(POOL_BYTES);
        let path = directory.join("pool");
        fs::write(&path, &bytes)?;
        Ok(Pool { bytes, path })
    }

    fn part(&self, from: u64, length: u64) -> Result<&[u8]> {
        let range = from as usize..(from + length) as usize;
        self.bytes.get(range).with_context(|| format!("an array of {length} bytes is too large for the pool"))
    }
}

/// A cell in a directory of its own.
pub(crate) struct Workplace<'a> {
    pub(crate) cell: &'a Cell,
    pub(crate) directory: PathBuf,
    pub(crate) pool: &'a Pool,
    /// The command under test.
    pub(crate) mdspace: &'a Path,
    pub(crate) tally: &'a Tally,
}

/// The output of `mdspace read`.
struct Contents {
    status: ExitStatus,
    bytes: usize,
    /// The first byte that differs.
    differs: Option<usize>,
    complaint: String,
}

/// Bytes of the pool for a position in the array.
struct Patch {
    position: u64,
    from: u64,
    length: u64,
}

impl Workplace<'_> {
    /// Creates empty images, and describes the cell for the guest's phase `make`.
    pub(crate) fn prepare(&self) -> Result<()> {
        fs::create_dir_all(&self.directory)?;
        for member in 0..self.cell.members {
            File::create(self.image(member))?.set_len(self.cell.member_bytes(member))?;
        }
        self.describe(&[], &[])
    }

    /// Between the guest's phases `make` and `check`: creates the array unless the kernel did, reads it whole and with
    /// members missing, writes to it, and leaves the model for the guest.
    pub(crate) fn use_array(&self) -> Result<()> {
        let mut random = self.cell.random();
        let absent = random.subset(self.cell.absent, self.cell.members);
        let mut model = match self.cell.origin {
            Origin::Kernel => {
                let size = fs::read_to_string(self.directory.join("size"))?.trim().parse()?;
                self.pool.part(self.fill(), size)?.to_vec()
            }
            Origin::Here => self.create(&absent)?,
        };
        if self.cell.origin == Origin::Kernel {
            self.expect(&model, &[], "as the kernel made it")?;
            self.expect_with_members_missing(&model, &mut random)?;
        }
        for patch in self.patches(&mut random, model.len() as u64) {
            self.write(&patch, &absent)?;
            self.apply(&patch, &mut model)?;
        }
        self.expect(&model, &absent, "after mdspace wrote")?;
        if absent.is_empty() {
            self.expect_with_members_missing(&model, &mut random)?;
        }
        // The guest writes these at the end of its phase `check`.
        let patches = self.patches(&mut random, model.len() as u64);
        self.describe(&absent, &patches)?;
        self.leave_model(&model)?;
        for patch in &patches {
            self.apply(patch, &mut model)?;
        }
        Ok(fs::write(self.directory.join("model-after"), &model)?)
    }

    /// Replaces [`Workplace::use_array`] without the command: the model is what the kernel wrote.
    pub(crate) fn pretend_use(&self) -> Result<()> {
        let size = fs::read_to_string(self.directory.join("size"))?.trim().parse()?;
        let model = self.pool.part(self.fill(), size)?;
        self.describe(&[], &self.patches(&mut self.cell.random(), size))?;
        self.leave_model(model)
    }

    /// After the guest's phase `check`: reads what the kernel wrote, whole and with members missing.
    pub(crate) fn read_back(&self) -> Result<()> {
        let model = fs::read(self.directory.join("model-after"))?;
        self.expect(&model, &[], "as the kernel left it")?;
        self.expect_with_members_missing(&model, &mut self.cell.random())
    }

    /// The members of `absent` that were missing at creation: all of them in half of the degraded cells that mdspace
    /// creates, otherwise none.
    fn never_there<'a>(&self, absent: &'a [usize]) -> &'a [usize] {
        if self.cell.origin == Origin::Here && self.fill().is_multiple_of(2) { absent } else { &[] }
    }

    /// Runs `mdspace create` and writes the whole array; returns the model.
    fn create(&self, absent: &[usize]) -> Result<Vec<u8>> {
        let missing = self.never_there(absent);
        let mut arguments: Vec<OsString> = vec!["create".into()];
        arguments.extend(self.cell.create_options().into_iter().map(OsString::from));
        for member in 0..self.cell.members {
            let path = if missing.contains(&member) { "missing".into() } else { self.image(member).into_os_string() };
            arguments.push(path);
        }
        self.succeed(&arguments)?;
        self.tally.made_here.add(1);
        let zeros = self.read(missing, |_, piece| piece.iter().position(|&byte| byte != 0))?;
        ensure!(zeros.status.success(), "a new array cannot be read: {}", zeros.complaint);
        ensure!(zeros.differs.is_none(), "an array over zeroed members does not read as zeros");
        let whole = Patch { position: 0, from: self.fill(), length: zeros.bytes as u64 };
        self.write(&whole, missing)?;
        Ok(self.pool.part(whole.from, whole.length)?.to_vec())
    }

    /// Reads with members missing, in all combinations or in some. Up to the redundancy a read must succeed, beyond it
    /// must not.
    fn expect_with_members_missing(&self, model: &[u8], random: &mut Random) -> Result<()> {
        let members = self.cell.members;
        for count in 1..=self.cell.redundancy().min(2) {
            let mut subsets = subsets(count, members);
            while subsets.len() > SUBSETS_MAX {
                subsets.swap_remove(random.below(subsets.len() as u64) as usize);
            }
            for missing in subsets {
                self.expect(model, &missing, "with members missing")?;
            }
        }
        let fatal = self.cell.redundancy() + 1;
        if self.cell.one_more_is_fatal() && fatal < members {
            let missing = random.subset(fatal, members);
            let Contents { status, bytes, complaint, .. } = self.read(&missing, |_, _| None)?;
            ensure!(
                REFUSALS.contains(&status.code()) && bytes == 0 && !complaint.is_empty(),
                "read without {missing:?}, which is too few members: {status}, {bytes} bytes, message {complaint:?}",
            );
            self.tally.refused.add(1);
        }
        Ok(())
    }

    /// Reads the whole array without the members `missing`, and compares it with the model.
    fn expect(&self, model: &[u8], missing: &[usize], when: &str) -> Result<()> {
        let Contents { status, bytes, differs, complaint } = self.read(missing, |at, piece| {
            let expected = model.get(at..)?;
            let alike = piece.len() <= expected.len() && *piece == expected[..piece.len()];
            if alike { None } else { piece.iter().zip(expected).position(|(read, expected)| read != expected) }
        })?;
        let context = || format!("read {when}, without members {missing:?}");
        if !status.success() {
            bail!("{}: {status}: {complaint}", context());
        }
        if bytes != model.len() {
            bail!("{}: {bytes} bytes, not {}", context(), model.len());
        }
        if let Some(at) = differs {
            bail!("{}: the bytes differ from {at} on", context());
        }
        let counter = if missing.is_empty() { &self.tally.read_healthy } else { &self.tally.read_degraded };
        counter.add(1);
        Ok(())
    }

    /// Reads the whole array without the members `missing`. `differs` gets the position and bytes of each piece, and
    /// returns the offset of the first wrong byte in it. No array is held in memory, which would take longer than reading.
    fn read(&self, missing: &[usize], differs: impl Fn(usize, &[u8]) -> Option<usize>) -> Result<Contents> {
        let mut command = Command::new(self.mdspace);
        command.arg("read").args(self.images_but(missing)).stdin(Stdio::null());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        let mut out = child.stdout.take().context("its standard output is a pipe")?;
        let (mut bytes, mut first) = (0, None);
        let mut piece = vec![0; PIECE_BYTES];
        loop {
            let count = out.read(&mut piece)?;
            if count == 0 {
                break;
            }
            first = first.or_else(|| differs(bytes, &piece[..count]).map(|at| bytes + at));
            bytes += count;
        }
        let Output { status, stderr, .. } = child.wait_with_output()?;
        Ok(Contents { status, bytes, differs: first, complaint: String::from_utf8_lossy(&stderr).into_owned() })
    }

    fn write(&self, patch: &Patch, absent: &[usize]) -> Result<()> {
        let input = self.directory.join("input");
        fs::write(&input, self.pool.part(patch.from, patch.length)?)?;
        let mut arguments: Vec<OsString> = vec!["write".into(), "--offset".into(), patch.position.to_string().into()];
        arguments.extend(["--input".into(), input.into_os_string()]);
        arguments.extend(self.images_but(absent).into_iter().map(PathBuf::into_os_string));
        self.succeed(&arguments)?;
        let counter = if absent.is_empty() { &self.tally.written_healthy } else { &self.tally.written_degraded };
        counter.add(1);
        Ok(())
    }

    fn succeed(&self, arguments: &[OsString]) -> Result<()> {
        let output = Command::new(self.mdspace).args(arguments).stdin(Stdio::null()).output()?;
        if !output.status.success() {
            let words: Vec<_> = arguments.iter().map(|word| word.to_string_lossy()).collect();
            bail!("mdspace {}: {}: {}", words.join(" "), output.status, String::from_utf8_lossy(&output.stderr));
        }
        Ok(())
    }

    /// Three writes: a few bytes, several chunks with unaligned ends, and the end of the array.
    fn patches(&self, random: &mut Random, size: u64) -> Vec<Patch> {
        let chunk = self.cell.chunk_kib.unwrap_or(64) * 1024;
        let few = random.below(5000) + 1;
        let several = (chunk * self.cell.members as u64 + random.below(2 * chunk)).min(size / 2);
        let last = random.below(3 * chunk) + 1;
        let lengths = [few, several, last.min(size)];
        let mut patches: Vec<Patch> = lengths
            .map(|length| {
                let from = random.below(POOL_BEGIN_BYTES);
                Patch { position: random.below(size - length + 1), from, length }
            })
            .into();
        patches[2].position = size - patches[2].length;
        patches
    }

    fn apply(&self, patch: &Patch, model: &mut [u8]) -> Result<()> {
        let range: Range<usize> = patch.position as usize..(patch.position + patch.length) as usize;
        model[range].copy_from_slice(self.pool.part(patch.from, patch.length)?);
        Ok(())
    }

    /// Adds the size and hash of the contents that the guest must find to the cell's description.
    fn leave_model(&self, model: &[u8]) -> Result<()> {
        let path = self.directory.join("model");
        fs::write(&path, model)?;
        let output = Command::new("b2sum").arg(&path).output()?;
        let line = String::from_utf8(output.stdout)?;
        let hash = line.split(' ').next().filter(|hash| hash.len() == 128).context("b2sum gave no hash")?;
        let mut description = File::options().append(true).open(self.directory.join("cell"))?;
        Ok(writeln!(description, "size={} hash={hash}", model.len())?)
    }

    /// Writes the file that tests/kernel/matrix.sh reads.
    fn describe(&self, absent: &[usize], patches: &[Patch]) -> Result<()> {
        let words = |members: &[usize]| members.iter().map(usize::to_string).collect::<Vec<_>>().join(" ");
        let patches: Vec<String> = patches.iter().map(|p| format!("{}:{}:{}", p.position, p.from, p.length)).collect();
        let text = format!(
            "members={}\ncreate=({})\nfill={}\nabsent=\"{}\"\nnever=\"{}\"\nchecked={}\npatches=({})\n",
            self.cell.members,
            self.cell.create_options().join(" "),
            self.fill(),
            words(absent),
            words(self.never_there(absent)),
            u8::from(self.cell.can_be_checked()),
            patches.join(" "),
        );
        Ok(fs::write(self.directory.join("cell"), text)?)
    }

    /// The position in the pool of the cell's first contents.
    fn fill(&self) -> u64 {
        self.cell.random().below(POOL_BEGIN_BYTES)
    }

    fn image(&self, member: usize) -> PathBuf {
        self.directory.join(format!("m{member}"))
    }

    /// The images without those of `missing`, in reverse order, as the order must not matter.
    fn images_but(&self, missing: &[usize]) -> Vec<PathBuf> {
        (0..self.cell.members).rev().filter(|member| !missing.contains(member)).map(|m| self.image(m)).collect()
    }
}

/// All sets of one or two members.
fn subsets(count: usize, members: usize) -> Vec<Vec<usize>> {
    let single = (0..members).map(|member| vec![member]);
    match count {
        1 => single.collect(),
        2 => single.flat_map(|one| (one[0] + 1..members).map(move |other| vec![one[0], other])).collect(),
        _ => panic!("subsets of {count} members were not asked for until now"),
    }
}
