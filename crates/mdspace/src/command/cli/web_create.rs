//! The creation of arrays by `mdspace web --allow-create`.
//!
//! `mdspace create` does it, in a process of its own: what it checks and prints holds here too. It is never told to
//! overwrite what it recognizes (`--force`), and leaves the resync to the server, so that it ends soon.
//!
//! Facts: `Documentation/ABI/stable/sysfs-block` (`size` in sectors of 512 bytes, `ro`, `holders`).

use crate::drive::Drive;
use control::{ApiError, Creation};
use format::units::SECTOR_BYTES;
use io::signal::deliver_to;
use serde_json::{Value, json};
use std::fs::{read_dir, read_to_string};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// Creates arrays as this process's user may, one at a time.
#[derive(Default)]
pub(crate) struct Creating(Mutex<()>);

impl Creation for Creating {
    fn devices(&self) -> Value {
        let names = read_dir("/sys/class/block").into_iter().flatten().flatten();
        let mut names: Vec<String> = names.filter_map(|entry| entry.file_name().into_string().ok()).collect();
        names.sort();
        names.iter().filter_map(|name| device(name)).collect()
    }

    fn create(&self, wanted: &Value) -> Result<Value, ApiError> {
        let words = words(wanted)?;
        let Ok(_alone) = self.0.try_lock() else {
            return Err(ApiError::new(409, "another creation is under way").advice("wait until it has ended"));
        };
        // This program, also after another version has taken its place; called as mdadm, it would read mdadm's words.
        let mut command = Command::new("/proc/self/exe");
        command.arg0("mdspace").arg("create").args(words).stdin(Stdio::null());
        let ended = deliver_to(&mut command).output();
        let ended = ended.map_err(|error| ApiError::new(500, format!("mdspace create: {error}")))?;
        let said = String::from_utf8_lossy(&ended.stderr);
        match ended.status.code() {
            Some(0) => Ok(json!({ "text": format!("{said}{}", String::from_utf8_lossy(&ended.stdout)) })),
            Some(2) => Err(ApiError::new(409, said.trim_start_matches("refused: ").trim_end())),
            Some(_) => Err(ApiError::new(500, said.trim_end())),
            None => Err(ApiError::new(500, format!("mdspace create: {}", ended.status))),
        }
    }
}

/// A device that may have room for a member: one that can be written to and that no other device is made of.
fn device(name: &str) -> Option<Value> {
    let own = Path::new("/sys/class/block").join(name);
    let number = |file: &str| read_to_string(own.join(file)).ok()?.trim().parse::<u64>().ok();
    let (bytes, is_read_only) = (number("size")? * SECTOR_BYTES, number("ro")? != 0);
    let has_holders = read_dir(own.join("holders")).ok()?.next().is_some();
    if bytes == 0 || is_read_only || has_holders || name.starts_with("ram") {
        return None;
    }
    // In sysfs a slash of a name is an exclamation mark.
    let path = format!("/dev/{}", name.replace('!', "/"));
    let Drive { model, serial } = Drive::of(Path::new(&path)).unwrap_or_default();
    Some(json!({ "path": path, "bytes": bytes, "model": model, "serial": serial }))
}

/// The fields of a request.
const FIELDS: [&str; 4] = ["level", "members", "name", "dry-run"];

/// The arguments of `mdspace create` for this request.
fn words(wanted: &Value) -> Result<Vec<String>, ApiError> {
    let refuse = |field: &str, reason: &str| Err(ApiError::new(400, reason).field(field));
    // A field that is misspelt must not count as left out: without `dry-run` the array is created.
    let fields = wanted.as_object().into_iter().flatten().map(|(field, _)| &**field);
    if let Some(field) = fields.into_iter().find(|field| !FIELDS.contains(field)) {
        return refuse(field, "is no field of a creation");
    }
    let Some(level) = wanted["level"].as_str() else { return refuse("level", "is missing, or no text") };
    let Some(members) = wanted["members"].as_array() else { return refuse("members", "is missing, or no list") };
    let mut words = vec!["--resync-later".to_owned(), format!("--level={level}")];
    match &wanted["name"] {
        Value::Null => {}
        Value::String(name) if name.is_empty() => {}
        Value::String(name) if name.contains('\0') => return refuse("name", "has a zero byte"),
        Value::String(name) => words.push(format!("--name={name}")),
        _ => return refuse("name", "is no text"),
    }
    match wanted["dry-run"] {
        Value::Null | Value::Bool(false) => {}
        Value::Bool(true) => words.push("--dry-run".to_owned()),
        _ => return refuse("dry-run", "is neither true nor false"),
    }
    words.push("--".to_owned());
    for member in members {
        match member.as_str() {
            // A pattern could match another device once the array is created.
            Some(path) if path.contains(['*', '?', '[', '\0']) => {
                return refuse("members", "have to be paths, not patterns");
            }
            Some(path) if path.starts_with('/') => words.push(path.to_owned()),
            _ => return refuse("members", "have to be absolute paths"),
        }
    }
    Ok(words)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_becomes_arguments_that_overwrite_nothing() {
        let wanted = json!({ "level": "5", "members": ["/dev/a", "/b"], "name": "--force", "dry-run": true });
        let words = words(&wanted).expect("a right request");
        assert_eq!(words, ["--resync-later", "--level=5", "--name=--force", "--dry-run", "--", "/dev/a", "/b"]);
    }

    #[test]
    fn a_wrong_request_is_refused_by_field() {
        let table = [
            (json!({ "members": [] }), "level"),
            (json!({ "level": "1", "members": "/dev/a" }), "members"),
            (json!({ "level": "1", "members": ["missing"] }), "members"),
            (json!({ "level": "1", "members": [], "name": 1 }), "name"),
            (json!({ "level": "1", "members": [], "dry-run": "no" }), "dry-run"),
            (json!({ "level": "1", "members": [], "dry_run": true }), "dry_run"),
            (json!({ "level": "1", "members": ["/dev/sd*"] }), "members"),
            (json!({ "level": "1", "members": [], "name": "a\u{0}" }), "name"),
            (json!(3), "level"),
        ];
        for (wanted, field) in table {
            let error = words(&wanted).expect_err("a wrong request");
            assert_eq!((error.status, error.field.as_deref()), (400, Some(field)), "{wanted}");
        }
    }
}
