//! RAID-10: near, far and offset copies.
//!
//! *Near*: the copies of a chunk follow one another, as in RAID-0 of chunks written n times, so that they need not
//! divide the number of members. *Far*: the component is cut into as many strides as there are far copies. The first
//! stride holds the array as above; each further one holds the same, shifted to other members. *Offset*: the same as
//! far, but a shifted copy of each row follows the row at once.
//!
//! ```text
//! near=2, 3 members     far=2, 3 members      offset=2, 3 members
//!   0   0   1             0   1   2             0   1   2
//!   1   2   2             3   4   5             2   0   1
//!   3   3   4             ...                   3   4   5
//!                         2   0   1             5   3   4
//!                         5   3   4
//! ```
//!
//! A far copy is shifted by as many members as there are near copies, modulo a ring: all members, or, with *far sets*,
//! one set. `layout >> 17` defines a set: 0 all members; 1 members / far copies (flawed: with few members a set is
//! smaller than the number of copies, and some share a member); 2 near * far copies. Remaining members belong to the
//! last set.
//!
//! md accepts two kinds of shapes in which two chunks' copies share a position, so one overwrites the other. They are
//! refused:
//!
//! * Near copies > 1, far sets, remaining members. md decides whether a copy is in the last, larger set by its position
//!   before wrapping around. That is wrong for the last members of the previous set.
//! * Near copies > 1 that do not divide the members, offset copies. A near copy that wraps around to the first member
//!   moves down one chunk, not one row, to the position of an offset copy.
//!
//! Nothing here does I/O. Source: `drivers/md/raid10.c`.

use super::layout::{RAID10_FAR_SETS_SHIFT, RAID10_OFFSET, raid10_name};
use super::{Copies, Shape, check_array, check_chunk_of_pages, check_component, unknown_layout};
use crate::defect::Defect;
use crate::units::{ComponentByte, Slot};

/// The geometry of a RAID-10 array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Raid10 {
    layout: u32,
    members: u64,
    near: u64,
    far: u64,
    chunk_shift: u32,
    /// Chunks in the array.
    chunks: u64,
    /// Component chunks from one row to the next: the number of far copies when they are offset, else 1.
    row_chunks: u64,
    /// Component bytes from a chunk's copy to its next far copy.
    stride_bytes: u64,
    /// Component bytes in use.
    used_bytes: u64,
    /// `moved[(f - 1) * members + m]`: the slot of far copy f of member m's data.
    moved: Vec<Slot>,
}

impl Raid10 {
    pub(super) fn new(shape: &Shape) -> Result<Self, Defect> {
        let chunk_shift = check_chunk_of_pages(shape.chunk_bytes)?;
        let layout = shape.layout;
        let (near, far) = (layout & 0xff, layout >> 8 & 0xff);
        if layout >> RAID10_FAR_SETS_SHIFT > 2 {
            return Err(unknown_layout(layout, "0, 1 or 2 above bit 16"));
        }
        let copies = near * far;
        if copies < 2 || copies > u32::from(shape.slots) {
            let reason =
                format!("near={near}, far={far} is {copies} copies, but {} members hold 2 to {0}", shape.slots);
            return Err(Defect::new("superblock.layout", reason));
        }
        let (members, near, far) = (u64::from(shape.slots), u64::from(near), u64::from(far));
        let offset = layout & RAID10_OFFSET != 0;
        if offset && far > 1 && !members.is_multiple_of(near) {
            return Err(overwrites(layout, shape.slots));
        }
        check_component(shape.component_bytes, far << chunk_shift)?;
        // Rows of one stride. md rounds the used size up and then down again, with the same result.
        let rows = (shape.component_bytes >> chunk_shift) / far;
        let chunks = u128::from(rows) * u128::from(members) / u128::from(near);
        let array_bytes = check_array("superblock.size", chunks << chunk_shift)?;
        Ok(Self {
            layout,
            members,
            near,
            far,
            chunk_shift,
            chunks: array_bytes >> chunk_shift,
            row_chunks: if offset { far } else { 1 },
            stride_bytes: if offset { 1 } else { rows } << chunk_shift,
            used_bytes: (rows * far) << chunk_shift,
            moved: far_copies(layout, shape.slots)?,
        })
    }

    pub(super) fn array_bytes(&self) -> u64 {
        self.chunks << self.chunk_shift
    }

    pub(super) fn used_bytes(&self) -> u64 {
        self.used_bytes
    }

    pub(super) fn layout_name(&self) -> String {
        raid10_name(self.layout)
    }

    /// Length and positions of the piece at `at`, which is within the array.
    #[inline]
    pub(super) fn find(&self, at: u64) -> (u64, Copies) {
        let chunk = at >> self.chunk_shift;
        let offset = at & ((1 << self.chunk_shift) - 1);
        let bytes = if self.near == self.members { self.array_bytes() - at } else { (1 << self.chunk_shift) - offset };
        (bytes, self.copies(chunk, offset))
    }

    /// The array byte of which `slot` holds a copy at component byte `at`. `None` for the rest of the used bytes, which
    /// no chunk uses. The inverse of [`Raid10::find`].
    pub(super) fn held(&self, slot: Slot, at: u64) -> Option<u64> {
        if at >= self.used_bytes {
            return None;
        }
        let (place, offset) = (at >> self.chunk_shift, at & ((1 << self.chunk_shift) - 1));
        let rows = (self.used_bytes / self.far) >> self.chunk_shift;
        let (row, far) = match self.layout & RAID10_OFFSET != 0 {
            true => (place / self.far, place % self.far),
            false => (place % rows, place / rows),
        };
        let member = match far {
            0 => u64::from(slot.0),
            far => {
                (0..self.members).find(|&member| self.moved[((far - 1) * self.members + member) as usize] == slot)?
            }
        };
        let chunk = (row * self.members + member) / self.near;
        (chunk < self.chunks).then_some((chunk << self.chunk_shift) + offset)
    }

    /// Bytes from component byte `at` to the end of its chunk.
    pub(super) fn chunk_rest(&self, at: u64) -> u64 {
        let chunk = 1 << self.chunk_shift;
        chunk - at % chunk
    }

    pub(super) fn chunk_bytes(&self) -> u64 {
        1 << self.chunk_shift
    }

    pub(super) fn copies_of_each(&self) -> u16 {
        (self.near * self.far) as u16
    }

    /// The copies of byte `offset` of `chunk`, near copies outermost, in md's order.
    #[inline]
    fn copies(&self, chunk: u64, offset: u64) -> Copies {
        let first = chunk * self.near;
        let (mut row, mut member) = (first / self.members, first % self.members);
        let mut copies = Copies::new();
        for _ in 0..self.near {
            let component = ((row * self.row_chunks) << self.chunk_shift) + offset;
            copies.push((Slot(member as u16), ComponentByte(component)));
            for far in 1..self.far {
                let slot = self.moved[((far - 1) * self.members + member) as usize];
                copies.push((slot, ComponentByte(component + far * self.stride_bytes)));
            }
            member += 1;
            if member == self.members {
                (row, member) = (row + 1, 0);
            }
        }
        copies
    }

    /// Whether each chunk keeps a copy. The members of a chunk repeat after at most as many chunks as there are
    /// members.
    pub(super) fn survives(&self, missing: &dyn Fn(Slot) -> bool) -> bool {
        self.copies_left(missing) > 0
    }

    /// The copies of the chunk that has the fewest.
    pub(super) fn copies_left(&self, missing: &dyn Fn(Slot) -> bool) -> u16 {
        let left = |chunk| self.copies(chunk, 0).iter().filter(|&&(slot, _)| !missing(slot)).count() as u16;
        (0..self.members.min(self.chunks)).map(left).min().unwrap_or(1)
    }
}

/// The table `moved` of [`Raid10`].
fn far_copies(layout: u32, slots: u16) -> Result<Vec<Slot>, Defect> {
    let (members, near, far) = (usize::from(slots), (layout & 0xff) as usize, (layout >> 8 & 0xff) as usize);
    let set = match layout >> RAID10_FAR_SETS_SHIFT {
        0 => members,
        1 => members / far,
        _ => near * far,
    };
    let left_over = members % set;
    let last_set = (members / set - 1) * set;
    let next = |member: usize| {
        let moved = member + near;
        if left_over != 0 && moved > last_set {
            last_set + (moved - last_set) % (set + left_over)
        } else {
            member / set * set + moved % set
        }
    };
    let mut moved = Vec::with_capacity((far - 1) * members);
    let mut copy: Vec<usize> = (0..members).collect();
    for _ in 1..far {
        for member in &mut copy {
            *member = next(*member);
        }
        let mut taken = vec![false; members];
        if copy.iter().any(|&member| std::mem::replace(&mut taken[member], true)) {
            return Err(overwrites(layout, slots));
        }
        moved.extend(copy.iter().map(|&member| Slot(member as u16)));
    }
    Ok(moved)
}

/// The defect of a layout in which md loses data with this many members.
fn overwrites(layout: u32, slots: u16) -> Defect {
    let reason = format!(
        "{layout} ({layout:#x}): with {slots} members md puts copies of two chunks at one position in this layout, and \
         loses one of them"
    );
    Defect::new("superblock.layout", reason)
}
