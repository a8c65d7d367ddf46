//! The mutants: what is wrong with each, and what catches it.
//!
//! Each breaks one promise of the engine that the simulated world holds it to, at the hook of its name. Where a hook no longer
//! breaks anything, another that does replaces it.

use super::By::{Seed, Test};
use super::Mutant;

/// All of them.
pub(super) const MUTANTS: &[Mutant] = &[
    Mutant { name: "intent-after-data", broken: "data is written before its bits are on stable storage", by: Seed(91) },
    Mutant { name: "bit-flush-lost", broken: "bits are written without a flush", by: Seed(81) },
    Mutant {
        name: "bit-stable-too-early",
        broken: "a bit counts as stable as soon as somebody is about to write it",
        by: Seed(3_255),
    },
    Mutant {
        name: "bit-cleared-unflushed",
        broken: "idle bits are cleared without a flush of the data",
        by: Seed(3_072),
    },
    Mutant {
        name: "bit-cleared-under-write",
        broken: "bits of chunks that are being written to are cleared",
        by: Test("intent::a_bit_stays_set_as_long_as_its_write_is_in_flight"),
    },
    Mutant {
        name: "bits-of-disagreement-cleared",
        broken: "bits are cleared although a resync is still to come",
        by: Seed(6),
    },
    Mutant {
        name: "newcomer-waited-for",
        broken: "a stop waits for a newcomer that does not answer, as long as that may take",
        by: Test("replace::a_stop_does_not_wait_for_a_new_member_that_hangs"),
    },
    Mutant { name: "dirty-mark-skipped", broken: "the array is not marked dirty before the first write", by: Seed(6) },
    Mutant {
        name: "dirty-mark-untold",
        broken: "who marks an idle array clean is not told that it was marked dirty",
        by: Test("intent::an_idle_array_is_marked_clean_after_each_write"),
    },
    Mutant {
        name: "clean-without-flush",
        broken: "the array is marked clean while writes are in volatile caches",
        by: Seed(32),
    },
    Mutant { name: "events-not-bumped", broken: "superblocks change without new events", by: Seed(18) },
    Mutant {
        name: "one-round",
        broken: "a member that leaves stays only one event behind, which older kernels accept",
        by: Seed(355),
    },
    Mutant { name: "superblock-flush-lost", broken: "superblocks are written without a flush", by: Seed(111) },
    Mutant {
        name: "answered-before-recorded",
        broken: "a write that went round a failed member is answered before the superblocks say that it left",
        by: Seed(2_511),
    },
    Mutant {
        name: "stale-member-taken",
        broken: "a member that was left behind is believed to be what it calls itself",
        by: Seed(18),
    },
    Mutant {
        name: "write-hole-taken",
        broken: "a dirty and degraded parity array is assembled without being asked to",
        by: Seed(233),
    },
    Mutant {
        name: "log-not-begun",
        broken: "a partial parity log of an earlier use of the array is not erased before the next",
        by: Test("parity_log::the_log_of_an_earlier_use_is_erased_before_the_next"),
    },
    Mutant {
        name: "log-named-in-a-round",
        broken: "a partial parity log is turned on in an ordinary round of superblocks, amid which md starts no array",
        by: Test("policies::a_change_of_the_policy_may_be_interrupted_anywhere"),
    },
    Mutant {
        name: "log-kept-without-its-anchor",
        broken: "a partial parity log is turned on although the member whose superblock decides it has failed",
        by: Test("policies::a_log_is_turned_on_or_refused_when_a_member_fails_anywhere"),
    },
    Mutant {
        name: "anchors-log-not-put-back",
        broken: "a member that failed the write that turns a partial parity log on may go on naming it",
        by: Test("policies::a_log_is_turned_on_or_refused_when_a_member_fails_anywhere"),
    },
    Mutant {
        name: "unfinished-log-kept",
        broken: "the log of an interrupted change of the consistency policy is believed to be in use",
        by: Test("policies::a_change_of_the_policy_may_be_interrupted_anywhere"),
    },
    Mutant {
        name: "leaving-untold",
        broken: "data is written after a member left without its bits, before the superblocks say that it left",
        by: Seed(210_663),
    },
    Mutant {
        name: "leaving-during-a-batch-untold",
        broken: "data is written after a parity left while its batch waited, before the superblocks say that it left",
        by: Test("stripe_log::a_parity_that_leaves_while_its_batch_waits_does_not_count_as_current"),
    },
    Mutant {
        name: "failed-write-not-counted",
        broken: "a member that failed the first write of a round of superblocks is taken not to have its events",
        by: Seed(170_606_088),
    },
    Mutant {
        name: "replay-untold",
        broken: "an array is used after a replay before its superblocks say which members lack it",
        by: Test("parity_log::a_loss_of_power_and_of_a_member_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "replayed-log-emptied-first",
        broken: "a log that was replayed is emptied before the superblocks reject the members that took no part",
        by: Test("parity_log::a_member_that_returns_after_a_replay_without_it_agrees_with_parity_or_is_left_out"),
    },
    Mutant {
        name: "entry-not-written",
        broken: "a write to a stripe is not logged",
        by: Test("parity_log::a_loss_of_power_and_of_a_member_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "entry-unflushed",
        broken: "a write goes on before its entry in the partial parity log is on stable storage",
        by: Test("parity_log::a_loss_of_power_and_of_a_member_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "entry-replaced-unflushed",
        broken: "an entry of the partial parity log is replaced before its write is on stable storage",
        by: Test("parity_log::a_loss_of_power_and_of_a_member_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "whole-stripes-not-logged",
        broken: "the writing of whole stripes is not logged, so that parity is wrong after a replay",
        by: Test("parity_log::a_loss_of_power_and_of_a_member_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "torn-entry-believed",
        broken: "an entry of a partial parity log is replayed although its checksum is wrong",
        by: Test("partial_parity::a_replayed_log_makes_parity_agree_with_the_data"),
    },
    Mutant {
        name: "oldest-header-replayed",
        broken: "of several partial parity logs on a member the oldest is replayed",
        by: Test("partial_parity::a_replayed_log_makes_parity_agree_with_the_data"),
    },
    Mutant {
        name: "log-of-clean-array-replayed",
        broken: "a stale partial parity log of a clean array is replayed",
        by: Test("partial_parity::the_log_of_a_clean_array_is_not_replayed"),
    },
    Mutant {
        name: "unsettled-rows-logged",
        broken: "a write is logged before an earlier one to other chunks of its rows is on stable storage",
        by: Test("stripe_log::a_loss_of_power_and_of_members_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "live-record-overwritten",
        broken: "a record of the stripe log is overwritten before its writes are on stable storage",
        by: Test("stripe_log::a_loss_of_power_and_of_members_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "void-log-replayed",
        broken: "a stripe log is replayed although other software has written the members since",
        by: Test("stripe_log::a_log_is_void_once_other_software_has_written_the_members"),
    },
    Mutant {
        name: "torn-record-believed",
        broken: "partial parity of the stripe log is replayed although its checksum is wrong",
        by: Test("stripe_log::partial_parity_that_was_torn_is_not_replayed"),
    },
    Mutant {
        name: "oldest-entry-replayed",
        broken: "of several entries for a row the oldest is replayed",
        by: Test("stripe_log::a_loss_of_power_and_of_members_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "void-entry-passed",
        broken: "an older entry is replayed over whole stripes that were written since",
        by: Test("stripe_log::a_loss_of_power_and_of_members_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "log-header-unflushed",
        broken: "a superblock is written before the stripe log's header names it on stable storage",
        by: Test("stripe_log::a_loss_of_power_and_of_members_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "record-unflushed",
        broken: "a write goes on before its record in the stripe log is on stable storage",
        by: Test("stripe_log::a_loss_of_power_and_of_members_costs_nothing_but_what_was_being_written"),
    },
    Mutant {
        name: "seat-taken-with-old-log",
        broken: "a spare's log counts from before it took its slot, so that entries of the other parity are dropped",
        by: Test("stripe_log::a_spare_that_takes_a_slot_hides_no_entry_of_the_other_parity"),
    },
    Mutant {
        name: "parity-left-out-untold",
        broken: "a parity that a write leaves out has no entry, so that the other parity's entry is dropped",
        by: Test("stripe_log::a_parity_that_a_write_leaves_out_hides_no_entry_of_the_other"),
    },
    Mutant {
        name: "torn-stripes-left",
        broken: "an array that lacks a member and can lose a further one is taken as in agreement after a replay or by force",
        by: Test("stripe_log::after_the_resync_of_an_array_that_lacked_a_member_a_further_loss_changes_no_byte"),
    },
    Mutant {
        name: "doubtful-parities-alternate",
        broken: "where P and Q may disagree, either gives what a member held",
        by: Test("stripe_log::after_the_resync_of_an_array_that_lacked_a_member_a_further_loss_changes_no_byte"),
    },
    Mutant {
        name: "silent-member-passed-over",
        broken: "a resync passes over what a member could not be read for a while, and calls it in agreement",
        by: Test("stripe_log::after_the_resync_of_an_array_that_lacked_a_member_a_further_loss_changes_no_byte"),
    },
    Mutant {
        name: "failed-log-kept",
        broken: "a stripe log that failed to begin leaves its epoch on the members",
        by: Test("stripe_log::after_one_that_failed_to_begin_a_log_has_records_that_its_headers_name"),
    },
    Mutant {
        name: "old-log-before-that-of-md",
        broken: "the header of an old stripe log begins a log beside a journal or a partial parity log",
        by: Test("stripe_log::a_header_that_was_left_behind_begins_no_log_beside_a_journal"),
    },
    Mutant {
        name: "unbuilt-parity-trusted",
        broken: "parity is trusted where a lockless bitmap says that it may not have been built",
        by: Test("forced::parity_that_a_lockless_bitmap_does_not_call_clean_is_not_trusted"),
    },
    Mutant {
        name: "rest-unbuilt",
        broken: "a chunk that was written in part for the first time is never built to its end",
        by: Test("lockless::what_was_written_survives_losses_and_power_cuts_without_an_initial_sync"),
    },
    Mutant {
        name: "first-write-unbuilt",
        broken: "the first write to a stripe does not build its parity",
        by: Test("lockless::what_was_written_survives_losses_and_power_cuts_without_an_initial_sync"),
    },
    Mutant {
        name: "unwritten-scrubbed",
        broken: "a scrub compares what was never written",
        by: Test("lockless::what_was_written_survives_losses_and_power_cuts_without_an_initial_sync"),
    },
    Mutant {
        name: "reshape-direction-ignored",
        broken: "an array in the middle of a backward reshape is read as if the reshape ran forwards",
        by: Test("reshape::each_byte_is_read_in_the_shape_that_it_has"),
    },
    Mutant {
        name: "journal-sequence-ignored",
        broken: "a block that a journal has from its last time round is replayed",
        by: Test("journal::a_replayed_journal_gives_the_last_state_of_each_row"),
    },
    Mutant {
        name: "torn-journal-believed",
        broken: "blocks of a journal are replayed although their checksums are wrong",
        by: Test("journal::a_replayed_journal_gives_the_last_state_of_each_row"),
    },
    Mutant {
        name: "journal-entry-unflushed",
        broken: "a write goes on while what the journal holds of it is in a volatile cache",
        by: Test("write_journal::a_loss_of_power_and_of_members_costs_nothing"),
    },
    Mutant {
        name: "journal-space-unflushed",
        broken: "the journal gives up writes that the members have in volatile caches alone",
        by: Test("write_journal::a_loss_of_power_and_of_members_costs_nothing"),
    },
    Mutant {
        name: "conversion-unflushed",
        broken: "superblocks 0.90 are erased before those that take over are on stable storage",
        by: Test("conversion::an_array_assembles_with_all_its_members_and_its_data_whenever_the_power_goes"),
    },
    Mutant {
        name: "journal-space-untold",
        broken: "the journal's space is used again before its superblock names a later begin",
        by: Test("write_journal::a_loss_of_power_and_of_members_costs_nothing"),
    },
    Mutant {
        name: "journal-emptied-unflushed",
        broken: "a journal is emptied while the members have what it held in volatile caches alone",
        by: Test("write_journal::a_loss_of_power_and_of_members_costs_nothing"),
    },
    Mutant {
        name: "journal-kept-over-recovery",
        broken: "a journal keeps writes from before a recovery, which name no parity for the member",
        by: Test("write_journal::entries_of_a_missing_parity_are_gone_before_it_is_recovered"),
    },
    Mutant {
        name: "journal-named-first",
        broken: "the members name a new journal before the device has a superblock",
        by: Test("write_journal::a_journal_that_comes_and_goes_may_be_interrupted_anywhere"),
    },
    Mutant {
        name: "journal-begins-at-one",
        broken: "a journal that returns begins with the number that its old blocks began with",
        by: Test("write_journal::old_blocks_of_a_journal_that_returns_are_not_replayed"),
    },
    Mutant {
        name: "journal-not-left-behind",
        broken: "a journal that was given up is one event behind, which md accepts",
        by: Test("write_journal::a_journal_that_was_given_up_is_stale_should_it_return"),
    },
    Mutant {
        name: "journal-rows-not-completed",
        broken: "a row of which the journal has data alone is written before the journal has its parity",
        by: Test("journal::a_replay_on_the_members_may_be_cut_short_anywhere"),
    },
    Mutant { name: "flush-lost", broken: "a flush is answered without one", by: Seed(6) },
    Mutant {
        name: "stable-write-unflushed",
        broken: "a write with FUA is answered from volatile caches",
        by: Seed(79),
    },
    Mutant { name: "stripe-not-locked", broken: "writes to one stripe do not follow each other", by: Seed(0) },
    Mutant { name: "copies-not-locked", broken: "overlapping writes of copies do not follow each other", by: Seed(5) },
    Mutant {
        name: "untrusted-parity-used",
        broken: "after an unclean stop data is reconstructed from parity that no resync has been over",
        by: Seed(2386),
    },
    Mutant {
        name: "write-error-ignored",
        broken: "a member of a parity array that failed a write stays",
        by: Seed(287),
    },
    Mutant { name: "copy-error-ignored", broken: "a copy that failed a write stays", by: Seed(371) },
    Mutant {
        name: "ahead-not-forgotten",
        broken: "what was read ahead of a stripe stays when the stripe is written to",
        by: Seed(9585),
    },
    Mutant { name: "ahead-of-a-write", broken: "a stripe is read ahead while it is being written to", by: Seed(388) },
    Mutant {
        name: "in-place-under-write",
        broken: "what is lost of a stripe is worked out in place while the stripe is being written to",
        by: Test("in_place::no_data_is_reconstructed_in_place_from_a_stripe_that_is_being_written_to"),
    },
    Mutant {
        name: "in-place-untrusted",
        broken: "what is lost is worked out in place from parity that no resync has been over",
        by: Test("in_place::no_data_of_a_hung_member_is_reconstructed_in_place_from_parity_before_a_resync"),
    },
    Mutant { name: "stale-parity", broken: "read-modify-write forgets what the old data adds to parity", by: Seed(0) },
    Mutant {
        name: "stale-parity-of-a-piece",
        broken: "the short way of a small write forgets what the old data adds to parity",
        by: Seed(1),
    },
    Mutant {
        name: "data-left-out-of-parity",
        broken: "the short way of a small write reconstructs parity from the new data alone",
        by: Seed(11),
    },
    Mutant { name: "resync-skips", broken: "a resync leaves the first chunk out", by: Seed(6) },
    Mutant {
        name: "spare-called-current",
        broken: "a spare that takes a slot is not called current nowhere",
        by: Seed(967),
    },
    Mutant {
        name: "read-beyond-recovery",
        broken: "what a member has not recovered yet is read from it",
        by: Seed(18),
    },
    Mutant {
        name: "recovery-unflushed",
        broken: "a member is called current while what it recovered is in its volatile cache",
        by: Test("recovery::power_may_go_at_any_write_of_a_recovery_that_no_other_flush_covers"),
    },
    Mutant {
        name: "uneven-events-grow",
        broken: "members that are one event behind are not brought level before the next round",
        by: Seed(2448),
    },
    Mutant {
        name: "grown-bits-unset",
        broken: "the bitmap of an array that grew does not name what is new",
        by: Test("live_growth::an_array_that_grows_in_use_keeps_what_was_flushed_whenever_the_power_goes"),
    },
    Mutant {
        name: "growth-amid-writes",
        broken: "an array is marked clean to grow, and grows, while writes are under way",
        by: Test("live_growth::an_array_that_grows_in_use_keeps_what_was_flushed_whenever_the_power_goes"),
    },
    Mutant {
        name: "growth-with-old-bits",
        broken: "members are told a new size while their bitmap is still of the old one",
        by: Test("live_growth::an_array_that_grows_in_use_keeps_what_was_flushed_whenever_the_power_goes"),
    },
    Mutant {
        name: "growth-in-agreement",
        broken: "what is new in an array that grew in use is taken to be in agreement",
        by: Test("live_growth::an_array_that_grows_in_use_keeps_what_was_flushed_whenever_the_power_goes"),
    },
    Mutant {
        name: "cache-not-told",
        broken: "a write of a part of a stripe does not tell the cache to forget first",
        by: Seed(1455),
    },
    Mutant {
        name: "cache-not-told-of-stripes",
        broken: "full stripes and zeros do not tell the cache to forget",
        by: Seed(122),
    },
    Mutant { name: "writeback-not-written", broken: "a flush does not wait for what is kept in memory", by: Seed(241) },
    Mutant { name: "kept-not-read", broken: "a read does not see what is kept in memory", by: Seed(41) },
    Mutant {
        name: "checkpoint-unflushed",
        broken: "a sweep is said to have come to where its writes are in volatile caches",
        by: Test("recovery::power_may_go_at_any_write_of_a_recovery_that_no_other_flush_covers"),
    },
    Mutant {
        name: "sweep-not-locked",
        broken: "writes and a sweep over stripes do not wait for each other",
        by: Seed(34),
    },
    Mutant {
        name: "bitmap-under-writes",
        broken: "a bitmap is added while writes without bits are under way",
        by: Test("boundaries::power_may_go_while_a_bitmap_is_added_before_the_first_write"),
    },
    Mutant {
        name: "absent-not-shut-out",
        broken: "bits are cleared, and whoever left before could still be taken back by them",
        by: Test("recovery::a_member_that_left_long_before_bits_were_cleared_is_not_re_added"),
    },
    Mutant {
        name: "bitmap-not-carried",
        broken: "a spare takes a slot without the bitmap",
        by: Test("intent::a_spare_that_takes_a_slot_has_all_bits"),
    },
    Mutant {
        name: "returns-not-forgotten",
        broken: "a member that came back relies on a bitmap that was made after it had been away",
        by: Test("recovery::a_re_added_member_is_recovered_in_full_if_the_bitmap_is_removed"),
    },
    Mutant {
        name: "read-of-what-is-written-out",
        broken: "a read passes over what was kept in memory when it began and was written out meanwhile",
        by: Seed(857),
    },
    Mutant {
        name: "newcomer-told-last",
        broken: "a member that was given a slot is called active by others before it says how far it is",
        by: Test("recovery::no_superblock_calls_a_spare_active_before_the_spares_own_does"),
    },
    Mutant {
        name: "removed-not-left-behind",
        broken: "a spare that was removed can be taken for whoever gets its number",
        by: Seed(94_423_662_448_490),
    },
    Mutant {
        name: "file-not-left-behind",
        broken: "a bitmap file counts that is one event ahead of an array which was used without it",
        by: Test("boundaries::a_bitmap_file_one_event_ahead_is_stale_after_the_array_was_used_without_it"),
    },
    Mutant {
        name: "done-and-given-work",
        broken: "an entry that another caller has carried out is given work, which holds the array for ever",
        by: Seed(3),
    },
    Mutant {
        name: "flush-without-absent",
        broken: "a flush of a dirty array counts, and who is absent is taken back as current",
        by: Seed(375_274_292_384_249),
    },
    Mutant {
        name: "found-unflushed",
        broken: "superblocks are built on others that an earlier user left in volatile caches",
        by: Test("recovery::rounds::no_member_is_stale_after_a_kill_within_a_round_and_a_later_power_cut"),
    },
    Mutant {
        name: "level-before-told",
        broken: "a member that has changed since is first told what the others said before",
        by: Test("recovery::rounds::a_stale_replacement_is_never_a_second_member_of_its_slot"),
    },
    Mutant {
        name: "unknown-not-left-behind",
        broken: "a slot is given away that somebody may have who is not here and was told alone",
        by: Seed(474_088_832_404_273),
    },
    Mutant {
        name: "absent-told-alone",
        broken: "who was not there at assembly is left two events behind, of which a round cut short may have told him one",
        by: Test("recovery::a_member_that_alone_has_the_next_event_is_stale_once_the_others_go_on"),
    },
    Mutant {
        name: "driver-not-woken",
        broken: "the reader that drives a read-ahead is not told when it is given up, and waits for ever",
        by: Test("reads::a_stream_that_waits_for_read_ahead_continues_when_a_write_discards_it"),
    },
    Mutant {
        name: "spare-asked-alone",
        broken: "a spare that a round cut short has told alone is not asked which members it calls active",
        by: Test("recovery::rounds::a_replacement_and_a_spare_that_were_each_written_alone_belong_to_one_array"),
    },
    Mutant {
        name: "file-ahead",
        broken: "a new bitmap's file has the events of the last round that names it, which an array gone on without it reaches",
        by: Seed(488_632_468_521_864),
    },
    Mutant {
        name: "learned-too-late",
        broken: "checksums are learned from what was read, after a failed write may have changed a part of it",
        by: Test("learning::a_resync_stores_no_checksums_of_blocks_that_a_failed_write_may_have_changed"),
    },
    Mutant {
        name: "found-bits-stable",
        broken: "a bit that one member has counts as stable on all",
        by: Test("intent::a_bit_that_one_member_has_is_on_all_members_before_data_is_written_under_it"),
    },
    Mutant {
        name: "unread-regions-believed",
        broken: "open regions that could not be read are not open any more when they can be",
        by: Test("checksums::checksums_that_could_not_be_read_once_are_not_used_afterwards"),
    },
    Mutant {
        name: "open-region-unflushed",
        broken: "a write begins before its regions are noted as open on stable storage",
        by: Seed(2_740),
    },
    Mutant {
        name: "closed-before-its-pages",
        broken: "a region is closed while its pages of checksums are in volatile caches",
        by: Seed(20_382),
    },
    Mutant {
        name: "read-beside-heal",
        broken: "what is read of a block that is being written is taken for right, whatever it is",
        by: Test("rot::no_read_beside_read_repair_returns_corrupted_data"),
    },
    Mutant {
        name: "read-of-torn-block",
        broken: "who finds neither the old nor the new contents beside a write does not wait for its end",
        by: Test("rot::a_read_beside_a_write_over_corrupted_data_returns_the_old_or_the_new"),
    },
    Mutant {
        name: "bad-block-good-on-trial",
        broken: "a bad block is none as soon as it was written, before it was read back",
        by: Test("healing::a_bad_block_is_cleared_only_after_the_written_data_was_read_back"),
    },
    Mutant {
        name: "successor-not-compared",
        broken: "after a loss of power a successor is believed to hold what its member does, below where it had come",
        by: Test("replace::what_was_read_after_a_power_cut_stays_the_same_after_the_replacement"),
    },
    Mutant {
        name: "spare-decides",
        broken: "a spare that a round cut short has told alone must agree with the next round of the same events",
        by: Test("intent::a_spare_that_a_round_cut_short_has_told_of_a_bitmap_alone_decides_nothing"),
    },
    Mutant {
        name: "checkpoint-mid-block",
        broken: "a resync goes on from the sector at which md stopped, in the middle of a block that a checksum is of",
        by: Test("checksums::a_resync_that_begins_within_a_block_covers_the_whole_block"),
    },
    Mutant {
        name: "bits-mid-block",
        broken: "a sweep takes what a bit stands for as it is, though that is less than a block",
        by: Test("checksums::a_resync_that_begins_within_a_block_covers_the_whole_block"),
    },
    Mutant {
        name: "numbers-of-the-gone-kept",
        broken: "a number is never given again, so an array has no place for a member any more after some two thousand",
        by: Test("recovery::device_numbers_of_removed_members_are_reused_when_no_others_are_left"),
    },
    Mutant {
        name: "current-before-told",
        broken: "in metadata 0.90 a member that has recovered gets its new number before the others know it",
        by: Test("recovery::old::power_may_go_at_any_write_of_a_replacement_in_metadata_0_90"),
    },
    Mutant {
        name: "number-beyond-room",
        broken: "a spare is given a slot whose number the members' superblocks have no room for",
        by: Test("recovery::spares::a_spare_whose_number_no_superblock_has_room_for_is_left_out"),
    },
    Mutant {
        name: "broken-array-answers",
        broken: "writes are answered from memory by an array that takes none any more",
        by: Test("coalescing::writeback::dirty_data_that_cannot_be_written_fails_the_flush"),
    },
    Mutant {
        name: "in-sync-too-soon",
        broken: "a member is called in sync when all is recovered, though a loss of power leaves it as one that is not",
        by: Test("recovery::a_member_is_reported_in_sync_only_once_its_superblock_says_so"),
    },
    Mutant {
        name: "half-is-a-spare",
        broken: "a member that was used apart from the array's is taken for what they call it, and recovered over",
        by: Seed(125),
    },
    Mutant {
        name: "half-returns",
        broken: "a member that was used apart from the array's is taken back by the bitmap",
        by: Seed(14),
    },
    Mutant {
        name: "own-bits-ignored",
        broken: "a member that returns is not recovered where its own bitmap alone says so",
        by: Test("halves::a_re_added_member_is_also_recovered_where_only_its_own_bitmap_is_set"),
    },
    Mutant {
        name: "told-first-is-apart",
        broken: "one that heard of its slot before the others makes all of them members of another half",
        by: Seed(1463),
    },
    Mutant {
        name: "no-room-is-a-failure",
        broken: "a member leaves because it has no room for what is written",
        by: Test("no_space::no_member_is_failed_for_lack_of_space_and_answered_writes_read_back_without_any_one"),
    },
    Mutant {
        name: "silent-for-good",
        broken: "a member that timed out once is not asked again where nothing is repaired",
        by: Test("healing::a_member_that_hung_once_is_read_again_also_where_nothing_is_repaired"),
    },
    Mutant {
        name: "superblock-room-is-a-failure",
        broken: "a member leaves because it has no room for its superblock",
        by: Test("no_space::no_member_is_failed_for_lack_of_space_for_its_superblock"),
    },
    Mutant {
        name: "round-without-room-passed",
        broken: "a member that had no room for a round of superblocks is not given it before the next",
        by: Test("no_space::no_member_is_failed_for_lack_of_space_for_its_superblock"),
    },
    Mutant {
        name: "owed-forgotten",
        broken: "what a member had no room for is not kept: others have their part of the write, and it has not",
        by: Test("no_space::no_member_is_failed_for_lack_of_space_and_answered_writes_read_back_without_any_one"),
    },
    Mutant {
        name: "clean-while-owing",
        broken: "an array is marked clean while members lack what was written",
        by: Test("no_space::an_array_whose_members_have_no_space_is_not_marked_clean"),
    },
    Mutant {
        name: "owed-is-flushed",
        broken: "what was answered from memory and a member has no room for is called durable",
        by: Test("no_space::dirty_data_that_finds_no_space_is_readable_and_fails_the_flush"),
    },
    Mutant {
        name: "memory-of-any-alignment",
        broken: "members are handed memory that begins at any byte",
        by: Test("reads::reads_fill_memory_that_is_not_aligned_for_members"),
    },
    Mutant {
        name: "check-heals",
        broken: "what a check finds is healed beside it, as what requests find",
        by: Test("checks::a_check_changes_no_member_and_fails_none_whatever_it_finds"),
    },
    Mutant {
        name: "check-learns",
        broken: "a check keeps checksums that were unknown, which writes to the members",
        by: Test("checksums::a_repair_stores_checksums_of_blocks_that_agree"),
    },
    Mutant {
        name: "block-counted-twice",
        broken: "a wrong block counts with each look at it",
        by: Test("checks::a_check_changes_no_member_and_fails_none_whatever_it_finds"),
    },
    Mutant {
        name: "corruption-as-read-error",
        broken: "a block that is not what its checksum says counts as an error of the medium, which makes members leave",
        by: Test("checks::reads_heal_more_wrong_blocks_than_the_limit_of_read_errors"),
    },
    Mutant {
        name: "scrub-outlives-array",
        broken: "a scrub of an array that has broken off waits for ever",
        by: Test("checks::a_scrub_of_a_failed_array_ends_at_once_with_the_reason"),
    },
    Mutant {
        name: "answered-and-not-buffered",
        broken: "a write is answered from memory without a place in the write buffer, and a kill loses it",
        by: Test("coalescing::kills::a_stream_that_was_answered_from_memory_is_there_after_a_kill"),
    },
    Mutant {
        name: "buffer-not-freed",
        broken: "what the members have stays in the write buffer, and an assembly writes it over later data",
        by: Seed(85),
    },
    Mutant {
        name: "buffer-not-announced",
        broken: "a superblock is written that the write buffer does not name, so that the buffer does not count",
        by: Seed(2530),
    },
    Mutant {
        name: "buffer-taken-for-one-superblock",
        broken: "a server that takes a write buffer over forgets the superblocks that other members may still have",
        by: Test("coalescing::kills::what_was_answered_counts_for_members_that_a_cut_round_of_superblocks_left_behind"),
    },
    Mutant {
        name: "foreign-buffer-believed",
        broken: "the write buffer is written although other software has written the members since",
        by: Seed(39_239),
    },
    Mutant {
        name: "time-of-each-superblock",
        broken: "superblocks of one round differ in their time, so that the write buffer names more than it can",
        by: Seed(3_741),
    },
    Mutant {
        name: "buffered-beside-foreign-superblocks",
        broken: "writes are answered from the write buffer while the members have superblocks of other software",
        by: Test("coalescing::kills::no_write_is_answered_from_memory_that_does_not_count"),
    },
    Mutant {
        name: "zeros-cut-in-a-block",
        broken: "zeros of more than a transfer are cut where their first byte says, within a block",
        by: Test("zeros::no_block_is_torn_by_zeros_that_take_several_transfers"),
    },
    Mutant {
        name: "returning-member-looked-at-once",
        broken: "a member is taken back by the superblock that another request has erased meanwhile",
        by: Test("recovery::spares::a_member_is_not_taken_back_by_what_it_held_before_another_request_erased_it"),
    },
    Mutant {
        name: "stopped-without-absent",
        broken: "a stop flushes what an earlier user wrote, and an absent member without it counts as current",
        by: Test("recovery::rounds::what_a_stop_has_flushed_is_not_read_from_a_member_that_was_absent"),
    },
    Mutant {
        name: "resynced-before-absent-recorded",
        broken: "copies count as agreeing while a member without the resync still counts as current",
        by: Test("recovery::rounds::a_resync_without_a_member_counts_for_nothing_before_that_member_is_stale"),
    },
    Mutant {
        name: "log-dropped-unevenly",
        broken: "a member that is one event behind is levelled without a log, while the others still name one",
        by: Test("policies::a_log_is_turned_off_on_all_members_at_once_after_an_interrupted_round"),
    },
    Mutant {
        name: "unusable-log-kept",
        broken: "a whole array keeps a partial parity log whose replay has failed",
        by: Test("parity_log::a_member_that_a_replay_could_not_read_agrees_with_parity_afterwards"),
    },
    Mutant {
        name: "bitmap-file-beside-a-log",
        broken: "a bitmap file is taken beside a log of md's",
        by: Test("parity_log::a_bitmap_file_is_refused_beside_a_log"),
    },
    Mutant {
        name: "unsettled-replay-believed",
        broken: "a replay counts although a member could neither be read nor written",
        by: Test("stripe_log::a_member_that_a_replay_could_not_read_agrees_with_parity_afterwards"),
    },
    Mutant {
        name: "unreadable-chunk-left",
        broken: "a replay leaves what a member could not read",
        by: Test("parity_log::a_member_that_a_replay_could_not_read_agrees_with_parity_afterwards"),
    },
    Mutant {
        name: "buffered-write-covers-a-later-one",
        broken: "after a kill, a write that was answered from memory covers a part of a later one in the same block",
        by: Test("coalescing::kills::a_kill_amid_a_write_over_an_answered_one_tears_no_block"),
    },
    Mutant {
        name: "read-only-unsettled",
        broken: "an array counts as read-only while it is dirty, and what was answered from memory is written later",
        by: Test("read_only::members_of_an_array_made_read_only_hold_what_was_answered_and_do_not_change"),
    },
    Mutant {
        name: "loss-written-over",
        broken: "a write that is lost while it waits for its answer clears the mark of its own loss",
        by: Seed(806_955),
    },
    Mutant {
        name: "older-write-clears-a-loss",
        broken: "a write clears, when it is answered, the mark of a later write over it that was lost",
        by: Test("coalescing::writeback::a_write_that_was_requested_earlier_and_ends_later_clears_no_loss"),
    },
    Mutant {
        name: "loss-answered-over-amid-flush",
        broken: "a flush takes lost data for safe once a later write over it is answered from memory",
        by: Seed(2_025_367),
    },
    Mutant {
        name: "reshape-not-announced",
        broken: "a reshape begins before all members say where their data will lie",
        by: Test("more_slots::power_may_go_at_any_write_of_a_reshape_and_again_amid_its_rest"),
    },
    Mutant {
        name: "reshape-ended-at-once",
        broken: "a reshape ends while members still say the old place of their data",
        by: Test("more_slots::power_may_go_at_any_write_of_a_reshape_and_again_amid_its_rest"),
    },
    Mutant {
        name: "reshape-recorded-before-flush",
        broken: "the position of a reshape is recorded before what was moved is on stable storage",
        by: Test("more_slots::power_may_go_at_any_write_of_a_reshape_and_again_amid_its_rest"),
    },
    Mutant {
        name: "reshape-over-what-is-needed",
        broken: "a reshape writes over data that it has not moved yet",
        by: Test("more_slots::power_may_go_at_any_write_of_a_reshape_and_again_amid_its_rest"),
    },
    Mutant {
        name: "reshape-beside-absent",
        broken: "data moves before an absent member is two events behind",
        by: Test("more_slots::power_may_go_at_any_write_of_a_reshape_and_again_amid_its_rest"),
    },
    Mutant {
        name: "lost-and-forgotten",
        broken: "what was answered and could not be written leaves the write buffer, and a kill hides that it is lost",
        by: Seed(2_572_030),
    },
    Mutant {
        name: "lost-covers-a-later-write",
        broken: "after a kill, what was lost before it covers a part of a later write",
        by: Test("coalescing::kills::what_was_lost_before_a_kill_undoes_no_later_write"),
    },
    Mutant {
        name: "sweep-cut-and-complete",
        broken: "a sweep that was held for a moment is complete when its windows in flight have ended",
        by: Test("read_only::a_recovery_that_is_held_for_a_moment_recovers_all_the_same"),
    },
];
