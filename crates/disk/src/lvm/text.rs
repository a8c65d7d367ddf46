//! The text of LVM's metadata: sections in braces, with names that have a number, a string or a list as value.
//!
//! It only parses. Depth and count are bounded by the text's length and [`DEPTH_MAX`].

/// The deepest nesting. LVM's own texts have four levels.
const DEPTH_MAX: usize = 16;

/// A value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Value {
    Number(u64),
    Text(String),
    List(Vec<Value>),
    Section(Section),
}

/// A section: names and values, in order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Section(Vec<(String, Value)>);

impl Section {
    fn get(&self, name: &str) -> Option<&Value> {
        self.0.iter().find(|(known, _)| known == name).map(|(_, value)| value)
    }

    pub(super) fn number(&self, name: &str) -> Option<u64> {
        if let Value::Number(number) = self.get(name)? { Some(*number) } else { None }
    }

    pub(super) fn text(&self, name: &str) -> Option<&str> {
        if let Value::Text(text) = self.get(name)? { Some(text) } else { None }
    }

    pub(super) fn list(&self, name: &str) -> Option<&[Value]> {
        if let Value::List(list) = self.get(name)? { Some(list) } else { None }
    }

    pub(super) fn section(&self, name: &str) -> Option<&Section> {
        if let Value::Section(section) = self.get(name)? { Some(section) } else { None }
    }

    /// The sections in this one, with their names.
    pub(super) fn sections(&self) -> impl Iterator<Item = (&str, &Section)> {
        self.0.iter().filter_map(|(name, value)| match value {
            Value::Section(section) => Some((&**name, section)),
            _ => None,
        })
    }
}

/// Parses a whole text.
pub(super) fn parse(text: &str) -> Result<Section, String> {
    let mut parser = Parser { rest: text };
    let section = parser.section(0)?;
    if parser.peek().is_some() {
        return Err("its metadata have a brace too many".to_owned());
    }
    Ok(section)
}

struct Parser<'a> {
    rest: &'a str,
}

impl<'a> Parser<'a> {
    /// The next letter that is neither space nor comment.
    fn peek(&mut self) -> Option<char> {
        loop {
            self.rest = self.rest.trim_start();
            match self.rest.strip_prefix('#') {
                Some(comment) => self.rest = comment.split_once('\n').map_or("", |(_, rest)| rest),
                None => return self.rest.chars().next(),
            }
        }
    }

    fn take(&mut self, letter: char) -> bool {
        let is_it = self.peek() == Some(letter);
        if is_it {
            self.rest = &self.rest[letter.len_utf8()..];
        }
        is_it
    }

    fn word(&mut self) -> &'a str {
        let is_part = |letter: char| letter.is_ascii_alphanumeric() || "_.+-/@".contains(letter);
        let end = self.rest.find(|letter| !is_part(letter)).unwrap_or(self.rest.len());
        let (word, rest) = self.rest.split_at(end);
        self.rest = rest;
        word
    }

    /// Names and values, up to the end or a closing brace, which is left.
    fn section(&mut self, depth: usize) -> Result<Section, String> {
        let mut section = Section::default();
        while let Some(next) = self.peek() {
            if next == '}' {
                break;
            }
            let name = self.word();
            let value = match (name, self.peek()) {
                ("", _) => return Err(format!("its metadata have an unexpected {next:?}")),
                (_, Some('{')) if depth < DEPTH_MAX => {
                    self.take('{');
                    let inner = self.section(depth + 1)?;
                    if !self.take('}') {
                        return Err(format!("its metadata end in {name}"));
                    }
                    Value::Section(inner)
                }
                (_, Some('=')) => {
                    self.take('=');
                    self.value(depth)?
                }
                _ => return Err(format!("its metadata have no value for {name}")),
            };
            section.0.push((name.to_owned(), value));
        }
        Ok(section)
    }

    fn value(&mut self, depth: usize) -> Result<Value, String> {
        match self.peek() {
            Some('"') => self.quoted(),
            Some('[') if depth < DEPTH_MAX => {
                self.take('[');
                let mut list = Vec::new();
                while !self.take(']') {
                    list.push(self.value(depth + 1)?);
                    self.take(',');
                }
                Ok(Value::List(list))
            }
            _ => {
                let word = self.word();
                word.parse().map(Value::Number).map_err(|_| format!("its metadata have the value {word:?}"))
            }
        }
    }

    /// A string, in which a backslash protects the next letter.
    fn quoted(&mut self) -> Result<Value, String> {
        self.take('"');
        let mut text = String::new();
        let mut letters = self.rest.char_indices();
        while let Some((at, letter)) = letters.next() {
            match letter {
                '"' => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(Value::Text(text));
                }
                '\\' => text.extend(letters.next().map(|(_, letter)| letter)),
                letter => text.push(letter),
            }
        }
        Err("its metadata end in a string".to_owned())
    }
}
