//! The command line: accepted and refused arguments, and help.

use crate::support::Workplace;

const COMMANDS: [&str; 26] = [
    "up", "create", "examine", "serve", "read", "write", "list", "status", "wait", "iostat", "top", "monitor", "trace",
    "fail", "remove", "add", "re-add", "replace", "set", "scrub", "stop", "update", "overlay", "wipe", "bench", "lab",
];

#[test]
fn every_command_explains_itself() {
    let here = Workplace::new();
    let overview = here.run("--help").ok().text();
    for command in COMMANDS {
        assert!(overview.contains(&format!("\n  {command} ")), "{command} is not in:\n{overview}");
        let help = here.run(&format!("{command} --help")).ok().text();
        assert!(help.contains(&format!("Usage: mdspace {command}")), "{help}");
    }
    assert!(overview.contains("Exit status: 0 done; 1"), "{overview}");
}

#[test]
fn a_wrong_argument_is_refused_with_the_reason_and_where_to_read_more() {
    let run = Workplace::new().run("create --level 5 --chunk 64KB a.img b.img c.img");
    run.expect(2, &[]);
    assert_eq!(
        run.stderr,
        "error: invalid value '64KB' for '--chunk <SIZE>': `KB` is not a unit; use K, M, G, T or P (powers of 1024)\n\
         \n\
         For more information, try '--help'.\n"
    );
}

#[test]
fn a_chunk_that_md_refuses_where_pages_are_larger_is_warned_of() {
    let here = Workplace::new();
    let warning = "warning: md refuses chunks of 4 KiB where a page is larger";
    for (number, (line, is_warned_of)) in [
        ("--level 5 --chunk 4K", true),
        ("--level 6 --chunk 64K", false),
        ("--level 10", false),
        ("--level 0 --chunk 4K", false),
        ("--level 1", false),
    ]
    .into_iter()
    .enumerate()
    {
        let members: Vec<_> = (0..4).map(|member| format!("{number}.{member}")).collect();
        let run = here.run(&format!("create {line} --size 8M {}", members.join(" ")));
        run.ok();
        assert_eq!(run.stderr.contains(warning), is_warned_of, "{line}: {}", run.stderr);
    }
}

#[test]
fn nonsense_is_refused_before_anything_is_made() {
    let here = Workplace::new();
    for (line, words) in [
        ("", &["Usage: mdspace"] as &[&str]),
        ("create a.img", &["--level <LEVEL>"]),
        ("create --level 5", &["<MEMBER>"]),
        ("create --level 7 --size 64M a b c", &["'7'", "0, 1, 4, 5, 6 or 10"]),
        ("create --level 5 --layout n2 --size 64M a b c", &["RAID-5 has no layout `n2`", "left-symmetric (ls)"]),
        ("create --level 1 --layout ls --size 64M a b", &["it has only one"]),
        ("create --level 5 --metadata 0.91 --size 64M a b c", &["'0.91'", "0.90", "1.2"]),
        ("create --level 5 --metadata 0.90 --name x --size 64M a b c", &["0.90 has no field for a name"]),
        ("create --level 5 --metadata 0.90 --integrity --size 64M a b c", &["0.90", "checksums"]),
        ("create --level 5 --metadata 0.90 --consistency-policy log --size 64M a b c", &["no room for a stripe log"]),
        ("create --level 1 --metadata 0.90 --size 5T a b", &["placement.component", "4 TiB"]),
        ("create --level 1 --metadata 0.90 --failfast a --size 64M a b", &["--failfast", "wrong state"]),
        ("create --level 1 --preferred-minor 5 --size 64M a b", &["--preferred-minor", "only metadata 0.90"]),
        ("create --level 1 --write-mostly c --size 64M a b", &["--write-mostly c: not one of the members"]),
        ("create --level 5 --write-mostly c --size 64M a b c", &["--write-mostly", "RAID-5"]),
        ("create --level 0 --component-size 10M --size 64M a b", &["--component-size", "RAID-0", "all of each"]),
        ("create --level 1 --component-size 65M --size 64M a b", &["placement.component", "room for only"]),
        ("create --level 1 --uuid 12:34 --size 64M a b", &["32 hexadecimal digits"]),
        ("create --level 5 a b c", &["a: no such file", "--size"]),
        ("read", &["<MEMBER>"]),
        ("read nothing.img", &["nothing.img: no such file"]),
        ("read *.img", &["*.img: no file or device matches"]),
        ("read [", &["["]),
        ("read a --uuid 1234", &["32 hexadecimal digits"]),
        ("read a --offset -1", &["-1"]),
        ("serve nothing.img", &["nothing.img: no such file"]),
        ("--kernel abacus examine nothing.img", &["abacus", "portable"]),
        ("status", &["no array of yours", "mdspace serve"]),
        ("status --control nothing.sock", &["nothing.sock"]),
        ("fail a.img", &["no array of yours"]),
        ("stop now", &["no array of yours"]),
        ("stop now then", &["unexpected argument"]),
        ("set stripe-size", &["'stripe-size'", "KEY=VALUE"]),
        ("set", &["<KEY=VALUE>"]),
        ("set a=1 a=2", &["a: given twice"]),
        ("serve a --stripe-size 64KB", &["--stripe-size", "not a unit"]),
        ("serve a --stripe-size 64G", &["--stripe-size", "more than any chunk"]),
    ] {
        here.run(line).expect(2, words);
        let left = here.path().read_dir().expect("it is a directory").count();
        assert_eq!(left, 0, "`{line}` left files behind");
    }
}
