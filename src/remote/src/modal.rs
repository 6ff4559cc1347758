//! An agent on Modal, behind the web endpoint of an app that the user deployed
//! (`remote/modal_app.py`).
//!
//! The app serves the agent's HTTP interface, so the worker's code talks to it. Specific to Modal:
//! the proxy token; a request that takes over 150 s is answered with 303 and the address of its
//! result, which is then fetched by `GET` from the same origin only; plain-text bodies when an app
//! cannot answer; a container that may have to start first.

mod credentials;

use super::http::HttpError;
use super::worker::{Address, CA_FILE, HEADING, KEYCHAIN, ServerKind, Worker, no_ssh_settings};
use super::{AddressFlag, Remote, RemoteError, RemoteKind, RemoteSpec, Setting, SettingValue};

/// Remotes of kind `modal`: an app on Modal.
pub const KIND: RemoteKind = RemoteKind {
    scheme: "modal",
    form: "`modal` with `--url https://…` of your app",
    has_many_hosts: true,
    what: "an app on Modal",
    heading: HEADING,
    example: "modal --url URL",
    address: Some(AddressFlag {
        setting: Setting::new(
            "url",
            SettingValue::Url,
            "The address of your app, as `modal deploy` printed it",
        ),
        address,
    }),
    settings: &[
        credentials::KEY_ENV_SETTING,
        credentials::SECRET_ENV_SETTING,
        credentials::FILE_SETTING,
        KEYCHAIN,
        CA_FILE,
    ],
    open,
};

/// The kind `modal+http`: a test server on this machine or a tunnel to one. Help texts omit it.
pub const PLAIN: RemoteKind = RemoteKind { scheme: "modal+http", form: "", ..KIND };

/// The address that the settings store for an app at `url`.
fn address(url: &str) -> Result<String, RemoteError> {
    if let Some(rest) = url.strip_prefix("https://") {
        return Ok(format!("modal://{rest}"));
    }
    if let Some(rest) = url.strip_prefix("http://") {
        return Ok(format!("modal+http://{rest}"));
    }
    let why = "write the whole address that `modal deploy` printed: https://…modal.run".to_owned();
    Err(RemoteError::Address { url: url.to_owned(), why })
}

/// The URL for a stored address.
fn url(address: &str) -> String {
    match address.split_once("://") {
        Some(("modal+http", rest)) => format!("http://{rest}"),
        Some((_, rest)) => format!("https://{rest}"),
        None => address.to_owned(),
    }
}

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    no_ssh_settings(spec)?;
    let url_spec = RemoteSpec { url: url(&spec.url), ..spec.clone() };
    let address = Address::from_spec(&url_spec).map_err(|error| match error {
        RemoteError::Http(HttpError::PlainHttp { url }) => {
            RemoteError::Address { url, why: "an app on Modal is at https://…".to_owned() }
        }
        error => error,
    })?;
    Ok(Box::new(Worker::at(spec, address, ServerKind::Modal, credentials::find)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_app_is_known_by_the_address_that_its_deployment_printed() {
        let kept = address("https://me--rgpu.modal.run").unwrap();
        assert_eq!(
            (kept.as_str(), url(&kept).as_str()),
            ("modal://me--rgpu.modal.run", "https://me--rgpu.modal.run")
        );
        RemoteSpec::new("b200", kept).open().unwrap();
        assert_eq!(address("me--rgpu.modal.run").unwrap_err().code(), "bad_address");
    }

    #[test]
    fn a_token_goes_over_tls_or_to_this_machine_and_settings_of_other_kinds_are_refused() {
        let open = |url: &str| RemoteSpec::new("b200", address(url).unwrap()).open().map(drop);
        open("http://127.0.0.1:8000").unwrap();
        assert_eq!(open("http://example.com").unwrap_err().code(), "bad_address");
        let mut spec = RemoteSpec::new("b200", "modal://x.modal.run");
        spec.options.insert("token_env".into(), "T".into());
        assert_eq!(spec.open().map(drop).unwrap_err().code(), "bad_setting");
    }
}
