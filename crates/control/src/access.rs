//! Access control of the control sockets: which client may send which request.
//!
//! Only the owner of the unix socket and root can open it, so its clients may do everything. A TCP port on the loopback
//! address is open to every user of the machine, and to any page that a browser there loads. So a request on TCP that
//! changes something needs a token. A request addressed to another host's name is refused, because a page of that host
//! may have sent it (DNS rebinding). A port that other machines reach needs the token for reads as well, except for
//! [open](super::Route::is_open) routes. No browser sends the token by itself, so there the host's name does not matter.
//! This module never reads a socket; it judges headers only. Sources: RFC 6750 (bearer tokens), RFC 9110 (Host).

use super::{ApiError, Method};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use std::fmt;
use std::net::IpAddr;
use subtle::ConstantTimeEq;

/// Minimum length of a token, in characters.
pub const TOKEN_CHARS_MIN: usize = 16;

/// The secret that a client on TCP must send, to change something or beyond loopback at all.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// A token of `text`.
    ///
    /// # Errors
    /// When it is too short to be a secret, or cannot be sent in a header.
    pub fn new(text: &str) -> Result<Self, String> {
        if text.len() < TOKEN_CHARS_MIN {
            return Err(format!("a token has at least {TOKEN_CHARS_MIN} characters"));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err("a token is of visible ASCII characters, without spaces".to_owned());
        }
        Ok(Self(text.to_owned()))
    }

    /// Compares in time that does not depend on the position of the first difference. The length is no secret.
    fn is(&self, other: &[u8]) -> bool {
        self.0.as_bytes().ct_eq(other).into()
    }

    /// Whether `headers` bring this token.
    ///
    /// # Errors
    /// They bring another one.
    fn is_in(&self, headers: &HeaderMap) -> Result<bool, ApiError> {
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        match given.and_then(|value| value.strip_prefix(b"Bearer ")) {
            Some(given) if self.is(given) => Ok(true),
            Some(_) => Err(ApiError::new(401, "wrong token")),
            None => Ok(false),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// What the clients of one socket may do.
#[derive(Debug, Clone)]
pub(super) enum Access {
    /// Everything.
    Owner,
    /// Read, if they are on this machine. Changes need this token; without a token, changes are refused.
    Local(Option<Token>),
    /// Everything with this token; without it only what is open.
    #[cfg_attr(not(feature = "https"), allow(dead_code, reason = "without TLS there is no such socket"))]
    Remote(Token),
}

/// A request that is allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Allowed {
    /// The client may know everything about the array.
    Known,
    /// The client has shown nothing, and learns no more than one word.
    Stranger,
}

impl Access {
    /// Refuses a request that `self` does not allow, with 401 or 403. `is_open` as in [`Route`](super::Route).
    pub(super) fn check(&self, method: Method, is_open: bool, headers: &HeaderMap) -> Result<Allowed, ApiError> {
        match self {
            Self::Owner => Ok(Allowed::Known),
            Self::Local(token) => check_local(token.as_ref(), method, headers),
            Self::Remote(token) => match token.is_in(headers)? {
                true => Ok(Allowed::Known),
                false if is_open => Ok(Allowed::Stranger),
                false => Err(token_wanted()),
            },
        }
    }
}

fn check_local(token: Option<&Token>, method: Method, headers: &HeaderMap) -> Result<Allowed, ApiError> {
    let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
    if !is_this_machine(host) {
        let message = format!("{host:?} is not this machine");
        return Err(ApiError::new(403, message).advice("ask for localhost, 127.0.0.1 or [::1]"));
    }
    if method == Method::Get {
        return Ok(Allowed::Known);
    }
    let Some(token) = token else {
        let advice = "use the control socket, or serve with --http-token-file";
        return Err(ApiError::new(403, "this port is read-only").advice(advice));
    };
    if token.is_in(headers)? { Ok(Allowed::Known) } else { Err(token_wanted()) }
}

fn token_wanted() -> ApiError {
    ApiError::new(401, "this request needs the token").advice("send Authorization: Bearer TOKEN")
}

/// Whether a Host header names the loopback address.
fn is_this_machine(host: &str) -> bool {
    let name = match host.rsplit_once(':') {
        Some((name, port)) if !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let address = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name == "localhost" || address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    const SECRET: &str = "0123456789abcdef";

    #[test]
    fn on_tcp_reading_is_free_for_this_machine_and_changing_needs_the_token() {
        let closed = Access::Local(None);
        let open = Access::Local(Some(Token::new(SECRET).expect("it is long enough")));
        let bearer = format!("Bearer {SECRET}");
        let basic = format!("Basic {SECRET}");
        let almost = "Bearer 0123456789abcdeF";
        for (access, method, host, given, expected) in [
            (&Access::Owner, Method::Post, "anything", None, Ok(())),
            (&open, Method::Get, "localhost:9000", None, Ok(())),
            (&open, Method::Get, "127.0.0.1:9000", None, Ok(())),
            (&open, Method::Get, "[::1]:9000", None, Ok(())),
            (&open, Method::Get, "[::1]", None, Ok(())),
            (&open, Method::Get, "rebound.example:9000", None, Err(403)),
            (&open, Method::Get, "localhost.example", None, Err(403)),
            (&open, Method::Get, "192.0.2.1:9000", None, Err(403)),
            (&open, Method::Get, "", None, Err(403)),
            (&open, Method::Post, "localhost", None, Err(401)),
            (&open, Method::Post, "localhost", Some(almost), Err(401)),
            (&open, Method::Post, "localhost", Some("Bearer "), Err(401)),
            (&open, Method::Post, "localhost", Some(&*basic), Err(401)),
            (&open, Method::Post, "localhost", Some(&*bearer), Ok(())),
            (&open, Method::Post, "rebound.example", Some(&*bearer), Err(403)),
            (&closed, Method::Get, "localhost", None, Ok(())),
            (&closed, Method::Post, "localhost", Some(&*bearer), Err(403)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_str(host).expect("it is a header"));
            if let Some(given) = given {
                headers.insert(AUTHORIZATION, HeaderValue::from_str(given).expect("it is a header"));
            }
            let status = access.check(method, false, &headers).map(drop).map_err(|error| error.status);
            assert_eq!(status, expected, "{access:?} {method:?} {host} {given:?}");
        }
    }

    #[test]
    fn from_other_machines_everything_needs_the_token_except_what_is_open() {
        let access = Access::Remote(Token::new(SECRET).expect("it is long enough"));
        let bearer = format!("Bearer {SECRET}");
        for (method, is_open, given, expected) in [
            (Method::Get, false, None, Err(401)),
            (Method::Post, false, None, Err(401)),
            (Method::Get, true, None, Ok(Allowed::Stranger)),
            (Method::Get, false, Some("Bearer 0123456789abcdeF"), Err(401)),
            (Method::Get, false, Some("Bearer 0123456789abcdef0"), Err(401)),
            (Method::Get, true, Some("Bearer "), Err(401)),
            (Method::Get, false, Some("bearer"), Err(401)),
            (Method::Get, false, Some(&*bearer), Ok(Allowed::Known)),
            (Method::Post, false, Some(&*bearer), Ok(Allowed::Known)),
            (Method::Get, true, Some(&*bearer), Ok(Allowed::Known)),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_static("nas.example"));
            if let Some(given) = given {
                headers.insert(AUTHORIZATION, HeaderValue::from_str(given).expect("it is a header"));
            }
            let result = access.check(method, is_open, &headers).map_err(|error| error.status);
            assert_eq!(result, expected, "{method:?} {is_open} {given:?}");
        }
    }

    #[test]
    fn a_token_is_long_and_can_be_sent_in_a_header() {
        for (text, is_taken) in
            [(SECRET, true), ("short", false), ("", false), ("0123456789 abcdef", false), ("0123456789abcde\n", false)]
        {
            assert_eq!(Token::new(text).is_ok(), is_taken, "{text:?}");
        }
        assert!(!format!("{:?}", Token::new(SECRET)).contains(SECRET), "Debug must not print the token");
    }
}
