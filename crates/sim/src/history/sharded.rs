//! A history's array, by one shard or several: tasks of one world, with letters that take their time between them.
//!
//! Letters of one shard to another stay in order; between pairs there is none. A life's requests all come in at one shard.

use super::run::Runner;
use crate::member::SimMember;
use engine::{
    Array, ArrayError, AssembleOptions, Block, Buffer, Clock, Division, Durability, Letter, Post, Shard, ShardOptions,
    Shareable,
};
use futures_channel::mpsc;
use futures_util::StreamExt;
use std::ops::Deref;
use std::rc::Rc;
use std::time::Duration;
use world::{VirtualClock, World};

type SimShard = Shard<SimMember, VirtualClock>;

/// All that an array's user does, its requests by way of a shard where there are several.
#[derive(Clone)]
pub(super) struct Simulated {
    array: Array<SimMember, VirtualClock>,
    way: Option<SimShard>,
}

impl Deref for Simulated {
    type Target = Array<SimMember, VirtualClock>;

    fn deref(&self) -> &Self::Target {
        &self.array
    }
}

/// The request of whichever there is.
macro_rules! by_way {
    ($self:ident, $to:ident => $call:expr) => {
        match &$self.way {
            None => {
                let $to = &$self.array;
                $call
            }
            Some($to) => $call,
        }
    };
}

impl Simulated {
    /// Whether requests that are under way at the same time have no order.
    pub(super) fn is_sharded(&self) -> bool {
        self.way.is_some()
    }

    pub(super) async fn read(&self, at: u64, into: Buffer) -> Result<Buffer, ArrayError> {
        by_way!(self, to => to.read(at, into).await)
    }

    pub(super) async fn write(&self, at: u64, from: Block, durability: Durability) -> Result<(), ArrayError> {
        by_way!(self, to => to.write(at, from, durability).await)
    }

    pub(super) async fn flush(&self) -> Result<(), ArrayError> {
        by_way!(self, to => to.flush().await)
    }

    pub(super) async fn discard(&self, at: u64, bytes: u64) -> Result<(), ArrayError> {
        by_way!(self, to => to.discard(at, bytes).await)
    }

    pub(super) async fn write_zeroes(&self, at: u64, bytes: u64, durability: Durability) -> Result<(), ArrayError> {
        by_way!(self, to => to.write_zeroes(at, bytes, durability).await)
    }

    pub(super) async fn punch_hole(&self, at: u64, bytes: u64, durability: Durability) -> Result<(), ArrayError> {
        by_way!(self, to => to.punch_hole(at, bytes, durability).await)
    }
}

impl Shareable for SimMember {
    type Handle = Self;

    fn share(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn open(handle: Self) -> Self {
        handle
    }
}

type Line = mpsc::UnboundedSender<Letter<SimMember>>;

/// A shard's lines to all, itself too, by number.
struct Lines(Vec<Line>);

impl Post<SimMember> for Lines {
    fn send(&self, to: u16, letter: Letter<SimMember>) {
        // A carrier that is gone went with its world.
        drop(self.0[usize::from(to)].unbounded_send(letter));
    }
}

/// Carries letters of one shard to another, one after the other.
async fn carry(world: World, mut line: mpsc::UnboundedReceiver<Letter<SimMember>>, to: SimShard) {
    let clock = world.clock();
    while let Some(letter) = line.next().await {
        let micros_max = if world.chance(0..8) == 0 { 2000 } else { 40 };
        clock.sleep_until(clock.now() + Duration::from_micros(world.chance(0..micros_max))).await;
        if let Some(work) = to.deliver(letter) {
            world.spawn(work);
        }
    }
}

impl Runner<'_> {
    /// The array as its users have it, with the shards that it is to have.
    pub(super) fn divide(&self, array: Array<SimMember, VirtualClock>) -> Simulated {
        let setup = &self.history.setup;
        if setup.shards == 1 {
            return Simulated { array, way: None };
        }
        let run_bytes = 4096 << self.world.chance(0..6);
        let division = Division::new(&array, setup.shards, run_bytes);
        let AssembleOptions { kernel, cache_bytes, gather_bytes, read_ahead_bytes, .. } = setup.options(false);
        let writeback = setup.writeback;
        let options = ShardOptions { kernel, cache_bytes, gather_bytes, read_ahead_bytes, writeback };
        let mut arriving: Vec<Vec<_>> = (0..setup.shards).map(|_| Vec::new()).collect();
        let mut posts = Vec::new();
        for _ in 0..setup.shards {
            let (lines, ends): (Vec<_>, Vec<_>) = (0..setup.shards).map(|_| mpsc::unbounded()).unzip();
            arriving.iter_mut().zip(ends).for_each(|(arriving, end)| arriving.push(end));
            posts.push(Rc::new(Lines(lines)) as Rc<dyn Post<SimMember>>);
        }
        let shards: Vec<SimShard> = (0..)
            .zip(posts)
            .map(|(number, post)| match number {
                0 => Shard::first(array.clone(), division.clone(), post),
                _ => Shard::further(
                    number,
                    division.clone(),
                    options.clone(),
                    self.pool.clone(),
                    self.world.clock(),
                    post,
                ),
            })
            .collect();
        for (shard, lines) in shards.iter().zip(arriving) {
            lines.into_iter().for_each(|line| self.world.spawn(carry(self.world.clone(), line, shard.clone())));
        }
        let first = shards[0].clone();
        self.run_beside(async move { first.give_licences().await });
        let way = self.world.chance(0..u64::from(setup.shards)) as usize;
        Simulated { array, way: Some(shards[way].clone()) }
    }
}
