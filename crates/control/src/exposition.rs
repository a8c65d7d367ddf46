//! The two text formats of metrics: OpenMetrics, which the server's backend writes, and the older format of Prometheus.
//!
//! A client that does not ask for OpenMetrics gets the older format, which `promtool check metrics` and other tools of
//! the command line read. Only lines of comments differ: samples stay as they are. This module never counts anything.
//! Sources: OpenMetrics 1.0; "Exposition formats" of Prometheus's documents.

use axum::http::HeaderMap;
use axum::http::header::ACCEPT;

/// The media type of OpenMetrics.
pub(super) const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The media type of the older format.
pub(super) const PROMETHEUS_TEXT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Whether a client asks for OpenMetrics, as Prometheus does.
pub(super) fn accepts_open_metrics(headers: &HeaderMap) -> bool {
    let accepted = headers.get_all(ACCEPT).iter().filter_map(|value| value.to_str().ok());
    accepted.flat_map(|value| value.split(',')).any(|range| range.trim().starts_with("application/openmetrics-text"))
}

/// The same metrics in the older format. There a family is called what its samples are called, and has no unit.
pub(super) fn as_prometheus_text(open_metrics: &str) -> String {
    let mut text = String::new();
    let mut help = None;
    for line in open_metrics.lines() {
        match line.strip_prefix("# ").and_then(|comment| comment.split_once(' ')) {
            Some(("HELP", rest)) => help = rest.split_once(' ').map(|(_, help)| help),
            Some(("TYPE", family)) => {
                let (name, kind) = family.split_once(' ').unwrap_or((family, "unknown"));
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "info" => ("_info", "gauge"),
                    "unknown" => ("", "untyped"),
                    _ => ("", kind),
                };
                text.extend(help.take().map(|help| format!("# HELP {name}{suffix} {help}\n")));
                text += &format!("# TYPE {name}{suffix} {kind}\n");
            }
            _ if line.starts_with('#') => {} // a unit, or the end
            _ => {
                text += line;
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn a_family_of_the_older_format_is_called_what_its_samples_are_called() {
        let open_metrics = "# HELP a_bytes What.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{x=\"# y\"} 1\n\
                            # HELP b Which.\n# TYPE b info\nb_info{version=\"1\"} 1\n# HELP c How.\n# TYPE c histogram\n\
                            c_bucket{le=\"+Inf\"} 0\n# TYPE d unknown\nd 4\n# EOF\n";
        let expected = "# HELP a_bytes_total What.\n# TYPE a_bytes_total counter\na_bytes_total{x=\"# y\"} 1\n\
                        # HELP b_info Which.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n# HELP c How.\n# TYPE c histogram\n\
                        c_bucket{le=\"+Inf\"} 0\n# TYPE d untyped\nd 4\n";
        assert_eq!(as_prometheus_text(open_metrics), expected);
    }

    #[test]
    fn open_metrics_is_for_clients_that_ask_for_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1";
        for (accepted, is_open_metrics) in [
            (Some(prometheus), true),
            (Some("text/plain, application/openmetrics-text"), true),
            (Some("*/*"), false),
            (Some("text/html"), false),
            (None, false),
        ] {
            let mut headers = HeaderMap::new();
            headers.extend(accepted.map(|accepted| (ACCEPT, HeaderValue::from_static(accepted))));
            assert_eq!(accepts_open_metrics(&headers), is_open_metrics, "{accepted:?}");
        }
    }
}
