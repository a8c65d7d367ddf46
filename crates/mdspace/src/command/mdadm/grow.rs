//! Grow mode: more of each member, more copies, another bitmap, of a served array.
//!
//! One change at a time, so that none is done while another is refused. What would reshape the array is refused by the
//! parser. Facts: mdadm 4.2's `Grow.c`.

use super::arrays::{all, wanted};
use super::own::absolute;
use super::words::{Words, count, seconds, size};
use super::{Trouble, note};
use crate::names::name_of;
use serde_json::{Value, json};
use std::path::Path;

/// Runs grow mode.
pub(super) fn run(words: &Words) -> Result<u8, Trouble> {
    let Some((device, members)) = words.devices.split_first() else {
        return Err(Trouble::usage("an md device must be given in this mode"));
    };
    let (route, body) = change(words)?;
    let added: Vec<String> = members.iter().map(|member| name_of(Path::new(&absolute(&member.word)))).collect();
    if let Some(missing) = added.iter().find(|member| !crate::names::path_of(member).exists()) {
        return Err(Trouble::failed(format!("cannot open {missing}: No such file or directory")));
    }
    let delay = words.value("delay").map(|delay| seconds(&delay)).transpose()?;
    if delay.is_some() && words.value("bitmap").is_none_or(|bitmap| bitmap == "none") {
        return Err(Trouble::usage("--delay: only with --bitmap"));
    }
    let arrays = all();
    let array = wanted(&device.word.to_string_lossy(), &arrays)?;
    match route {
        Some(route) => drop(array.post(route, &body)?),
        None if added.is_empty() => return Err(Trouble::usage("no changes to --grow")),
        None => {}
    }
    if let Some(delay) = delay {
        array.post("/v1/set", &json!({ "bitmap-delay": delay }))?;
    }
    for member in &added {
        array.post("/v1/members/add", &json!({ "member": member, "force": words.has("force") }))?;
        if !words.is_quiet() {
            note(&format!("added {member}"));
        }
    }
    Ok(0)
}

/// The one change, as a request.
fn change(words: &Words) -> Result<(Option<&'static str>, Value), Trouble> {
    let options = ["size", "raid-devices", "bitmap", "consistency-policy"];
    let given: Vec<&str> = options.into_iter().filter(|option| words.has(option)).collect();
    let (&option, more) = match &given[..] {
        [] => return Ok((None, Value::Null)),
        [option, more @ ..] => (option, more),
    };
    if let Some(other) = more.first() {
        return Err(Trouble::refused(format!(
            "--{option} and --{other}: not yet in one line: give one after the other"
        )));
    }
    if words.has("bitmap-chunk") && option != "bitmap" {
        return Err(Trouble::usage("--bitmap-chunk: only with --bitmap"));
    }
    let value = words.value(option).unwrap_or_default();
    match option {
        "size" if value == "max" => Ok((Some("/v1/grow"), json!({ "size": null }))),
        "size" => Ok((Some("/v1/grow"), json!({ "size": size("size", &value)? }))),
        "raid-devices" => Ok((Some("/v1/grow"), json!({ "raid-devices": count("raid-devices", &value)? }))),
        "bitmap" => Ok((Some("/v1/set"), json!({ "bitmap": bitmap(words, &value)? }))),
        _ => match &*value {
            "resync" => Ok((Some("/v1/set"), json!({ "bitmap": "none" }))),
            "ppl" => Ok((Some("/v1/set"), json!({ "consistency-policy": "ppl" }))),
            "bitmap" => Ok((Some("/v1/set"), json!({ "bitmap": "internal" }))),
            _ => {
                Err(Trouble::refused(format!("--consistency-policy={value}: not yet: resync, bitmap and ppl are set")))
            }
        },
    }
}

fn bitmap(words: &Words, value: &str) -> Result<String, Trouble> {
    let chunk = words.value("bitmap-chunk").map(|chunk| size("bitmap-chunk", &chunk)).transpose()?;
    let chunk = chunk.map(|bytes| format!(":{bytes}")).unwrap_or_default();
    match value {
        "none" => Ok("none".to_owned()),
        "internal" => Ok(format!("internal{chunk}")),
        "clustered" => Err(Trouble::refused("--bitmap=clustered: not here: arrays of a cluster are only read")),
        file if file.contains('/') => {
            let file = absolute(std::ffi::OsStr::new(file));
            Ok(format!("{}{chunk}", file.to_string_lossy()))
        }
        other => {
            Err(Trouble::usage(format!("bitmap file must contain a '/', or be 'internal' or 'none', not '{other}'")))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsString;

    #[test]
    fn a_line_is_one_change() {
        let change_of = |line: &str| {
            let words: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
            change(&Words::of(&words).expect("a line of mdadm"))
        };
        for (line, route, body) in [
            ("-G /dev/md0 -z max", "/v1/grow", json!({"size": null})),
            ("-G /dev/md0 --size=1M", "/v1/grow", json!({"size": 1 << 20})),
            ("-G /dev/md0 -n3", "/v1/grow", json!({"raid-devices": 3})),
            ("-G /dev/md0 -b none", "/v1/set", json!({"bitmap": "none"})),
            ("-G /dev/md0 -b internal --bitmap-chunk=64M", "/v1/set", json!({"bitmap": "internal:67108864"})),
            ("-G /dev/md0 -k resync", "/v1/set", json!({"bitmap": "none"})),
            ("-G /dev/md0 -k ppl", "/v1/set", json!({"consistency-policy": "ppl"})),
        ] {
            assert_eq!(change_of(line).expect("a change"), (Some(route), body), "{line}");
        }
        for line in ["-G /dev/md0 -z max -n3", "-G /dev/md0 -k journal", "-G /dev/md0 -b x", "-G /dev/md0 -z x"] {
            assert_eq!(change_of(line).expect_err(line).status, 2, "{line}");
        }
    }
}
