//! What the completion of a write promises. A plain value, shared by the engine, its users and the exports.

/// When a write counts as done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Durability {
    /// When every member has it. A flush then protects it from a power failure.
    #[default]
    Ordinary,
    /// When it is on stable storage (FUA).
    Stable,
}
