//! Who gets in: a link with a token that works once, then a cookie; actions need a second secret,
//! which only the page itself knows.
//!
//! A foreign page cannot read an answer, send the cookie (`SameSite=Strict`), or know the second
//! secret. A name that resolves to this machine is refused by its `Host`.

use std::sync::Mutex;
use std::sync::PoisonError;

use axum::http::{HeaderMap, Method, header};

use crate::error::{Exit, Failure, Result};
use crate::loopback;
use crate::store::state::random_id;

/// The header with the second secret.
pub(super) const CSRF_HEADER: &str = "x-rgpu-csrf";

/// Checks requests.
pub(super) struct Wall {
    port: u16,
    /// `None` once it was used.
    token: Mutex<Option<String>>,
    session: String,
    csrf: String,
    read_only: bool,
}

/// What became of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Login {
    /// It opens a session.
    Opened,
    /// It was used before.
    UsedBefore,
    /// Its token is another one.
    Wrong,
}

impl Wall {
    /// A wall with new secrets for the server at this port.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub(super) fn new(port: u16, read_only: bool) -> Result<Self> {
        Ok(Self {
            port,
            token: Mutex::new(Some(random_id()?)),
            session: random_id()?,
            csrf: random_id()?,
            read_only,
        })
    }

    /// The token of the link; empty once it was used.
    pub(super) fn token(&self) -> String {
        self.token.lock().unwrap_or_else(PoisonError::into_inner).clone().unwrap_or_default()
    }

    /// The secret that the page sends with its actions.
    pub(super) fn csrf(&self) -> &str {
        &self.csrf
    }

    /// Whether actions are refused.
    pub(super) fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// Uses the link.
    pub(super) fn log_in(&self, token: &str) -> Login {
        let mut own = self.token.lock().unwrap_or_else(PoisonError::into_inner);
        match own.as_deref() {
            None => Login::UsedBefore,
            Some(right) if loopback::is_secret(token, right) => {
                *own = None;
                Login::Opened
            }
            Some(_) => Login::Wrong,
        }
    }

    /// The value of `Set-Cookie` for an opened session. Cookies are shared by all ports of a host, so
    /// the name has the port.
    pub(super) fn cookie(&self) -> String {
        let (name, session) = (self.cookie_name(), &self.session);
        format!("{name}={session}; Path=/; HttpOnly; SameSite=Strict")
    }

    fn cookie_name(&self) -> String {
        format!("rgpu-dashboard-{}", self.port)
    }

    /// Checks where a request comes from.
    ///
    /// # Errors
    /// It names another host, or comes from a page of another origin.
    pub(super) fn check_origin(&self, headers: &HeaderMap) -> Result<()> {
        match loopback::is_own(headers, self.port) {
            true => Ok(()),
            false => Err(Failure::new(Exit::Usage, "foreign_request", "the request is foreign")
                .cause("its Host or Origin is another one than this server")),
        }
    }

    /// Checks the session of a request.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn check_session(&self, headers: &HeaderMap) -> Result<()> {
        let cookies = headers.get_all(header::COOKIE).iter().filter_map(|v| v.to_str().ok());
        let name = self.cookie_name();
        let mut pairs = cookies.flat_map(|text| text.split(';'));
        let has_session = pairs.any(|pair| {
            pair.trim().split_once('=').is_some_and(|(key, value)| {
                key == name && loopback::is_secret(value, &self.session)
            })
        });
        match has_session {
            true => Ok(()),
            false => Err(Failure::new(Exit::Usage, "no_session", "this browser has no session")
                .hint("open the link that `rgpu dashboard` printed; it works once")),
        }
    }

    /// Checks that a request may change something.
    ///
    /// # Errors
    /// The server is read-only, or the request does not come from its page.
    pub(super) fn check_change(&self, method: &Method, headers: &HeaderMap) -> Result<()> {
        if method == Method::GET || method == Method::HEAD {
            return Ok(());
        }
        let csrf = headers.get(CSRF_HEADER).and_then(|value| value.to_str().ok());
        let is_own = csrf.is_some_and(|given| loopback::is_secret(given, &self.csrf));
        match is_own && headers.contains_key(header::ORIGIN) {
            _ if self.read_only => {
                Err(Failure::new(Exit::Usage, "read_only", "this dashboard only shows")
                    .hint("`rgpu dashboard` without --read-only can also start commands"))
            }
            true => Ok(()),
            false => {
                let what = "the request does not come from the dashboard's page";
                Err(Failure::new(Exit::Usage, "foreign_request", what).hint("reload the page"))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_works_once() {
        let wall = Wall::new(80, false).unwrap();
        let token = wall.token();
        assert_eq!(wall.log_in("wrong"), Login::Wrong);
        assert_eq!(wall.log_in(&token), Login::Opened);
        assert_eq!(wall.log_in(&token), Login::UsedBefore);
        assert_eq!(wall.log_in(""), Login::UsedBefore);
        let other = Wall::new(81, false).unwrap();
        assert_ne!(other.token(), token);
        let mut headers = HeaderMap::new();
        assert!(wall.check_session(&headers).is_err());
        let pair = |wall: &Wall| wall.cookie().split(';').next().unwrap().to_owned();
        headers.insert(header::COOKIE, format!("a=b; {}", pair(&wall)).parse().unwrap());
        assert!(wall.check_session(&headers).is_ok());
        assert!(other.check_session(&headers).is_err());
    }

    #[test]
    fn changes_need_the_second_secret_and_an_origin() {
        let wall = Wall::new(80, false).unwrap();
        let mut headers = HeaderMap::new();
        assert!(wall.check_change(&Method::GET, &headers).is_ok());
        assert!(wall.check_change(&Method::POST, &headers).is_err());
        headers.insert(CSRF_HEADER, wall.csrf().parse().unwrap());
        assert!(wall.check_change(&Method::POST, &headers).is_err());
        headers.insert(header::ORIGIN, "http://127.0.0.1:80".parse().unwrap());
        assert!(wall.check_change(&Method::POST, &headers).is_ok());
        let read_only = Wall::new(80, true).unwrap();
        headers.insert(CSRF_HEADER, read_only.csrf().parse().unwrap());
        let refused = read_only.check_change(&Method::POST, &headers).unwrap_err();
        assert_eq!(refused.code, "read_only");
    }
}
