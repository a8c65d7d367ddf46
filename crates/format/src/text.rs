//! Names of arrays and files, which anyone may have chosen, as text that is safe to print and can be parsed back.
//!
//! A superblock and a directory may hold any bytes: escapes that control a terminal, line feeds that forge a line of a
//! report, letters that reverse the following ones. A name of harmless letters is unchanged. Any other is quoted as in
//! a shell, `$'a\x1b[31m'`, so that the user can type it as printed. Nothing here validates a name. Source: bash(1),
//! "QUOTING".

use std::fmt::Write;

/// The name. It is quoted as in a shell if it is not UTF-8, has control characters, or looks quoted itself.
pub fn quoted(name: &[u8]) -> String {
    match std::str::from_utf8(name) {
        Ok(text) if is_harmless(text) && !is_quoted(text) => text.to_owned(),
        _ => quote(name),
    }
}

/// The bytes of a name that [`quoted`] printed; of any other text, its own.
pub fn unquoted(text: &str) -> Vec<u8> {
    let inner = text.strip_prefix("$'").and_then(|rest| rest.strip_suffix('\''));
    inner.and_then(unescaped).unwrap_or_else(|| text.as_bytes().to_vec())
}

/// The text with control characters and direction-changing letters written as `\u{1b}`; line feeds and tabs stay. For
/// text of foreign origin, before it goes to a terminal.
pub fn plain(text: &str) -> String {
    let stays = |letter: char| matches!(letter, '\n' | '\t') || !is_active(letter);
    if text.chars().all(stays) {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    for letter in text.chars() {
        match stays(letter) {
            true => plain.push(letter),
            false => plain.extend(letter.escape_unicode()),
        }
    }
    plain
}

fn is_harmless(text: &str) -> bool {
    !text.chars().any(is_active)
}

fn is_quoted(text: &str) -> bool {
    text.starts_with("$'") && text.ends_with('\'')
}

/// Whether a letter does more than show itself.
fn is_active(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}')
}

fn quote(name: &[u8]) -> String {
    let mut text = "$'".to_owned();
    for chunk in name.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\\' | '\'' => text.extend(['\\', letter]),
                letter if is_active(letter) => {
                    let mut bytes = [0; 4];
                    letter.encode_utf8(&mut bytes).bytes().for_each(|byte| push_byte(&mut text, byte));
                }
                letter => text.push(letter),
            }
        }
        chunk.invalid().iter().for_each(|byte| push_byte(&mut text, *byte));
    }
    text.push('\'');
    text
}

fn push_byte(text: &mut String, byte: u8) {
    write!(text, "\\x{byte:02x}").expect("a string takes everything");
}

/// `None` for text that [`quote`] never writes.
fn unescaped(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'\'' => return None,
            b'\\' => match rest.next()? {
                escaped @ (b'\\' | b'\'') => bytes.push(escaped),
                b'x' => {
                    let digits = [rest.next()?, rest.next()?].map(|digit| char::from(digit).to_digit(16));
                    bytes.push((digits[0]? << 4 | digits[1]?) as u8);
                }
                _ => return None,
            },
            byte => bytes.push(byte),
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn harmless_names_are_themselves_and_others_are_quoted_and_can_be_read_back() {
        let table: [(&[u8], &str); 12] = [
            (b"a.img", "a.img"),
            (b"/dev/disk/by-label/My\\x20Disk", "/dev/disk/by-label/My\\x20Disk"),
            ("größe [1]'s".as_bytes(), "größe [1]'s"),
            (b"", ""),
            (b"a\x1b[31mred", "$'a\\x1b[31mred'"),
            (b"two\nlines", "$'two\\x0alines'"),
            (b"\xff\xfeb", "$'\\xff\\xfeb'"),
            (b"it's\t\\", "$'it\\'s\\x09\\\\'"),
            ("\u{202e}gnp.exe".as_bytes(), "$'\\xe2\\x80\\xaegnp.exe'"),
            ("\u{9b}31m".as_bytes(), "$'\\xc2\\x9b31m'"),
            (b"$'a'", "$'$\\'a\\''"),
            (b"\x7f", "$'\\x7f'"),
        ];
        for (name, text) in table {
            assert_eq!(quoted(name), text);
            assert_eq!(unquoted(text), name, "{text}");
        }
        for text in ["$'a", "$'\\q'", "$'\\x1'", "$'a'b'", "'a'"] {
            assert_eq!(unquoted(text), text.as_bytes());
        }
    }

    #[test]
    fn text_is_plain_when_nothing_in_it_drives_a_terminal() {
        assert_eq!(plain("a\tb\n"), "a\tb\n");
        assert_eq!(plain("a\u{1b}]0;x\u{7}\r\u{202e}"), "a\\u{1b}]0;x\\u{7}\\u{d}\\u{202e}");
    }
}
