//! One case of silent corruption, played in virtual time: an array is created, written, corrupted, checked and
//! repaired. Its members take no time.

use super::kinds::Kind;
use super::{Images, Said, Shape, Tally, judge};
use crate::LabMember;
use engine::create::{Contents, Newcomer, Recipe, create};
use engine::{Array, AssembleOptions, Candidate, Durability, Pool, ScrubAction, ScrubReport, ScrubRequest};
use world::Random;
use world::{VirtualClock, World};

/// The first byte of data on each member.
const DATA_OFFSET: u64 = 64 << 10;

/// A case while it is played.
struct Case<'a> {
    shape: &'a Shape,
    world: World,
    members: Vec<LabMember>,
    pool: Pool,
}

type Simulated = Array<LabMember, VirtualClock>;

impl<'a> Case<'a> {
    fn new(shape: &'a Shape, seed: u64) -> Self {
        let world = World::new(seed);
        let bytes = (DATA_OFFSET + Shape::COMPONENT_BYTES).next_multiple_of(64 << 10);
        let member = |slot| LabMember::instant(format!("member{slot}"), &world, bytes);
        let members = (0..shape.slots).map(member).collect();
        Self { shape, world, members, pool: Pool::new(4 << 20) }
    }

    fn candidate(member: &LabMember) -> Candidate<LabMember> {
        Candidate { name: member.name(), member: member.clone() }
    }

    async fn create(&self) {
        let recipe = Recipe {
            layout: self.shape.layout,
            chunk_bytes: self.shape.chunk_bytes,
            name: "sim:rot".to_owned(),
            data_offset_bytes: Some(DATA_OFFSET),
            component_bytes: Some(Shape::COMPONENT_BYTES),
            contents: Contents::Consistent,
            integrity: self.shape.integrity,
            ..Recipe::new(self.shape.level, [7; 16])
        };
        let newcomer =
            |(number, member)| Some(Newcomer { candidate: Self::candidate(member), device_uuid: [number; 16] });
        let newcomers: Vec<_> = (0..).zip(&self.members).map(newcomer).collect();
        create(&recipe, &newcomers, &[], &self.pool, &self.world.clock(), &|_, _| {}).await.expect("it can be made");
    }

    async fn assemble(&self) -> Simulated {
        let members = self.members.iter().map(Self::candidate).collect();
        let assembled = Array::assemble(members, AssembleOptions::default(), self.pool.clone(), self.world.clock());
        assembled.await.expect("its own array")
    }

    /// Fills the array with noise, and stops it cleanly.
    async fn fill(&self, random: &mut Random) {
        let array = self.assemble().await;
        let mut bytes = vec![0; array.bytes() as usize];
        random.fill(&mut bytes);
        array.write(0, self.pool.copy_of(&bytes), Durability::Stable).await.expect("a whole array");
        array.stop().await.expect("a whole array");
    }

    /// The data areas of all members.
    fn images(&self) -> Images {
        self.members.iter().map(|member| member.look(DATA_OFFSET, Shape::COMPONENT_BYTES)).collect()
    }

    fn plant(&self, images: &Images) {
        for (member, image) in self.members.iter().zip(images) {
            member.spoil(DATA_OFFSET, image);
        }
    }

    async fn scrub(&self, action: ScrubAction) -> ScrubReport {
        let array = self.assemble().await;
        array.begin_scrub(&ScrubRequest { action, range: None }).expect("a whole array");
        array.scrub(&|_, _| {}).await.expect("no member fails");
        let report = array.scrub_report().expect("one was begun");
        array.stop().await.expect("no member fails");
        report
    }
}

/// Plays one case and judges it.
pub fn run_case(shape: &Shape, kind: Kind, seed: u64) -> Tally {
    let mut random = Random::new(seed);
    let case = Case::new(shape, seed);
    let life = async {
        case.create().await;
        case.fill(&mut random).await;
        let older = case.images();
        case.fill(&mut random).await;
        let right = case.images();
        let spoiled = kind.spoil(&right, &older, &mut random);
        case.plant(&spoiled);
        let mut said = Said::default();
        said.add(&case.scrub(ScrubAction::Check).await, DATA_OFFSET);
        let after_check = case.images();
        case.scrub(ScrubAction::Repair).await;
        judge(&right, &spoiled, &said, &after_check, &case.images())
    };
    case.world.run(life, || false).expect("the run is not stopped")
}

/// Plays `cases` cases, from seed `seed` on.
pub fn run(shape: &Shape, kind: Kind, seed: u64, cases: u64) -> Tally {
    let mut tally = Tally::default();
    (seed..seed + cases).for_each(|seed| tally += run_case(shape, kind, seed));
    tally
}

#[cfg(test)]
mod tests {
    use super::super::{SHAPES, SURE_SHAPES};
    use super::*;

    fn check_every_kind(shapes: &[Shape]) {
        for shape in shapes {
            for kind in Kind::ALL {
                let tally = run(shape, kind, 0, 12);
                assert!(tally.is_as_good_as_can_be(shape, kind), "{}, {kind:?}: {tally:?}", shape.name);
                assert!(tally.wrong >= 12 || kind == Kind::Exchanged, "{}, {kind:?}: {tally:?}", shape.name);
            }
        }
    }

    #[test]
    fn each_corrupted_block_is_named_or_undecidable_and_no_healthy_block_changes() {
        check_every_kind(&SHAPES);
    }

    #[test]
    fn checksums_name_each_corrupted_block_and_heal_it_or_report_it_lost() {
        check_every_kind(&SURE_SHAPES);
    }
}
