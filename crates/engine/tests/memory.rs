//! How much machine memory a pool takes. A test of its own, as the crate itself uses no files.

use mdspace_engine::Pool;
use mdspace_engine::buffer::ALIGNMENT;

#[test]
#[cfg(target_os = "linux")]
fn a_pool_takes_no_memory_before_it_is_used() {
    let resident_pages = || {
        let text = std::fs::read_to_string("/proc/self/statm").expect("proc");
        text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("a number")
    };
    let before = resident_pages();
    let pool = Pool::new(1 << 30);
    let buffer = pool.take(1 << 20);
    assert!(buffer.iter().all(|byte| *byte == 0));
    assert!(resident_pages() < before + (1 << 30) / ALIGNMENT / 2);
}
