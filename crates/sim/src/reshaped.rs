//! Arrays that get more slots by a reshape, and their members when power goes at one of its writes.
//!
//! The scenes of `more_slots.rs` in the simulator's tests, which go on with the engine, and of `tests/kernel/more_slots.sh`,
//! which goes on with the real driver. It judges nothing.

use crate::member::SimMember;
use engine::create::{Contents, Newcomer, Recipe, create};
use engine::reshape::{Plan, Reshaping};
use engine::{Array, AssembleOptions, Candidate, Durability, Pool, Refusal};
use format::geometry::Level;
use std::cell::Cell;
use std::rc::Rc;
use world::{Random, VirtualClock, World};

const MEMBER_BYTES: usize = 512 << 10;

/// The old shape and the new one.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    /// The level.
    pub level: Level,
    /// md's number of the layout.
    pub layout: u32,
    /// Slots before.
    pub slots: u16,
    /// Slots afterwards.
    pub new_slots: u16,
    /// Bytes in a chunk.
    pub chunk: u64,
    /// Bytes before the data. The data moves by half of what is free there.
    pub data_at: u64,
    /// Bytes that are used of each member.
    pub component: u64,
}

/// The members of an array before its reshape, and what it holds.
pub struct Scene {
    /// The shapes.
    pub case: Case,
    images: Vec<Vec<u8>>,
    /// The array's bytes.
    pub bytes: Vec<u8>,
}

/// The members by their names.
pub fn candidates(members: &[SimMember]) -> Vec<Candidate<SimMember>> {
    members.iter().map(|member| Candidate { name: member.name(), member: member.clone() }).collect()
}

/// Memory for a scene.
pub fn pool() -> Pool {
    Pool::new(1 << 20)
}

fn members_of(images: &[Vec<u8>], world: &World, boundaries: &Rc<Cell<u64>>) -> Vec<SimMember> {
    let member = |(index, image): (usize, &Vec<u8>)| {
        SimMember::new(format!("m{index}"), world, image.clone(), boundaries.clone())
    };
    images.iter().enumerate().map(member).collect()
}

impl Scene {
    /// An array with random bytes, and with as many spares as it is to get slots.
    pub fn new(case: Case, seed: u64) -> Self {
        let world = World::new(seed);
        let blank = vec![vec![0; MEMBER_BYTES]; case.new_slots.into()];
        let members = members_of(&blank, &world, &Rc::default());
        let course = async {
            let newcomer = |(index, candidate): (usize, Candidate<SimMember>)| Newcomer {
                candidate,
                device_uuid: [index as u8 + 1; 16],
            };
            let mut all = candidates(&members).into_iter().enumerate().map(newcomer);
            let slots: Vec<_> = all.by_ref().take(case.slots.into()).map(Some).collect();
            let spares: Vec<_> = all.collect();
            let recipe = Recipe {
                layout: case.layout,
                chunk_bytes: case.chunk,
                data_offset_bytes: Some(case.data_at),
                component_bytes: Some(case.component),
                contents: Contents::Zeros,
                ..Recipe::new(case.level, [7; 16])
            };
            create(&recipe, &slots, &spares, &pool(), &world.clock(), &|_, _| {}).await.expect("created");
            let (all, options) = (candidates(&members), AssembleOptions::default());
            let array = Array::assemble(all, options, pool(), world.clock()).await.expect("whole");
            let mut bytes = vec![0; array.bytes() as usize];
            Random::new(seed).fill(&mut bytes);
            array.write(0, array.pool().copy_of(&bytes), Durability::Stable).await.expect("written");
            array.stop().await.expect("clean");
            bytes
        };
        let bytes = world.run(course, || false).expect("the power does not go");
        Self { case, images: members.iter().map(SimMember::contents).collect(), bytes }
    }

    /// The members, as they are before the reshape. Their writes and flushes are counted in `boundaries`.
    pub fn members(&self, world: &World, boundaries: &Rc<Cell<u64>>) -> Vec<SimMember> {
        members_of(&self.images, world, boundaries)
    }
}

/// The reshape of these members.
///
/// # Panics
/// When one has no superblock.
pub async fn reshaping(members: &[SimMember], world: &World) -> Reshaping<SimMember, VirtualClock> {
    Reshaping::of(candidates(members), pool(), world.clock()).await.expect("members of one array")
}

/// Plans, begins and carries out the whole reshape.
///
/// # Errors
/// Those of the engine.
pub async fn reshape(case: Case, members: &[SimMember], world: &World) -> Result<Plan, Refusal> {
    let options = AssembleOptions::default();
    let mut reshaping = reshaping(members, world).await;
    let plan = reshaping.plan(case.new_slots, &[], &options).await?;
    reshaping.begin(&plan).await?;
    let reshaped = reshaping.carry_out(&options, false, &|done, all| assert!(done <= all)).await?;
    assert_eq!((reshaped.array_bytes, reshaped.slots), (plan.bytes_after, case.new_slots));
    Ok(plan)
}

/// The shapes that are tried, each with a seed.
pub fn cases() -> impl Iterator<Item = (u64, Case)> {
    use Level::{Raid4, Raid5, Raid6};
    let cases: [(_, _, _, _, u64, u64, u64); 7] = [
        (Raid5, 2, 3, 4, 4, 200, 64),
        (Raid5, 2, 3, 5, 16, 256, 128),
        (Raid5, 0, 2, 3, 4, 176, 40),
        (Raid5, 3, 4, 5, 8, 200, 96),
        (Raid6, 2, 4, 5, 4, 180, 64),
        (Raid6, 2, 5, 7, 4, 200, 48),
        (Raid4, 0, 3, 4, 8, 200, 64),
    ];
    let case = |(level, layout, slots, new_slots, chunk, data_at, component)| Case {
        level,
        layout,
        slots,
        new_slots,
        chunk: chunk << 10,
        data_at: data_at << 10,
        component: component << 10,
    };
    (0..).zip(cases.map(case))
}

/// The members after a loss of power, and the counter of their writes and flushes.
pub type Cut = (Vec<SimMember>, Rc<Cell<u64>>);

impl Scene {
    /// Cuts power at a boundary of the reshape. `None` if the reshape ends before.
    ///
    /// # Panics
    /// When the reshape fails.
    pub fn cut(&self, boundary: u64, world: &World, random: &mut Random) -> Option<Cut> {
        let boundaries = Rc::new(Cell::new(0));
        let members = self.members(world, &boundaries);
        if let Some(ended) = world.run(reshape(self.case, &members, world), || boundaries.get() >= boundary) {
            ended.expect("nothing fails");
            return None;
        }
        members.iter().for_each(|member| member.lose_power(random));
        Some((members, boundaries))
    }
}
