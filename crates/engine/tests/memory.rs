//! How much machine memory a pool takes. A test of its own, as the crate itself uses no files.

use mdspace_engine::Pool;

#[test]
#[cfg(target_os = "linux")]
fn a_pool_takes_no_memory_before_it_is_used() {
    let resident_kib = || {
        let text = std::fs::read_to_string("/proc/self/status").expect("proc");
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        line.trim().trim_end_matches(" kB").parse::<usize>().expect("a number")
    };
    let before = resident_kib();
    let pool = Pool::new(1 << 30);
    let buffer = pool.take(1 << 20);
    assert!(buffer.iter().all(|byte| *byte == 0));
    assert!(resident_kib() < before + (1 << 20) / 2);
}
