//! Assembles an array in the middle of a reshape, for reading: once with the old shape and once with the new one, over the
//! same members. Each side reads the bytes that have its shape. What a reshape in place may have left half written is read
//! from mdadm's backup, or not at all.
//!
//! Nothing is written, and the reshape does not go on. Which bytes have which shape: [`format::superblock::Reshape`].

use crate::base::buffer::Pool;
use crate::control::election::{Offered, adopt_change, elect};
use crate::control::inspect::Found;
use crate::control::offer::{AssembleOptions, Offer};
use crate::control::state::{Control, OtherSide};
use crate::core::authority::Authority;
use crate::data::stitched::{Elsewhere, Source};
use crate::seam::bytes::read_bytes;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::backup::Saved;
use format::geometry::Geometry;
use format::superblock::{DeviceRole, Progress, Reshape, Side, Superblock};
use format::units::Sectors;
use std::rc::Rc;

use super::backup::{FoundBackup, Wanted};
use super::start::find_all;
use super::supported::check_supported;

const ADVICE: &str = "let md and mdadm end the reshape, on copies of the members, by mdadm --assemble";

const BACKUP_ADVICE: &str = "give the file that the reshape was begun with by --backup-file; --force reads them as the \
    position says";

const UNPROVEN: &str = "nothing on the members shows that mdadm made this backup before the reshape came to its bytes: mdadm \
    4.2 and later begin a reshape before its first backup, which is then wrong";

const UNPROVEN_ADVICE: &str = "--force reads by the position and the backup; compare that with the new shape throughout, by \
    --geometry, and let no mdadm restore the backup before";

const AHEAD_ADVICE: &str = "let no md go on with it, as md believes the position; --force reads by the position, and \
    --geometry reads one shape throughout, so that both can be compared";

impl<M: Member + Clone, C: Clock> Control<M, C> {
    /// [`crate::Array::assemble_to_read`].
    pub(crate) async fn assemble_to_read(
        offer: Offer<M>,
        options: AssembleOptions,
        pool: Pool,
        clock: C,
    ) -> Result<Rc<Self>, Refusal> {
        let Offer { members, bitmap, backup, write_buffer } = offer;
        let options = AssembleOptions { read_only: true, ..options };
        let mut offered = find_all(members, &pool).await?;
        adopt_change(&mut offered);
        let freshest = elect(&offered)?.freshest;
        if offered[freshest].found.superblock.reshape.is_none() {
            return Self::assemble_found(offered, bitmap, write_buffer, options, pool, clock).await;
        }
        let Sides { name, freshest, reshape, old, new, progress } =
            Sides::of(&offered, &offered[freshest], &options, &pool, &clock).await?;
        let is_ahead = reshape.may_be_ahead(old.core.geometry(), &progress);
        if is_ahead && !options.force {
            return Err(Refusal::new(ahead(&reshape))
                .of(name)
                .field("superblock.reshape_position")
                .advice(AHEAD_ADVICE));
        }
        let wanted = Wanted { of: &freshest, reshape: &reshape, any_time: options.force };
        let mut warnings: Vec<String> = is_ahead.then(|| ahead(&reshape)).into_iter().collect();
        let backup = match backup {
            _ if progress.critical.is_empty() => None,
            Some(file) => Some(wanted.in_file(file, &pool).await?),
            None => wanted.on_members(&offered, &pool).await,
        };
        let backup = match backup {
            Some(backup) if !reshape.backwards && !was_before_md(&backup, &old, &new, &pool).await => {
                if !options.force {
                    return Err(Refusal::new(UNPROVEN)
                        .of(&*backup.on.name)
                        .field("backup.arraystart")
                        .advice(UNPROVEN_ADVICE));
                }
                warnings.push(format!("{}: {UNPROVEN}", backup.on.name));
                Some(backup)
            }
            backup => backup,
        };
        let mut elsewhere = critical(&progress, backup, options.force, &mut warnings);
        // The array has the bytes that both shapes have room for.
        let array_bytes = old.core.geometry().array_bytes().min(new.core.geometry().array_bytes());
        let reshaped = progress.reshaped;
        let (one, other, range) = match old.core.geometry().array_bytes() == array_bytes {
            true => (old, new, reshaped),
            false if reshape.backwards => (new, old, 0..reshaped.start),
            false => (new, old, reshaped.end..array_bytes),
        };
        elsewhere.push(Elsewhere { range, source: Source::Shape(other.data.clone()) });
        let other = OtherSide { control: other, reshape, warnings };
        if one.data.elsewhere.set(elsewhere).is_err() || one.other_side.set(other).is_err() {
            unreachable!("a new array has one side");
        }
        Ok(one)
    }
}

/// An array in the middle of a reshape, in both shapes.
pub(in crate::control) struct Sides<M: Member, C: Clock> {
    /// The member whose superblock counts.
    pub(in crate::control) name: String,
    pub(in crate::control) freshest: Superblock,
    pub(in crate::control) reshape: Reshape,
    pub(in crate::control) old: Rc<Control<M, C>>,
    pub(in crate::control) new: Rc<Control<M, C>>,
    pub(in crate::control) progress: Progress,
}

impl<M: Member + Clone, C: Clock> Sides<M, C> {
    /// Both shapes of these members. The superblock of `freshest` is of a reshape.
    pub(in crate::control) async fn of(
        offered: &[Offered<M>],
        freshest: &Offered<M>,
        options: &AssembleOptions,
        pool: &Pool,
        clock: &C,
    ) -> Result<Self, Refusal> {
        let (name, freshest) = (freshest.name.clone(), freshest.found.superblock.clone());
        let reshape = freshest.reshape.expect("the caller has looked");
        let reshape = Reshape { backwards: reshape.backwards && !mutant!("reshape-direction-ignored"), ..reshape };
        check_alone(&name, &freshest)?;
        let side = async |side| {
            let members = on_side(offered, &reshape, side)?;
            Control::assemble_found(members, None, None, options.clone(), pool.clone(), clock.clone()).await
        };
        let (old, new) = (side(Side::Old).await?, side(Side::New).await?);
        let members: Vec<_> = [&old, &new].iter().flat_map(|side| side.core.members()).collect();
        let seated = offered.iter().filter(|offered| members.iter().any(|member| member.name == offered.name));
        let moved: Vec<_> = seated.filter_map(|offered| data_offsets(&offered.found.superblock)).collect();
        let progress = reshape
            .progress(&freshest, old.core.geometry(), new.core.geometry(), &moved)
            .map_err(|defect| Refusal::defect(&name, defect).advice(ADVICE))?;
        Ok(Self { name, freshest, reshape, old, new, progress })
    }

    /// Checks that nothing but the reshape keeps the array from being written.
    pub(in crate::control) fn check_writable(&self) -> Result<(), Refusal> {
        let options = AssembleOptions { read_only: false, ..AssembleOptions::default() };
        check_supported(&self.name, &self.freshest.with_reshape_ended(), None, &options)
    }
}

/// Whether the members show that md moved the first stripe of a backup after mdadm had read it: in the new shape it is the
/// backup's, and in the old one it is not. As md goes in the order of the array, it had then not come to any of the
/// backup's bytes. Where a part of the backup begins before the position, md waited there for mdadm.
async fn was_before_md<M: Member, C: Clock>(
    backup: &FoundBackup<M>,
    old: &Control<M, C>,
    new: &Control<M, C>,
    pool: &Pool,
) -> bool {
    let Some(first) = backup.saved.first().filter(|_| backup.begins_there) else { return true };
    let Geometry::Parity(shape) = new.core.geometry() else { return false };
    let chunk = shape.chunk_bytes().max(old.core.geometry().chunk_bytes());
    let bytes = (chunk * u64::from(shape.data_chunks())).min(first.range.end - first.range.start);
    let Ok(saved) = read_bytes(&backup.on.member, pool, first.at, bytes).await else { return false };
    let is_saved = async |side: &Control<M, C>| {
        let read = side.data.read(first.range.start, pool.take(bytes as usize)).await;
        read.is_ok_and(|read| *read == *saved)
    };
    is_saved(new).await && !is_saved(old).await
}

/// Where the bytes are that a reshape in place may be writing over, and a warning that says so.
fn critical<M: Member, C: Clock, A: Authority<M>>(
    progress: &Progress,
    backup: Option<FoundBackup<M>>,
    force: bool,
    warnings: &mut Vec<String>,
) -> Vec<Elsewhere<M, C, A>> {
    let Progress { critical, .. } = progress;
    if critical.is_empty() {
        return Vec::new();
    }
    let Some(FoundBackup { on, saved, .. }) = backup else {
        let what = format!(
            "the reshape writes over data in place, and may have left bytes {} to {} of the array half written",
            critical.start, critical.end
        );
        if force {
            warnings
                .push(format!("{what}: they are read as the position says, without mdadm's backup, and may be wrong"));
            return Vec::new();
        }
        warnings.push(format!("{what}: they are not read; {BACKUP_ADVICE}"));
        let source = Source::Lost(format!("{what} ({BACKUP_ADVICE})").into());
        return vec![Elsewhere { range: critical.clone(), source }];
    };
    for Saved { range, .. } in &saved {
        warnings.push(format!(
            "the reshape writes over data in place: bytes {} to {} of the array are read from mdadm's backup, {}",
            range.start, range.end, on.name
        ));
    }
    let plain = |Saved { range, at }| Elsewhere { range, source: Source::Plain(on.clone(), at) };
    saved.into_iter().map(plain).collect()
}

/// Why the position of a reshape is not believed.
fn ahead(reshape: &Reshape) -> String {
    format!(
        "the reshape keeps the number of members, and md may have moved data beyond the recorded position, byte {}: such \
         data would be read wrong",
        reshape.position.bytes()
    )
}

/// Refuses what md does not combine with a reshape.
fn check_alone(name: &str, superblock: &Superblock) -> Result<(), Refusal> {
    if superblock.journal || superblock.ppl.is_some() {
        let reason = "a reshape of an array with a journal or a partial parity log, which md never begins";
        return Err(Refusal::new(reason).of(name).field("superblock.feature_map"));
    }
    Ok(())
}

/// The members of one side, with superblocks that know this side alone.
fn on_side<M: Clone>(offered: &[Offered<M>], reshape: &Reshape, side: Side) -> Result<Vec<Offered<M>>, Refusal> {
    let mut members = Vec::new();
    for Offered { name, member, found } in offered {
        let superblock = found.superblock.on_side(reshape, side).map_err(|defect| Refusal::defect(name, defect))?;
        members.extend(superblock.map(|superblock| Offered {
            name: name.clone(),
            member: member.clone(),
            found: Found { superblock, place: found.place.clone() },
        }));
    }
    Ok(members)
}

/// Where the data of a member with a slot begins before the reshape, and after it.
fn data_offsets(superblock: &Superblock) -> Option<(Sectors, Sectors)> {
    let moved = superblock.data_offset.0.checked_add_signed(superblock.new_offset.unwrap_or(0).into())?;
    matches!(superblock.own_role(), DeviceRole::Active(_)).then_some((superblock.data_offset, Sectors(moved)))
}
