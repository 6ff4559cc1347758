//! Access to the page: by a link with a token that works once, then by a cookie and a key.
//!
//! A browser sends the cookie to every server of this machine, whatever its port, so the cookie
//! alone opens nothing but the empty page. The answer to the link hands the key to the browser's
//! storage, which belongs to this port only; every other request needs both. A foreign page cannot
//! read an answer or know the key. A name that resolves to this machine is refused by its `Host`.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::Query;
use axum::http::{HeaderMap, Method, Uri, header};

use rgpu_protocol::server::named_host;

use crate::loopback;
use rgpu_model::error::{Exit, Failure, Result};
use rgpu_run::store::state::random_id;

/// The header with the key.
pub(super) const KEY_HEADER: &str = "x-rgpu-key";

/// The secrets of one server, and the checks of every request to it.
pub(super) struct AccessControl {
    address: SocketAddr,
    token: String,
    /// Whether the link was used.
    was_opened: AtomicBool,
    /// Whether a second use was already reported.
    has_warned: AtomicBool,
    session: String,
    key: String,
    read_only: bool,
}

/// The key in the address of a stream or a report: a browser sends no header for these.
#[derive(serde::Deserialize)]
struct KeyQuery {
    #[serde(default)]
    key: String,
}

/// The result of opening a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// A session was opened.
    Opened,
    /// The link was used before.
    UsedBefore {
        /// Whether this is its second use.
        is_second: bool,
    },
    /// The link has another token.
    WrongToken,
}

impl AccessControl {
    /// Makes new secrets for the server at this address.
    pub(super) fn new(address: SocketAddr, read_only: bool) -> Result<Self> {
        Ok(Self {
            address,
            token: random_id()?,
            was_opened: AtomicBool::new(false),
            has_warned: AtomicBool::new(false),
            session: random_id()?,
            key: random_id()?,
            read_only,
        })
    }

    /// The token of the link.
    pub(super) fn token(&self) -> &str {
        &self.token
    }

    /// The secret that the page sends with its requests. Only the answer to the link may have it.
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// Whether actions are refused.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Whether the token is that of the link, and whether the link was used before.
    pub(super) fn log_in(&self, token: &str) -> Login {
        match loopback::is_secret(token, &self.token) {
            false => Login::WrongToken,
            true if !self.was_opened.swap(true, Ordering::Relaxed) => Login::Opened,
            true => Login::UsedBefore { is_second: !self.has_warned.swap(true, Ordering::Relaxed) },
        }
    }

    /// The value of `Set-Cookie` for an opened session. Cookies are shared by all ports of a host,
    /// so the name has the port.
    pub(super) fn cookie(&self) -> String {
        let (name, session) = (self.cookie_name(), &self.session);
        format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict")
    }

    fn cookie_name(&self) -> String {
        format!("rgpu-dashboard-{}", self.address.port())
    }

    /// Checks where a request comes from.
    pub(super) fn check_origin(&self, uri: &Uri, headers: &HeaderMap) -> Result<()> {
        named_host(uri, headers).map_err(|refused| {
            Failure::new(Exit::Usage, refused.code(), "the request does not name one host")
                .cause(refused)
        })?;
        if loopback::is_own(headers, self.address) {
            Ok(())
        } else {
            Err(Failure::new(Exit::Usage, "foreign_request", "the request comes from another site")
                .cause("its Host or Origin header is not this server's")
                .hint("open the link that `rgpu dashboard` printed"))
        }
    }

    /// Checks the session of a request.
    pub(super) fn check_session(&self, headers: &HeaderMap) -> Result<()> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
        let name = self.cookie_name();
        let mut pairs = cookies.flat_map(|text| text.split(';'));
        let has_session = pairs.any(|pair| {
            pair.trim().split_once('=').is_some_and(|(key, value)| {
                key == name && loopback::is_secret(value, &self.session)
            })
        });
        if has_session {
            Ok(())
        } else {
            Err(Failure::new(Exit::Usage, "no_session", "this browser has no session")
                .hint("open the link that `rgpu dashboard` printed; it works once"))
        }
    }

    /// Checks that a request comes from the page: in a header, or in the address if it only reads.
    pub(super) fn check_key(&self, method: &Method, uri: &Uri, headers: &HeaderMap) -> Result<()> {
        let is_key = |given: &str| loopback::is_secret(given, &self.key);
        let header = headers.get(KEY_HEADER).and_then(|value| value.to_str().ok());
        let query = || Query::<KeyQuery>::try_from_uri(uri).is_ok_and(|query| is_key(&query.key));
        if header.is_some_and(is_key) || is_read(method) && query() {
            Ok(())
        } else {
            Err(not_the_page().hint("start `rgpu dashboard` again and open its link"))
        }
    }

    /// Checks that a request may start an action, if it is one.
    pub(super) fn check_may_act(&self, method: &Method, headers: &HeaderMap) -> Result<()> {
        match is_read(method) || headers.contains_key(header::ORIGIN) {
            _ if self.read_only && !is_read(method) => {
                Err(Failure::new(Exit::Usage, "read_only", "the dashboard is read-only")
                    .hint("`rgpu dashboard` without --read-only can also start commands"))
            }
            true => Ok(()),
            false => Err(not_the_page().hint("reload the page")),
        }
    }
}

fn is_read(method: &Method) -> bool {
    method == Method::GET || method == Method::HEAD
}

fn not_the_page() -> Failure {
    let what = "the request does not come from the dashboard's page";
    Failure::new(Exit::Usage, "foreign_request", what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_access(port: u16, read_only: bool) -> AccessControl {
        AccessControl::new(([127, 0, 0, 1], port).into(), read_only).unwrap()
    }

    #[test]
    fn a_link_works_once() {
        let access = new_access(8710, false);
        let token = access.token();
        assert_eq!(access.log_in("wrong"), Login::WrongToken);
        assert_eq!(access.log_in(token), Login::Opened);
        assert_eq!(access.log_in(""), Login::WrongToken);
        assert_eq!(access.log_in("wrong"), Login::WrongToken);
        assert_eq!(access.log_in(token), Login::UsedBefore { is_second: true });
        assert_eq!(access.log_in(token), Login::UsedBefore { is_second: false });
        let other = new_access(8711, false);
        assert_ne!(other.token(), token);
        let mut headers = HeaderMap::new();
        assert!(access.check_session(&headers).is_err());
        let pair = |access: &AccessControl| access.cookie().split(';').next().unwrap().to_owned();
        headers.insert(header::COOKIE, format!("a=b; {}", pair(&access)).parse().unwrap());
        assert!(access.check_session(&headers).is_ok());
        assert!(other.check_session(&headers).is_err());
    }

    #[test]
    fn the_key_is_needed_and_in_the_address_it_only_reads() {
        let access = new_access(8710, false);
        let plain: Uri = "/api/v1/live".parse().unwrap();
        let with = |key: &str| format!("/api/v1/live?last=1.2&key={key}").parse::<Uri>().unwrap();
        let mut headers = HeaderMap::new();
        for method in [Method::GET, Method::HEAD, Method::POST] {
            let is_read = method != Method::POST;
            assert!(access.check_key(&method, &plain, &headers).is_err());
            assert!(access.check_key(&method, &with(""), &headers).is_err());
            assert!(access.check_key(&method, &with(&access.session), &headers).is_err());
            assert_eq!(access.check_key(&method, &with(access.key()), &headers).is_ok(), is_read);
        }
        headers.insert(KEY_HEADER, "wrong".parse().unwrap());
        assert!(access.check_key(&Method::GET, &plain, &headers).is_err());
        headers.insert(KEY_HEADER, access.key().parse().unwrap());
        assert!(access.check_key(&Method::GET, &plain, &headers).is_ok());
        assert!(access.check_key(&Method::POST, &plain, &headers).is_ok());
    }

    #[test]
    fn changes_need_an_origin() {
        let access = new_access(8710, false);
        let mut headers = HeaderMap::new();
        assert!(access.check_may_act(&Method::GET, &headers).is_ok());
        assert!(access.check_may_act(&Method::POST, &headers).is_err());
        headers.insert(header::ORIGIN, "http://127.0.0.1:8710".parse().unwrap());
        assert!(access.check_may_act(&Method::POST, &headers).is_ok());
        let read_only = new_access(8710, true);
        let refused = read_only.check_may_act(&Method::POST, &headers).unwrap_err();
        assert_eq!(refused.code, "read_only");
    }
}
