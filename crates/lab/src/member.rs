//! A member on a modelled drive, on a part of one, or on no drive and then without delay.
//!
//! A transfer takes the host's time and then the drive's. Nothing fails here: members with faults belong to the simulator.

use crate::contents::Contents;
use crate::drive::{Request, Station};
use crate::host::{Host, HostTime};
use engine::{Block, Buffer, Clock, Limits, Member, MemberError, MemberFault, Operation};
use format::units::MemberByte;
use std::cell::RefCell;
use std::rc::Rc;
use world::World;
use world::member_limits;

/// One transfer, as the block layer's tracers print it.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Traced {
    /// The moment of completion, in seconds since the start of the trace.
    pub seconds: f64,
    /// The process that issued the transfer.
    pub process: &'static str,
    /// The member's name.
    pub device: String,
    /// `R`, `W` or `F`.
    pub operation: char,
    /// First sector of 512 bytes.
    pub sector: u64,
    /// Bytes.
    pub bytes: u64,
    /// From submission to completion, in milliseconds.
    pub latency_ms: f64,
}

/// Transfers of all members since the start of the trace; `None` while no trace is recorded.
pub(crate) type Trace = Rc<RefCell<Option<(u64, Vec<Traced>)>>>;

struct State {
    name: String,
    world: World,
    limits: Limits,
    /// The drive, and the member's first byte on it.
    place: Option<(Rc<Station>, u64)>,
    host: Rc<Host>,
    contents: RefCell<Contents>,
    trace: Trace,
}

/// A member on a modelled drive; clones share it.
#[derive(Clone)]
pub struct LabMember(Rc<State>);

impl LabMember {
    /// A member of `bytes` that begins at `start` of the drive at `station`.
    pub(crate) fn new(
        name: String,
        world: &World,
        station: Rc<Station>,
        start: u64,
        bytes: u64,
        host: Rc<Host>,
        trace: Trace,
    ) -> Self {
        let interface = station.interface();
        let limits = Limits {
            logical_block_bytes: interface.logical_block_bytes,
            physical_block_bytes: interface.physical_block_bytes,
            optimal_bytes: interface.optimal_bytes,
            volatile_cache: interface.volatile_cache,
            ..member_limits(bytes)
        };
        Self::with(name, world, limits, Some((station, start)), host, trace)
    }

    /// A member of `bytes` zeros on no drive; it completes every transfer at once.
    pub(crate) fn instant(name: String, world: &World, bytes: u64) -> Self {
        let host = Rc::new(Host::new(world, HostTime::NONE));
        Self::with(name, world, member_limits(bytes), None, host, Trace::default())
    }

    fn with(
        name: String,
        world: &World,
        limits: Limits,
        place: Option<(Rc<Station>, u64)>,
        host: Rc<Host>,
        trace: Trace,
    ) -> Self {
        let world = world.clone();
        Self(Rc::new(State { name, world, limits, place, host, contents: RefCell::default(), trace }))
    }

    /// The member's name.
    pub fn name(&self) -> String {
        self.0.name.clone()
    }

    /// Overwrites bytes without taking time and without any report: silent corruption.
    pub(crate) fn spoil(&self, at: u64, bytes: &[u8]) {
        self.0.contents.borrow_mut().write(at, bytes);
    }

    /// The bytes at `at`, without taking time.
    pub(crate) fn look(&self, at: u64, bytes: u64) -> Vec<u8> {
        let mut into = vec![0; bytes as usize];
        self.0.contents.borrow().read(at, &mut into);
        into
    }

    async fn serve(&self, operation: Operation, at: u64, bytes: u64) {
        let state = &self.0;
        state.host.transfer(operation, bytes).await;
        let begun = state.world.clock().now().nanos;
        if let Some((station, start)) = &state.place {
            station.serve(Request { operation, at: start + at, bytes }).await;
        }
        if let Some((start, traced)) = &mut *state.trace.borrow_mut() {
            let now = state.world.clock().now().nanos;
            traced.push(Traced {
                seconds: (now - *start) as f64 / 1e9,
                process: "mdspace",
                device: state.name.clone(),
                operation: match operation {
                    Operation::Read => 'R',
                    Operation::Flush => 'F',
                    _ => 'W',
                },
                sector: at / 512,
                bytes,
                latency_ms: (now - begun) as f64 / 1e6,
            });
        }
    }

    fn unsupported(operation: Operation, at: MemberByte, bytes: u64) -> MemberError {
        let source = Rc::new(std::io::Error::other("the modelled drive cannot"));
        MemberFault { kind: engine::MemberErrorKind::Unsupported, operation, at, bytes, source }.into()
    }
}

impl Member for LabMember {
    fn limits(&self) -> &Limits {
        &self.0.limits
    }

    async fn read(&self, at: MemberByte, mut into: Buffer) -> (Result<(), MemberError>, Buffer) {
        self.serve(Operation::Read, at.0, into.len() as u64).await;
        self.0.contents.borrow().read(at.0, &mut into);
        (Ok(()), into)
    }

    async fn read_vectored(&self, at: MemberByte, mut into: Vec<Buffer>) -> (Result<(), MemberError>, Vec<Buffer>) {
        self.serve(Operation::Read, at.0, into.iter().map(|part| part.len() as u64).sum()).await;
        let mut position = at.0;
        for part in &mut into {
            self.0.contents.borrow().read(position, part);
            position += part.len() as u64;
        }
        (Ok(()), into)
    }

    async fn write(&self, at: MemberByte, from: Block) -> Result<(), MemberError> {
        self.write_vectored(at, vec![from]).await
    }

    async fn write_vectored(&self, at: MemberByte, from: Vec<Block>) -> Result<(), MemberError> {
        self.serve(Operation::Write, at.0, from.iter().map(|part| part.len() as u64).sum()).await;
        let mut position = at.0;
        for part in &from {
            self.0.contents.borrow_mut().write(position, part);
            position += part.len() as u64;
        }
        Ok(())
    }

    async fn flush(&self) -> Result<(), MemberError> {
        if self.0.limits.volatile_cache {
            self.serve(Operation::Flush, 0, 0).await;
        }
        Ok(())
    }

    async fn discard(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(Self::unsupported(Operation::Discard, at, bytes))
    }

    async fn write_zeroes(&self, at: MemberByte, bytes: u64) -> Result<(), MemberError> {
        Err(Self::unsupported(Operation::WriteZeroes, at, bytes))
    }
}
