//! Identities and levels as mdadm and md spell them.

use format::geometry::Level;

/// A uuid as mdadm prints it: four groups of eight digits.
pub fn uuid_text(uuid: &[u8; 16]) -> String {
    let groups = uuid.chunks(4).map(|group| group.iter().map(|byte| format!("{byte:02x}")).collect::<String>());
    groups.collect::<Vec<_>>().join(":")
}

/// md's name of a level.
pub fn level_name(level: Level) -> &'static str {
    match level {
        Level::Linear => "linear",
        Level::Raid0 => "raid0",
        Level::Raid1 => "raid1",
        Level::Raid4 => "raid4",
        Level::Raid5 => "raid5",
        Level::Raid6 => "raid6",
        Level::Raid10 => "raid10",
    }
}
