//! Claims about an export of another server as a member, against the server of this crate.

#[path = "support/served.rs"]
mod served;

use engine::{Member, MemberErrorKind, Pool};
use format::units::MemberByte;
use io::{Backend, Choice, Executor, Options};
use mdspace_export::nbd::member::Remote;
use served::Served;

const BYTES: usize = 4 << 20;

/// Runs `claim` on an executor of each backend.
fn on_each_backend(claim: impl AsyncFn(Pool)) {
    for backend in Backend::ALL {
        let pool = Pool::new(16 << 20);
        let options = Options { backend: Choice::Only(backend), ..Options::new(pool.clone()) };
        Executor::new(&options).expect("an executor").block_on(claim(pool));
    }
}

fn connect(served: &Served) -> Remote {
    Remote::connect(&served.uri().parse().expect("a URI")).expect("it is served")
}

#[test]
fn what_is_written_is_read_again_in_one_part_in_several_and_while_the_caller_waits() {
    on_each_backend(async |pool| {
        let served = Served::new(BYTES, false);
        let mut remote = connect(&served);
        assert_eq!((remote.bytes(), remote.forbids_writes()), (BYTES as u64, None));
        assert!(remote.narrow(100..4096).is_err() && remote.narrow(BYTES as u64..u64::MAX).is_err());
        remote.narrow(4096..u64::MAX).expect("it begins on a block");
        let member = remote.into_member();
        assert_eq!((member.limits().bytes, member.limits().volatile_cache), (BYTES as u64 - 4096, true));
        let mut model = vec![0; BYTES];
        for (at, bytes, value) in [(0, 512, 1), (1 << 20, 2 << 20, 2), (512, 70_000 / 512 * 512, 3)] {
            let whole = pool.copy_of(&vec![value; bytes]);
            let middle = bytes / 2 / 512 * 512;
            let parts = vec![whole.slice(0..middle), whole.slice(middle..bytes)];
            member.write_vectored(MemberByte(at), parts).await.expect("written");
            model[4096 + at as usize..][..bytes].fill(value);
        }
        member.write_zeroes(MemberByte(1 << 20), 1 << 20).await.expect("zeroed");
        model[4096 + (1 << 20)..][..1 << 20].fill(0);
        member.discard(MemberByte(3 << 20), 4096).await.expect("discarded");
        member.flush().await.expect("flushed");
        let mut into = pool.take(3 << 20);
        let front = into.split_to(1 << 19);
        let (read, parts) = member.read_vectored(MemberByte(0), vec![front, into]).await;
        read.expect("read");
        let read: Vec<u8> = parts.iter().flat_map(|part| part.to_vec()).collect();
        assert!(read == model[4096..4096 + (3 << 20)]);

        let mut remote = connect(&served);
        let mut bytes = vec![0; 1_500_001];
        remote.read_exact_at(&mut bytes, 4099).expect("read");
        assert!(bytes == model[4099..4099 + bytes.len()]);
        assert!(remote.read_exact_at(&mut bytes, BYTES as u64 - 5).is_err(), "past the end");

        let end = member.limits().bytes;
        let (beyond, back) = member.read(MemberByte(end - 512), pool.take(1024)).await;
        assert_eq!((beyond.expect_err("beyond").kind, back.len()), (MemberErrorKind::Short, 1024));
    });
}

#[test]
fn a_member_of_a_server_that_ended_is_gone_and_its_buffers_come_back() {
    on_each_backend(async |pool| {
        let served = Served::new(BYTES, true);
        let remote = connect(&served);
        assert_eq!(remote.forbids_writes(), Some("the export is read-only"));
        let member = remote.into_member();
        let refused = member.write(MemberByte(0), pool.copy_of(&[0; 512])).await.expect_err("read-only");
        assert_eq!(refused.kind, MemberErrorKind::Gone);
        let address = served.uri().parse().expect("a URI");
        drop(served);
        let (read, back) = member.read(MemberByte(0), pool.take(4096)).await;
        assert_eq!((read.expect_err("it ended").kind, back.len()), (MemberErrorKind::Gone, 4096));
        Remote::connect(&address).expect_err("nothing listens there");
    });
}

#[test]
fn an_export_that_is_not_there_is_refused_in_the_servers_words() {
    let served = Served::new(BYTES, false);
    let uri = served.uri().replace("array", "other");
    let refused = Remote::connect(&uri.parse().expect("a URI")).expect_err("there is no such export");
    assert!(refused.to_string().contains("refused the export"), "{refused}");
}
