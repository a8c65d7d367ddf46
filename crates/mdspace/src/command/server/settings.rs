//! The settings of a running array that `mdspace set` changes, in one table.
//!
//! All values are checked against the array before the first is changed, so a request with one bad value changes
//! nothing.

use crate::command::opening::bitmap_file::BitmapFile;
use crate::command::text::size::{Size, parse_sensible};
use crate::machine::{Array, Machine};
use engine::status::level_name;
use engine::{
    BitmapPolicy, ConsistencyPolicy, Refusal, ScrubAction, ScrubRequest, StripeSize, SweepTransfers, SyncSpeed, Verify,
};
use format::geometry::Level;
use format::superblock::DeviceFlags;
use futures_util::FutureExt;
use futures_util::future::LocalBoxFuture;
use std::collections::BTreeMap;
use std::time::Duration;

/// A checked change that has not begun.
pub(crate) type Change<'a> = LocalBoxFuture<'a, Result<(), Refusal>>;

/// A setting.
pub(crate) struct Setting {
    /// Its name: `KEY` of `KEY=VALUE`.
    pub(crate) key: &'static str,
    /// Its values, for the user.
    pub(crate) values: &'static str,
    /// The change may take long, or wait for a file.
    is_slow: bool,
    /// Checks a value for the array. The machine opens files that the change needs.
    prepare: for<'a> fn(&'a Machine, &'a Array, &str) -> Result<Change<'a>, Refusal>,
}

/// All settings, sorted by key.
pub(crate) const SETTINGS: [Setting; 16] = [
    Setting {
        key: "bitmap",
        values: "none, internal[:CHUNK], or /FILE[:CHUNK]",
        is_slow: true,
        prepare: |machine, array, value| {
            let change = parse_bitmap(value)?;
            if array.is_read_only() {
                return Err(Refusal::new("the array is read-only"));
            }
            Ok(async move {
                match change {
                    BitmapChange::Remove => array.remove_bitmap().await,
                    BitmapChange::Internal { chunk_bytes } => {
                        array.add_bitmap(chunk_bytes, BitmapPolicy::default()).await
                    }
                    BitmapChange::File(file) => file.add_to(array, machine).await,
                }
            }
            .boxed_local())
        },
    },
    Setting {
        key: "bitmap-delay",
        values: "seconds, from 1 to 86400",
        is_slow: true,
        prepare: |_, array, value| {
            let seconds = value.parse().map_err(|_| Refusal::new(format!("{value:?} is not a number of seconds")))?;
            if array.is_read_only() {
                return Err(Refusal::new("the array is read-only"));
            }
            array.check_bitmap_delay(seconds)?;
            let array = array.clone();
            Ok(async move { array.set_bitmap_delay(seconds).await }.boxed_local())
        },
    },
    Setting {
        key: "consistency-policy",
        values: "resync, bitmap, ppl, or log",
        is_slow: true,
        prepare: |_, array, value| {
            let policy = ConsistencyPolicy::from_name(value)
                .ok_or_else(|| Refusal::new(format!("{value:?} is not a consistency policy")))?;
            if array.is_read_only() {
                return Err(Refusal::new("the array is read-only"));
            }
            array.check_consistency(policy)?;
            let array = array.clone();
            Ok(async move { array.set_consistency(policy).await }.boxed_local())
        },
    },
    Setting {
        key: "failfast",
        values: MEMBER_FLAG,
        is_slow: true,
        prepare: |_, array, value| Ok(change_flag(array, DeviceFlags::FAIL_FAST, value)),
    },
    Setting {
        key: "integrity",
        values: "on",
        is_slow: true,
        prepare: |_, array, value| {
            if value != "on" {
                return Err(Refusal::new(format!("{value:?} is not \"on\"")));
            }
            let array = array.clone();
            Ok(async move { array.add_checksums().await }.boxed_local())
        },
    },
    Setting {
        key: "stripe-size",
        values: "auto, or a power of two from 4K to the chunk",
        is_slow: false,
        prepare: |_, array, value| {
            let stripe_size = parse_stripe_size(value).map_err(Refusal::new)?;
            array.check_stripe_size(stripe_size)?;
            let array = array.clone();
            Ok(async move { array.set_stripe_size(stripe_size) }.boxed_local())
        },
    },
    Setting {
        key: "max-corr-read-errors",
        values: "a count",
        is_slow: false,
        prepare: |_, array, value| {
            let count = value.parse().map_err(|_| Refusal::new(format!("{value:?} is not a count")))?;
            let array = array.clone();
            Ok(async move {
                array.set_read_errors_max(count);
                Ok(())
            }
            .boxed_local())
        },
    },
    Setting {
        key: "member-timeout",
        values: "none, or seconds",
        is_slow: false,
        prepare: |_, array, value| {
            let timeout = match value {
                "none" => None,
                _ => Some(parse_seconds(value)?),
            };
            let array = array.clone();
            Ok(async move {
                array.set_member_timeout(timeout);
                Ok(())
            }
            .boxed_local())
        },
    },
    Setting {
        key: "read-only",
        values: "on, or off",
        is_slow: true,
        prepare: |_, array, value| {
            let is_wanted = match value {
                "on" => true,
                "off" => false,
                _ => return Err(Refusal::new(format!("{value:?} is neither on nor off"))),
            };
            let array = array.clone();
            Ok(async move {
                match is_wanted {
                    true => array.make_read_only().await.map_err(|error| Refusal::new(error.reason)),
                    false => array.make_writable(),
                }
            }
            .boxed_local())
        },
    },
    Setting {
        key: "sweep-in-flight",
        values: "a power of two from 4K to 64M",
        is_slow: false,
        prepare: |_, array, value| {
            let in_flight_bytes = parse_bytes(value)?;
            SweepTransfers { in_flight_bytes, ..array.sweep_transfers() }.check()?;
            let array = array.clone();
            Ok(async move { array.set_sweep_transfers(SweepTransfers { in_flight_bytes, ..array.sweep_transfers() }) }
                .boxed_local())
        },
    },
    Setting {
        key: "sweep-window",
        values: "auto, or a power of two from 4K to 64M",
        is_slow: false,
        prepare: |_, array, value| {
            let window_bytes = if value == "auto" { None } else { Some(parse_bytes(value)?) };
            SweepTransfers { window_bytes, ..array.sweep_transfers() }.check()?;
            let array = array.clone();
            Ok(async move { array.set_sweep_transfers(SweepTransfers { window_bytes, ..array.sweep_transfers() }) }
                .boxed_local())
        },
    },
    Setting {
        key: "sync-action",
        values: "check, repair, idle, or frozen",
        is_slow: false,
        prepare: |_, array, value| {
            let scrub = match value {
                "frozen" | "idle" => None,
                "check" => Some(ScrubAction::Check),
                "repair" => Some(ScrubAction::Repair),
                _ => return Err(Refusal::new(format!("{value:?} is not a sync-action"))),
            };
            let (array, frozen) = (array.clone(), value == "frozen");
            Ok(async move {
                match scrub {
                    Some(action) => array.begin_scrub(&ScrubRequest { action, range: None })?,
                    // As in md: a requested scrub ends, and sweeps that are due continue.
                    None if !frozen => drop(array.cancel_scrub()),
                    None => {}
                }
                array.freeze_sweeps(frozen);
                Ok(())
            }
            .boxed_local())
        },
    },
    Setting {
        key: "sync-speed-min",
        values: "bytes a second, such as 20M",
        is_slow: false,
        prepare: |_, array, value| {
            let Size(min) = parse_rate(value)?;
            let array = array.clone();
            Ok(async move { array.set_sync_speed(SyncSpeed { min, ..array.sync_speed() }) }.boxed_local())
        },
    },
    Setting {
        key: "sync-speed-max",
        values: "none, or bytes a second, such as 200M",
        is_slow: false,
        prepare: |_, array, value| {
            let max = if value == "none" { None } else { Some(parse_rate(value)?.0) };
            let array = array.clone();
            Ok(async move { array.set_sync_speed(SyncSpeed { max, ..array.sync_speed() }) }.boxed_local())
        },
    },
    Setting {
        key: "verify",
        values: "always, or scrub",
        is_slow: false,
        prepare: |_, array, value| {
            let verify = Verify::from_name(value)
                .ok_or_else(|| Refusal::new(format!("{value:?} is neither always nor scrub")))?;
            if !array.has_checksums() {
                return Err(Refusal::new("the array has no checksums"));
            }
            let array = array.clone();
            Ok(async move {
                array.set_verify(verify);
                Ok(())
            }
            .boxed_local())
        },
    },
    Setting {
        key: "write-mostly",
        values: MEMBER_FLAG,
        is_slow: true,
        prepare: |_, array, value| {
            if array.status().level != level_name(Level::Raid1) {
                return Err(Refusal::new("md heeds it at RAID-1 alone"));
            }
            Ok(change_flag(array, DeviceFlags::WRITE_MOSTLY, value))
        },
    },
];

/// The values of a setting that is a flag of a member, as md's own in sysfs.
const MEMBER_FLAG: &str = "a member, or - and a member";

/// Sets a flag of the member that `value` names, or clears it where a `-` is before the name.
fn change_flag<'a>(array: &Array, flag: DeviceFlags, value: &str) -> Change<'a> {
    let none = DeviceFlags::default();
    let (name, set, clear) = match value.strip_prefix('-') {
        Some(name) => (name, none, flag),
        None => (value, flag, none),
    };
    let (array, name) = (array.clone(), name.to_owned());
    async move { array.change_flags(&name, set, clear).await }.boxed_local()
}

/// A change of the write-intent bitmap.
enum BitmapChange {
    Internal { chunk_bytes: Option<u64> },
    File(BitmapFile),
    Remove,
}

fn parse_seconds(text: &str) -> Result<Duration, Refusal> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds
        .map(Duration::from_secs_f64)
        .ok_or_else(|| Refusal::new(format!("{text:?} is not a time from 0.1 to 86400 s")))
}

fn parse_bitmap(text: &str) -> Result<BitmapChange, Refusal> {
    let (place, chunk_bytes) = match text.rsplit_once(':') {
        // A chunk has no slash, so text with a slash behind the colon belongs to the path.
        Some((place, chunk)) if !chunk.contains('/') => (place, Some(parse_bytes(chunk)?)),
        _ => (text, None),
    };
    match (place, chunk_bytes) {
        ("none", None) => Ok(BitmapChange::Remove),
        ("internal", chunk_bytes) => Ok(BitmapChange::Internal { chunk_bytes }),
        ("lockless", _) => Err(Refusal::new("a lockless bitmap is made with an array, and not added to one")
            .advice("`mdspace create --bitmap lockless` makes one; `internal` can be added")),
        (path, chunk_bytes) if path.starts_with('/') => {
            Ok(BitmapChange::File(BitmapFile { path: path.into(), chunk_bytes }))
        }
        (path, _) if path.contains('/') => {
            Err(Refusal::new(format!("{path:?} is not absolute, and the server may run in another directory"))
                .advice("give the absolute path, beginning with /"))
        }
        _ => Err(Refusal::new(format!("{text:?} is not a bitmap"))),
    }
}

/// Checks all wanted values, and returns their changes, of which none has begun.
pub(crate) fn prepare<'a>(
    machine: &'a Machine,
    array: &'a Array,
    wanted: &BTreeMap<String, String>,
) -> Result<Vec<Change<'a>>, Refusal> {
    let check = |(key, value): (&String, &String)| {
        let setting = SETTINGS.iter().find(|setting| setting.key == key).ok_or_else(|| unknown(key))?;
        (setting.prepare)(machine, array, value).map_err(|refusal| {
            let advice = refusal.advice.clone().unwrap_or_else(|| format!("values: {}", setting.values));
            refusal.field(key).advice(advice)
        })
    };
    wanted.iter().map(check).collect()
}

/// Whether the setting `key` changes at once.
pub(crate) fn is_quick(key: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.key == key && !setting.is_slow)
}

fn unknown(key: &str) -> Refusal {
    let keys: Vec<_> = SETTINGS.iter().map(|setting| setting.key).collect();
    Refusal::new("unknown setting").field(key).advice(format!("settings: {}", keys.join(", ")))
}

/// `auto`, or a size.
pub(crate) fn parse_stripe_size(text: &str) -> Result<StripeSize, String> {
    if text == "auto" {
        return Ok(StripeSize::Auto);
    }
    let Size(bytes) = parse_sensible(text)?;
    u32::try_from(bytes).map(StripeSize::Fixed).map_err(|_| format!("{bytes} bytes are more than any chunk has"))
}

fn parse_rate(text: &str) -> Result<Size, Refusal> {
    let rate = parse_bytes(text)?;
    if rate == 0 { Err(Refusal::new("a sweep with rate 0 never ends")) } else { Ok(Size(rate)) }
}

fn parse_bytes(text: &str) -> Result<u64, Refusal> {
    parse_sensible(text).map(|Size(bytes)| bytes).map_err(Refusal::new)
}
