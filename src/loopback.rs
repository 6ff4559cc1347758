//! Servers for programs and browsers of this machine: who may listen, and who gets in.
//!
//! Any page of the web can send requests to a loopback address, under a name of its own if its DNS
//! answers with that address. So a server needs a secret, and refuses foreign `Host` and `Origin`.

use std::net::{IpAddr, SocketAddr};

use hyper::header::{HOST, HeaderMap, HeaderName, ORIGIN};
use subtle::ConstantTimeEq;
use tokio::net::TcpListener;

use rgpu_model::error::{Exit, Failure, Result};

/// How many ports are tried if the user named none.
const MAX_PORTS_TRIED: u16 = 10;

/// Listens at a loopback address. `again` says how to take another port.
pub(crate) async fn listen(address: SocketAddr, again: &str) -> Result<TcpListener> {
    if !address.ip().is_loopback() {
        let what = format!("`{address}` is not a loopback address");
        return Err(Failure::new(Exit::Usage, "not_loopback", what)
            .cause("a client with the token runs programs as you, and there is no TLS")
            .hint("listen on 127.0.0.1, and reach it from elsewhere through `ssh -L`"));
    }
    TcpListener::bind(address).await.map_err(|e| {
        let what = format!("nothing can listen at `{address}`");
        Failure::new(Exit::Host, "cannot_listen", what).cause(e).hint(again)
    })
}

/// Listens at `first`, or at the first free one of the following ports.
///
/// # Errors
/// As [`listen`]; then all of them are taken.
pub(crate) async fn listen_from(first: SocketAddr, again: &str) -> Result<TcpListener> {
    for port in first.port()..first.port().saturating_add(MAX_PORTS_TRIED) {
        if let Ok(listener) = listen(SocketAddr::new(first.ip(), port), again).await {
            return Ok(listener);
        }
    }
    listen(first, again).await
}

/// The failure of a listening server.
pub(crate) fn failed(error: std::io::Error) -> Failure {
    Failure::new(Exit::Host, "cannot_listen", "the server cannot take connections").cause(error)
}

/// Whether a client gave the secret. The time that the answer takes does not depend on the secret.
pub(crate) fn is_secret(given: &str, secret: &str) -> bool {
    bool::from(given.as_bytes().ct_eq(secret.as_bytes()))
}

/// Whether a request names the server at this address as its host, and comes from no page of
/// another one.
pub(crate) fn is_own(headers: &HeaderMap, address: SocketAddr) -> bool {
    let text = |name: HeaderName| {
        headers.get_all(name).into_iter().map(|value| value.to_str().unwrap_or_default())
    };
    let ip = match address.ip() {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => format!("[{ip}]"),
    };
    let port = address.port();
    let names = [ip.as_str(), "127.0.0.1", "localhost", "[::1]"];
    // Browsers leave out port 80.
    let is_host = |host: &str| {
        let is_name =
            |name: &&str| format!("{name}:{port}") == host || port == 80 && **name == *host;
        names.iter().any(is_name)
    };
    let is_origin = |origin: &str| origin.strip_prefix("http://").is_some_and(is_host);
    headers.contains_key(HOST) && text(HOST).all(is_host) && text(ORIGIN).all(is_origin)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_next_free_port_is_taken_where_none_was_named() {
        let first = listen("127.0.0.1:0".parse().unwrap(), "").await.unwrap();
        let taken = first.local_addr().unwrap();
        assert!(listen(taken, "").await.is_err());
        let second = listen_from(taken, "").await.unwrap().local_addr().unwrap();
        assert!(second.port() > taken.port(), "{second}");
        assert!(listen_from("192.0.2.1:80".parse().unwrap(), "").await.is_err());
    }

    #[test]
    fn only_own_names_are_hosts_and_origins() {
        let headers = |host: &str, origin: Option<&str>| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, host.parse().unwrap());
            origin.map(|origin| headers.insert(ORIGIN, origin.parse().unwrap()));
            headers
        };
        let address = "127.0.0.1:8710".parse().unwrap();
        for (host, origin, own) in [
            ("127.0.0.1:8710", None, true),
            ("localhost:8710", Some("http://localhost:8710"), true),
            ("[::1]:8710", Some("http://[::1]:8710"), true),
            ("127.0.0.1:81", None, false),
            ("127.0.0.1", None, false),
            ("127.0.0.2:8710", None, false),
            ("evil.example:8710", None, false),
            ("127.0.0.1:8710", Some("http://evil.example"), false),
            ("127.0.0.1:8710", Some("http://127.0.0.1:81"), false),
            ("127.0.0.1:8710", Some("https://127.0.0.1:8710"), false),
            ("127.0.0.1:8710", Some("null"), false),
        ] {
            assert_eq!(is_own(&headers(host, origin), address), own, "{host} {origin:?}");
        }
        for (listen, host, own) in [
            ("127.0.0.2:8710", "127.0.0.2:8710", true),
            ("127.0.0.2:8710", "127.0.0.3:8710", false),
            ("[::1]:8710", "[::1]:8710", true),
            ("127.0.0.1:80", "127.0.0.1", true),
            ("127.0.0.1:80", "localhost:80", true),
            ("127.0.0.1:80", "evil.example", false),
        ] {
            let origin = format!("http://{host}");
            let headers = headers(host, Some(&origin));
            assert_eq!(is_own(&headers, listen.parse().unwrap()), own, "{listen} {host}");
        }
        assert!(!is_own(&HeaderMap::new(), address));
        assert!(is_secret("abc", "abc") && !is_secret("abd", "abc") && !is_secret("", "abc"));
    }
}
