//! Assembles an array in the middle of a reshape, for reading: once with the old shape and once with the new one, over the
//! same members. Each side reads the bytes that have its shape.
//!
//! Nothing is written, and the reshape does not go on. Which bytes have which shape: [`format::superblock::Reshape`].

use crate::base::buffer::Pool;
use crate::control::election::{Offered, adopt_size, elect};
use crate::control::inspect::Found;
use crate::control::offer::{AssembleOptions, Offer};
use crate::control::state::{Control, OtherSide};
use crate::data::stitched::Elsewhere;
use crate::seam::clock::Clock;
use crate::seam::error::Refusal;
use crate::seam::member::Member;
use format::superblock::{DeviceRole, Reshape, Side, Superblock};
use format::units::Sectors;
use std::rc::Rc;

use super::start::find_all;

const ADVICE: &str = "let md and mdadm finish the reshape, on copies of the members: mdadm --assemble, with the \
    --backup-file that the reshape was begun with";

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
        let Offer { members, bitmap } = offer;
        let options = AssembleOptions { read_only: true, ..options };
        let mut offered = find_all(members, &pool).await?;
        adopt_size(&mut offered);
        let freshest = &offered[elect(&offered)?.freshest];
        let (name, freshest) = (freshest.name.clone(), freshest.found.superblock.clone());
        let Some(reshape) = freshest.reshape else {
            return Self::assemble_found(offered, bitmap, options, pool, clock).await;
        };
        let reshape = Reshape { backwards: reshape.backwards && !mutant!("reshape-direction-ignored"), ..reshape };
        check_alone(&name, &freshest)?;
        let side = async |side| {
            let members = on_side(&offered, &reshape, side)?;
            Self::assemble_found(members, None, options.clone(), pool.clone(), clock.clone()).await
        };
        let (old, new) = (side(Side::Old).await?, side(Side::New).await?);
        let members: Vec<_> = [&old, &new].iter().flat_map(|side| side.core.members()).collect();
        let seated = offered.iter().filter(|offered| members.iter().any(|member| member.name == offered.name));
        let moved: Vec<_> = seated.filter_map(|offered| data_offsets(&offered.found.superblock)).collect();
        let reshaped = reshape
            .reshaped(freshest.layout, old.core.geometry(), new.core.geometry(), &moved)
            .map_err(|defect| Refusal::defect(&name, defect).advice(ADVICE))?;
        if reshape.may_be_ahead(old.core.geometry()) && !options.force {
            return Err(Refusal::new(ahead(&reshape))
                .of(name)
                .field("superblock.reshape_position")
                .advice(AHEAD_ADVICE));
        }
        // The array has the bytes that both shapes have room for.
        let array_bytes = old.core.geometry().array_bytes().min(new.core.geometry().array_bytes());
        let (one, other, range) = match old.core.geometry().array_bytes() == array_bytes {
            true => (old, new, reshaped),
            false if reshape.backwards => (new, old, 0..reshaped.start),
            false => (new, old, reshaped.end..array_bytes),
        };
        let elsewhere = Elsewhere { range, plane: other.data.clone() };
        let other = OtherSide { control: other, reshape };
        if one.data.elsewhere.set(elsewhere).is_err() || one.other_side.set(other).is_err() {
            unreachable!("a new array has one side");
        }
        Ok(one)
    }
}

/// Why the position of a reshape is not believed.
pub(crate) fn ahead(reshape: &Reshape) -> String {
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
