//! The superblock of a member, read into a checked value and written back.
