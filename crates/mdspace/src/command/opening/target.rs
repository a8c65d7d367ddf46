//! What `read` and `serve` work on: an array, or with `--inner` something inside of one or more arrays.
//!
//! With `--inner` the members may be of several arrays, of which only those are opened that the wanted bytes lie on
//! ([`crate::inside`]).

use crate::command::opening::arguments::AssembleArguments;
use crate::command::opening::assembly::{Found, note_disks, unknown_on};
use crate::command::opening::members::expand;
use crate::command::text::failure::Failure;
use crate::inside::Sorted;
use crate::layers::Bytes;
use crate::machine::{Array, Machine, Purpose};
use engine::BitmapPolicy;
use futures_util::future::LocalBoxFuture;
use std::path::PathBuf;

/// Opened bytes, and the arrays that they lie on.
pub(crate) struct Target {
    /// The arrays, of which the first speaks for all where one is expected.
    pub(crate) arrays: Vec<Array>,
    pub(crate) volume: Bytes,
    /// The name of something inside.
    pub(crate) inner: Option<String>,
}

impl Target {
    /// A whole array.
    pub(crate) fn whole(array: Array) -> Self {
        Self { volume: Bytes::of(&array), arrays: vec![array], inner: None }
    }

    /// The first array.
    pub(crate) fn array(&self) -> &Array {
        &self.arrays[0]
    }

    /// Runs `work`, and meanwhile abandons operations of members that exceed their timeout.
    pub(crate) async fn in_time<T>(&self, work: impl Future<Output = T>) -> T {
        let mut work: LocalBoxFuture<'_, T> = Box::pin(work);
        for array in &self.arrays {
            work = Box::pin(array.in_time(work));
        }
        work.await
    }

    /// Stops every array; returns the first error.
    pub(crate) async fn stop(&self) -> Result<(), engine::ArrayError> {
        let mut stopped = Ok(());
        for array in &self.arrays {
            stopped = stopped.and(array.stop().await);
        }
        stopped
    }
}

impl Machine {
    /// Opens the array that `arguments` name, or what `inner` names inside of it, or over several.
    pub(crate) async fn open_target(
        &self,
        arguments: &AssembleArguments,
        inner: Option<&str>,
        purpose: Purpose,
        policy: BitmapPolicy,
    ) -> Result<Target, Failure> {
        if let Some(target) = self.open_container(arguments, inner, purpose).await? {
            return Ok(target);
        }
        let Some(inner) = inner else {
            return Ok(Target::whole(self.assemble(arguments, purpose, policy).await?));
        };
        let consent = arguments.consent();
        if arguments.geometry().is_some() {
            let arrays = vec![self.assemble(arguments, purpose, policy).await?];
            let volume = self.find_inside(inner, &arrays, &[], &[], consent).await?;
            return Ok(Target { arrays, volume, inner: Some(inner.to_owned()) });
        }
        let (members, _) = arguments.resolve()?;
        let (mut found, plain) = match members.choice() {
            Some(_) => (vec![self.find(&members).await?], Vec::new()),
            None => {
                let Sorted { arrays, plain, disks } = self.sort(expand(&members.members)?).await?;
                note_disks(&disks);
                let mut found: Vec<Found> = arrays.into_iter().map(Found::of).collect();
                if let [found] = &mut found[..] {
                    found.unknown = unknown_on(&disks);
                }
                (found, plain)
            }
        };
        let mut others = Vec::new();
        if found.len() > 1 {
            let all: Vec<&[PathBuf]> = found.iter().map(|found| &found.own[..]).collect();
            let needed = self.needed(&all, &plain, inner, consent).await?;
            others = needed.others;
            let all = found.into_iter().enumerate();
            found = all.filter(|(place, _)| needed.used.contains(place)).map(|(_, found)| found).collect();
        }
        let mut arrays = Vec::new();
        for found in &found {
            arrays.push(self.assemble_found(arguments, found, purpose, policy).await?);
        }
        let volume = self.find_inside(inner, &arrays, &others, &plain, consent).await?;
        Ok(Target { arrays, volume, inner: Some(inner.to_owned()) })
    }
}
