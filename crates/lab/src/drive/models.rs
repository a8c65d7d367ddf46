//! The drives of the published measurements, fitted to the published figures.
//!
//! A value is fixed by a figure where possible (docs/lab.md lists which). The other values are ordinary for such a
//! drive, and the figures do not depend on them. The tests of this file check what follows from a single drive; the
//! experiments' tests check what follows from an array.

use super::disk::{self, Zone};
use super::flash::{self, Direction, Rewriting};
use super::{Interface, Medium, Model};

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Every model.
pub fn all() -> Vec<Model> {
    vec![
        e1_ssd(),
        e1_ssd_apart(),
        e2_nvme(),
        e3_ssd(),
        e3_ssd_commands(),
        e4_disk(),
        e5_nvme(),
        e6_disk(),
        e7_ssd(),
        e8_disk(),
        e9_qlc(),
        e10_disk(),
        cached_nvme(),
    ]
}

/// E1's SSD. Four of them write 1000 MB/s as a RAID-5, and at 15 MB/s of random 4 KiB writes they read and write 64 KiB
/// for each.
pub fn e1_ssd() -> Model {
    Model {
        name: "SATA SSD, 333 MB/s",
        interface: sata(),
        medium: Medium::Flash(flash::Parameters {
            read: Direction {
                latency_nanos: 60_000,
                latency_spread_nanos: 20_000,
                tail_nanos: 0,
                command_nanos: 48_500,
                byte_picos: 4_500,
                page_nanos: 50_000,
            },
            write: Direction {
                latency_nanos: 20_000,
                latency_spread_nanos: 10_000,
                tail_nanos: 0,
                command_nanos: 2_000,
                byte_picos: 2_970,
                page_nanos: 300_000,
            },
            half_duplex: true,
            channels: 8,
            page_bytes: 16 * KIB,
            buffer_bytes: 8 * MIB,
            rewriting: None,
        }),
    }
}

/// E1's SSD, if md's processor bounds the small units: a command costs what is ordinary, and a byte the rest of the time
/// in which 64 KiB are read and written at 15 MB/s.
pub fn e1_ssd_apart() -> Model {
    with_read(e1_ssd(), |read| {
        read.command_nanos = 2_000;
        read.byte_picos = 5_210;
    })
}

/// A flash drive's model with other costs of reads.
fn with_read(mut model: Model, change: impl FnOnce(&mut Direction)) -> Model {
    if let Medium::Flash(parameters) = &mut model.medium {
        change(&mut parameters.read);
    }
    model
}

/// E2's drive, similar to Intel/Solidigm's P5520. A write of 4096 bytes takes 0.01 to 0.02 ms, one of 3584 bytes 0.43
/// to 0.66 ms, and md reached 1676 of the latter per second.
pub fn e2_nvme() -> Model {
    Model {
        name: "NVMe drive that writes units of 4 KiB",
        interface: Interface {
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            optimal_bytes: 4096,
            queue_depth: 128,
            merge_bytes_max: 128 * KIB,
            volatile_cache: false,
        },
        medium: Medium::Flash(flash::Parameters {
            read: Direction {
                latency_nanos: 20_000,
                latency_spread_nanos: 10_000,
                tail_nanos: 0,
                command_nanos: 1_000,
                byte_picos: 150,
                page_nanos: 50_000,
            },
            write: Direction {
                latency_nanos: 8_000,
                latency_spread_nanos: 9_000,
                tail_nanos: 0,
                command_nanos: 1_000,
                byte_picos: 400,
                page_nanos: 100_000,
            },
            half_duplex: false,
            channels: 16,
            page_bytes: 16 * KIB,
            buffer_bytes: 64 * MIB,
            rewriting: Some(Rewriting { nanos: 428_000, spread_nanos: 229_000, program_nanos: 1_032_000 }),
        }),
    }
}

/// E3's SSD, of 2010: 100 MB/s.
pub fn e3_ssd() -> Model {
    Model {
        name: "SATA SSD, 100 MB/s",
        interface: sata(),
        medium: Medium::Flash(flash::Parameters {
            read: Direction {
                latency_nanos: 80_000,
                latency_spread_nanos: 20_000,
                tail_nanos: 0,
                command_nanos: 0,
                byte_picos: 10_000,
                page_nanos: 50_000,
            },
            write: Direction {
                latency_nanos: 30_000,
                latency_spread_nanos: 10_000,
                tail_nanos: 0,
                command_nanos: 0,
                byte_picos: 10_000,
                page_nanos: 600_000,
            },
            half_duplex: true,
            channels: 8,
            page_bytes: 16 * KIB,
            buffer_bytes: 8 * MIB,
            rewriting: None,
        }),
    }
}

/// E3's SSD with a cost for each command, so that a write of 64 KiB is slower than one of 512 KiB: 670 MB/s of 700 in
/// full stripes. The reads' cost is ordinary.
pub fn e3_ssd_commands() -> Model {
    let mut model = with_read(e3_ssd(), |read| read.command_nanos = 25_000);
    if let Medium::Flash(parameters) = &mut model.medium {
        parameters.write.command_nanos = 29_000;
    }
    model
}

/// E4's disk, similar to Seagate's 6 TB SAS drives. Eight of ten deliver data at 1636 MiB/s, and the ten do 948 random
/// reads per second.
pub fn e4_disk() -> Model {
    let zone = |track_bytes| Zone { bytes: 1_500_000_000_000, track_bytes };
    Model {
        name: "SAS disk, 7200 revolutions a minute",
        interface: Interface {
            logical_block_bytes: 512,
            physical_block_bytes: 4096,
            optimal_bytes: 0,
            queue_depth: 32,
            merge_bytes_max: 512 * KIB,
            volatile_cache: false,
        },
        medium: Medium::Disk(disk::Parameters {
            revolution_nanos: 8_333_333,
            seek_min_nanos: 500_000,
            seek_max_nanos: 11_200_000,
            command_nanos: 100_000,
            zones: [1_787_904, 1_589_248, 1_321_984, 987_136].into_iter().map(zone).collect(),
            read_ahead_bytes: 2 * MIB,
            segment_bytes: 0,
            has_own_phase: false,
            patience_nanos: u64::MAX,
        }),
    }
}

/// A disk whose platters have an angle of their own, unlike those of the other drives of its array.
pub fn out_of_step(mut model: Model) -> Model {
    if let Medium::Disk(parameters) = &mut model.medium {
        parameters.has_own_phase = true;
    }
    model
}

/// E5's drive on PCIe 3.0. It reads 3425544 KiB/s in requests of 352 KiB with 21 in flight, and 64 KiB in 0.09 ms with
/// little more than one in flight.
pub fn e5_nvme() -> Model {
    Model {
        name: "NVMe drive, 3.5 GB/s",
        interface: Interface {
            logical_block_bytes: 512,
            physical_block_bytes: 512,
            optimal_bytes: 0,
            queue_depth: 1023,
            merge_bytes_max: 512 * KIB,
            volatile_cache: false,
        },
        medium: Medium::Flash(flash::Parameters {
            read: Direction {
                latency_nanos: 32_000,
                latency_spread_nanos: 6_000,
                tail_nanos: 0,
                command_nanos: 500,
                byte_picos: 283,
                page_nanos: 50_000,
            },
            write: Direction {
                latency_nanos: 15_000,
                latency_spread_nanos: 5_000,
                tail_nanos: 0,
                command_nanos: 500,
                byte_picos: 400,
                page_nanos: 100_000,
            },
            half_duplex: false,
            channels: 32,
            page_bytes: 16 * KIB,
            buffer_bytes: 64 * MIB,
            rewriting: None,
        }),
    }
}

/// E5's drive with a volatile cache, as drives for desktops have. A flush waits for the flash.
pub fn cached_nvme() -> Model {
    let Model { interface, medium, .. } = e5_nvme();
    Model {
        name: "NVMe drive with a volatile cache",
        interface: Interface { volatile_cache: true, ..interface },
        medium,
    }
}

/// E6's disk, of a virtual machine. Nothing is published of it. The tail of its writes follows from RAID-1 being slower
/// than RAID-10, and its reads from RAID-5.
pub fn e6_disk() -> Model {
    Model {
        name: "virtual disk",
        interface: Interface { optimal_bytes: 0, merge_bytes_max: 512 * KIB, ..e2_nvme().interface },
        medium: Medium::Flash(flash::Parameters {
            read: Direction {
                latency_nanos: 10_000,
                latency_spread_nanos: 0,
                tail_nanos: 31_000,
                command_nanos: 500,
                byte_picos: 300,
                page_nanos: 1_000,
            },
            write: Direction {
                latency_nanos: 10_000,
                latency_spread_nanos: 0,
                tail_nanos: 53_000,
                command_nanos: 500,
                byte_picos: 300,
                page_nanos: 10_000,
            },
            half_duplex: false,
            channels: 16,
            page_bytes: 16 * KIB,
            buffer_bytes: 64 * MIB,
            rewriting: None,
        }),
    }
}

/// E7's drive: nothing is published of it. It is ordinary, and 32 of them are not what bounds 1.1 GB/s.
pub fn e7_ssd() -> Model {
    Model { name: "SATA SSD, 333 MB/s", ..e1_ssd_apart() }
}

/// E8's disk: a resync reads it at 180 MB/s. Its segments and its patience are what the reads beside md's resync fit
/// best.
pub fn e8_disk() -> Model {
    let mut model = out_of_step(e4_disk());
    model.name = "disk, 7200 revolutions a minute, 180 MB/s";
    if let Medium::Disk(parameters) = &mut model.medium {
        parameters.zones = vec![Zone { bytes: 2_000_000_000_000, track_bytes: 1_500_000 }];
        parameters.segment_bytes = MIB;
        parameters.patience_nanos = 200_000_000;
    }
    model
}

/// E9's drive, similar to Solidigm's 61.44 TB. It writes 3180 MB/s, the published rebuild without requests. The rest is
/// ordinary for QLC: long reads and programming, and units of 16 KiB.
pub fn e9_qlc() -> Model {
    Model {
        name: "QLC drive, 61.44 TB",
        interface: Interface { physical_block_bytes: 16384, optimal_bytes: 0, ..e2_nvme().interface },
        medium: Medium::Flash(flash::Parameters {
            read: Direction {
                latency_nanos: 20_000,
                latency_spread_nanos: 10_000,
                tail_nanos: 0,
                command_nanos: 1_000,
                byte_picos: 143,
                page_nanos: 85_000,
            },
            write: Direction {
                latency_nanos: 12_000,
                latency_spread_nanos: 6_000,
                tail_nanos: 0,
                command_nanos: 1_000,
                byte_picos: 307,
                page_nanos: 600_000,
            },
            half_duplex: false,
            channels: 128,
            page_bytes: 16 * KIB,
            buffer_bytes: 64 * MIB,
            rewriting: None,
        }),
    }
}

/// E10's disk: 400 GB of a desktop drive. Fixed by 165 KB/s: a write is a seek and two revolutions or less.
pub fn e10_disk() -> Model {
    let mut model = out_of_step(e4_disk());
    model.name = "disk, 7200 revolutions a minute";
    if let Medium::Disk(parameters) = &mut model.medium {
        parameters.seek_max_nanos = 17_500_000;
        parameters.zones = vec![Zone { bytes: 500_000_000_000, track_bytes: 1_000_000 }];
    }
    model
}

/// The queue of a SATA drive.
fn sata() -> Interface {
    Interface {
        logical_block_bytes: 512,
        physical_block_bytes: 512,
        optimal_bytes: 0,
        queue_depth: 32,
        merge_bytes_max: 512 * KIB,
        volatile_cache: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::drive::{Drive, Request};
    use engine::Operation;
    use std::cmp::Reverse;
    use std::collections::BinaryHeap;
    use world::Random;

    /// The speed of a drive with `depth` requests in flight, over `count` requests.
    struct Measured {
        bytes_per_second: f64,
        requests_per_second: f64,
        latencies_nanos: Vec<u64>,
    }

    fn measure(
        model: &Model,
        operation: Operation,
        bytes: u64,
        depth: usize,
        count: u64,
        mut place: impl FnMut(u64) -> u64,
    ) -> Measured {
        let mut drive = Drive::new(model, 3);
        drive.interface.merge_bytes_max = 0; // the published sizes were counted after merging
        let (mut now, mut index, mut under_way) = (0, 0, BinaryHeap::new());
        let mut latencies_nanos = Vec::new();
        while latencies_nanos.len() < count as usize {
            while under_way.len() + drive.waiting.len() < depth {
                drive.submit(Request { operation, at: place(index), bytes });
                index += 1;
            }
            while let Some(begun) = drive.begin(now) {
                latencies_nanos.push(begun.done_at - now);
                under_way.push(Reverse(begun.done_at));
            }
            let Reverse(done_at) = under_way.pop().expect("a command is in flight");
            now = now.max(done_at);
        }
        let requests_per_second = count as f64 / (now as f64 / 1e9);
        Measured { bytes_per_second: requests_per_second * bytes as f64, requests_per_second, latencies_nanos }
    }

    fn assert_within(what: &str, value: f64, published: f64, share: f64) {
        assert!((value / published - 1.0).abs() <= share, "{what}: {value:.1}, published {published:.1}");
    }

    #[test]
    fn writes_of_part_of_a_unit_take_as_long_as_published() {
        let place = |sector: u64| move |_| sector * 512;
        for (bytes, sector, least, most) in [(4096, 16, 10_000, 20_000), (3584, 24, 430_000, 660_000)] {
            let mut drive = Drive::new(&e2_nvme(), 3);
            for moment in (0..1000).map(|index| index * 5_000_000) {
                drive.submit(Request { operation: Operation::Write, at: place(sector)(0), bytes });
                let latency = drive.begin(moment).expect("it is idle").done_at - moment;
                assert!((least..=most).contains(&latency), "{bytes} bytes: {latency} ns");
            }
        }
    }

    #[test]
    fn a_stream_runs_at_the_published_speed() {
        let cases = [
            ("E1: a third of 1000 MB/s", e1_ssd(), Operation::Write, 64 * KIB, 32, 1000e6 / 3.0),
            ("E3: 100 MB/s", e3_ssd(), Operation::Write, 64 * KIB, 32, 100e6),
            ("E4: an eighth of 1636 MiB/s", e4_disk(), Operation::Read, 128 * KIB, 1, 1636.0 / 8.0 * MIB as f64),
            ("E5: 3425544 KiB/s", e5_nvme(), Operation::Read, 352 * KIB, 21, 3_425_544.0 * KIB as f64),
        ];
        for (what, model, operation, bytes, depth, published) in cases {
            let measured = measure(&model, operation, bytes, depth, 4000, |index| index * bytes);
            assert_within(what, measured.bytes_per_second, published, 0.02);
        }
    }

    #[test]
    fn a_disk_seeks_as_often_as_published() {
        let mut random = Random::new(5);
        let place = move |_| random.within(0..6_000_000_000_000 / 4096) * 4096;
        let measured = measure(&e4_disk(), Operation::Read, 4096, 1, 4000, place);
        assert_within("E4: a tenth of 948", measured.requests_per_second, 94.8, 0.02);
    }

    #[test]
    fn a_queue_lets_a_disk_do_more_random_reads() {
        let run = |depth| {
            let mut random = Random::new(5);
            let place = move |_| random.within(0..6_000_000_000_000 / 4096) * 4096;
            measure(&e4_disk(), Operation::Read, 4096, depth, 2000, place).requests_per_second
        };
        let (alone, queued) = (run(1), run(32));
        assert!(queued > alone * 1.8, "{alone:.0} alone, {queued:.0} of 32");
    }

    #[test]
    fn a_read_from_the_idle_nvme_drive_takes_as_long_as_published() {
        let measured = measure(&e5_nvme(), Operation::Read, 64 * KIB, 1, 2000, |index| index * 64 * KIB);
        let mean = measured.latencies_nanos.iter().sum::<u64>() as f64 / 2000.0;
        assert_within("E5: 0.09 ms", mean, 90_000.0, 0.06);
    }
}
