//! Access control of the control sockets: which client may send which request.
//!
//! Only the owner of the unix socket and root can open it, so its clients may do everything. A TCP port on the loopback
//! address is open to every user of the machine, and to any page that a browser there loads. So a request on TCP that
//! changes something needs a token. A request addressed to another host's name is refused, because a page of that host
//! may have sent it (DNS rebinding). This module never reads a socket; it judges headers only. Sources: RFC 6750
//! (bearer tokens), RFC 9110 (Host).

use super::{ApiError, Method};
use axum::http::HeaderMap;
use axum::http::header::{AUTHORIZATION, HOST};
use std::fmt;
use std::net::IpAddr;

/// Minimum length of a token, in characters.
pub const TOKEN_CHARS_MIN: usize = 16;

/// The secret that a client on TCP must send to change something.
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

    /// Compares in time that does not depend on the position of the first difference.
    fn is(&self, other: &[u8]) -> bool {
        let own = self.0.as_bytes();
        own.len() == other.len() && own.iter().zip(other).fold(0, |sum, (a, b)| sum | (a ^ b)) == 0
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
    /// Read. Changes need this token; without a token, changes are refused.
    Token(Option<Token>),
}

impl Access {
    /// Refuses a request that `self` does not allow, with 401 or 403.
    pub(super) fn check(&self, method: Method, headers: &HeaderMap) -> Result<(), ApiError> {
        let Self::Token(token) = self else { return Ok(()) };
        let host = headers.get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        if !is_this_machine(host) {
            let message = format!("{host:?} is not this machine");
            return Err(ApiError::new(403, message).advice("ask for localhost, 127.0.0.1 or [::1]"));
        }
        if method == Method::Get {
            return Ok(());
        }
        let Some(token) = token else {
            let advice = "use the control socket, or serve with --http-token-file";
            return Err(ApiError::new(403, "this port is read-only").advice(advice));
        };
        let given = headers.get(AUTHORIZATION).map(|value| value.as_bytes());
        match given.and_then(|value| value.strip_prefix(b"Bearer ")) {
            Some(given) if token.is(given) => Ok(()),
            Some(_) => Err(ApiError::new(401, "wrong token")),
            None => Err(ApiError::new(401, "this request needs the token").advice("send Authorization: Bearer TOKEN")),
        }
    }
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
        let closed = Access::Token(None);
        let open = Access::Token(Some(Token::new(SECRET).expect("it is long enough")));
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
            let status = access.check(method, &headers).map_err(|error| error.status);
            assert_eq!(status, expected, "{access:?} {method:?} {host} {given:?}");
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
