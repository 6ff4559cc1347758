//! Which host a request names.

use hyper::Uri;
use hyper::header::{HOST, HeaderMap};
use thiserror::Error;

/// Why the target of a request is refused, whatever its secret.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
pub enum TargetRefusal {
    /// There is no `Host`, or it is not ASCII text.
    #[error("there is no `Host`: send the server's address as `Host`")]
    NoHost,
    /// There is more than one `Host`.
    #[error("there is more than one `Host`: send one")]
    SeveralHosts,
    /// The request line has a whole address or a host in place of a path.
    #[error("the request line names a host: send a path, such as `/`, and the host as `Host`")]
    NotAPath,
}

impl TargetRefusal {
    /// The code of the error for programs.
    #[must_use]
    pub fn code(self) -> &'static str {
        match self {
            TargetRefusal::NoHost => "no_host",
            TargetRefusal::SeveralHosts | TargetRefusal::NotAPath => "two_hosts",
        }
    }
}

/// Returns the host that a request names in its only `Host`. A proxy in front of the server may go
/// by the request line and the server by `Host`, so the request line may have no host.
pub fn named_host<'a>(uri: &Uri, headers: &'a HeaderMap) -> Result<&'a str, TargetRefusal> {
    if uri.scheme().is_some() || uri.authority().is_some() {
        return Err(TargetRefusal::NotAPath);
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().and_then(|host| host.to_str().ok());
    let host = host.ok_or(TargetRefusal::NoHost)?;
    if hosts.next().is_some() {
        return Err(TargetRefusal::SeveralHosts);
    }
    Ok(host)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "an unwrap tells a test failure well enough")]

    use super::*;

    #[test]
    fn a_request_names_one_host_and_only_in_its_header() {
        let named = |uri: &str, hosts: &[&str]| {
            let mut headers = HeaderMap::new();
            for host in hosts {
                headers.append(HOST, host.parse().unwrap());
            }
            named_host(&uri.parse().unwrap(), &headers).map(str::to_owned)
        };
        assert_eq!(named("/a?b", &["localhost:1"]).unwrap(), "localhost:1");
        assert_eq!(named("*", &["localhost:1"]).unwrap(), "localhost:1");
        assert_eq!(named("/", &[]), Err(TargetRefusal::NoHost));
        assert_eq!(named("/", &["a", "a"]), Err(TargetRefusal::SeveralHosts));
        for uri in ["http://localhost:1/", "ftp://localhost:1/", "localhost:1"] {
            assert_eq!(named(uri, &["localhost:1"]), Err(TargetRefusal::NotAPath), "{uri}");
        }
    }
}
