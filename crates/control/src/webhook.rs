//! Webhooks: posts JSON to a URL when an event occurs. Plain http only; it never retries. Source: RFC 9112.

use http_body_util::Full;
use hyper::body::Bytes;
use hyper::client::conn::http1::handshake;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Request, Uri};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;

/// Maximum time from connecting to the answer.
const TIME_MAX: Duration = Duration::from_secs(10);

/// The URL to post to.
#[derive(Debug)]
pub struct Webhook {
    url: Uri,
    host: String,
    port: u16,
}

impl Webhook {
    /// A webhook of `url`.
    ///
    /// # Errors
    /// When `url` is no URL, or its scheme is not `http`.
    pub fn new(url: &str) -> Result<Self, String> {
        let url: Uri = url.parse().map_err(|error| format!("{url:?}: {error}"))?;
        if url.scheme_str() != Some("http") {
            return Err(format!("{url}: only http:// URLs are posted to"));
        }
        let host = url.host().ok_or_else(|| format!("{url}: it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        Ok(Self { host, port: url.port_u16().unwrap_or(80), url })
    }

    /// Posts `body`, and waits for the answer.
    ///
    /// # Errors
    /// When no answer arrives in time, or its status is no success.
    pub fn post(&self, body: &Value) -> Result<(), String> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| error.to_string())?;
        runtime.block_on(async {
            let posted = tokio::time::timeout(TIME_MAX, self.exchange(body.to_string()));
            posted.await.map_err(|_| format!("no answer within {TIME_MAX:?}"))?
        })
    }

    async fn exchange(&self, body: String) -> Result<(), String> {
        let said = |error: &dyn std::error::Error| error.to_string();
        let stream = TcpStream::connect((&*self.host, self.port)).await.map_err(|error| said(&error))?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(|error| said(&error))?;
        let request = Request::post(self.url.path_and_query().map_or("/", |path| path.as_str()))
            .header(HOST, self.url.authority().map_or(&*self.host, |authority| authority.as_str()))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::<Bytes>::from(body))
            .map_err(|error| said(&error))?;
        let mut exchange = std::pin::pin!(sender.send_request(request));
        let response = tokio::select! {
            biased;
            response = &mut exchange => response,
            _ = connection => exchange.await, // the answer may have arrived already
        };
        let status = response.map_err(|error| said(&error))?.status();
        if status.is_success() { Ok(()) } else { Err(format!("status {status}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_http_urls_are_taken_and_others_refused() {
        for (url, expected) in [
            ("http://example.org/hook?a=b", Some(("example.org", 80))),
            ("http://127.0.0.1:9/", Some(("127.0.0.1", 9))),
            ("http://[::1]:9/", Some(("::1", 9))),
            ("https://example.org/", None),
            ("example.org", None),
            ("/etc/passwd", None),
            ("", None),
        ] {
            let webhook = Webhook::new(url);
            assert_eq!(webhook.as_ref().ok().map(|webhook| (&*webhook.host, webhook.port)), expected, "{url}");
        }
    }
}
