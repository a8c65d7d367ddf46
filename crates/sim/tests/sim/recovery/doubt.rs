//! After an unclean stop parity is trusted where the bitmap says that no write was under way, also before the resync.

use super::*;

#[test]
fn parity_gives_what_a_member_cannot_read_wherever_the_bitmap_names_no_write() {
    let life = Life::new(Setup { bitmap: true, ..RAID5 }, 1);
    let scene = async {
        let (members, _) = life.create().await;
        let array = life.assemble(&members, false).await.expect("whole");
        life.fill(&array).await;
        array.stop().await.expect("stops clean");
        let array = life.assemble(&members, false).await.expect("whole");
        let (stripe, bytes) = (3 * 4096, array.bytes());
        array.write(0, array.pool().zeroed(4096).freeze(), Durability::Stable).await.expect("whole");
        drop(array);
        members.iter().for_each(SimMember::end_of_process);
        let (mut unread, settled) = (0, life.truth.borrow().settled.clone());
        for member in &members {
            member.faults().bad_reads.borrow_mut().push(DATA_OFFSET as u64..DATA_OFFSET as u64 + (32 << 10));
            let array = life.assemble(&members, false).await.expect("whole");
            assert!(!array.status().in_agreement);
            let named = array.read(0, array.pool().take(stripe)).await;
            unread += usize::from(named.is_err());
            let rest = array.read(stripe as u64, array.pool().take(bytes as usize - stripe)).await;
            assert!(rest.expect("no write was under way there").to_vec() == settled[stripe..], "{}", member.name());
            member.faults().heal();
        }
        assert_eq!(unread, 3, "each member with data of the row that was being written");
    };
    life.world.run(scene, || false).expect("the power does not go");
}
