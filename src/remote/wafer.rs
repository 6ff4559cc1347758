//! A workspace at Wafer: a machine that its service makes, and runs commands in.
//!
//! Where a workspace has a way in over ssh it is a host like any other, and our own ssh reaches it.
//! Where it has none, or where a container is asked for that only the service can choose
//! (`routing`), the agent's frames travel in short commands: each is a request of its own, so a
//! stream that is cut, or that just stops, costs nothing but another one.
//!
//! | module | what for |
//! |---|---|
//! | `place`, `token`, `login` | where the service is and who asks, as its own program has it |
//! | `api`, `sse`, `refusal` | one request, one stream, one refusal |
//! | `workspace` | made, looked at, destroyed; what the account has left |
//! | `profiler` | the service's own ncu, where a workspace may not read counters |
//! | `exec`, `install`, `mailbox` | a command with a certain end; the agent sent and spoken to by them |
//!
//! None of it was run against the live service: the facts are those of its published clients
//! (`wafer-ai` 0.0.13 and 0.0.85), which the tests let talk to the same stand-in.

mod api;
mod error;
mod exec;
mod install;
mod login;
mod mailbox;
mod profiler;
mod refusal;
mod service;
mod sse;
mod token;
mod workspace;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::client::Streams;
use super::deploy::{self, AgentStart};
use super::stream::AgentStream;
use super::{
    Bill, Bills, ConnectOptions, ProviderJob, ProviderNcu, ProviderResult, Remote, RemoteError,
    RemoteKind, RemoteSpec, Rental, RentedRemote, Session, UserPrompt, ssh,
};
use api::Api;
use exec::WorkspaceShell;
use mailbox::MailboxClient;
use service::WaferService;
use workspace::{NewWorkspace, Workspace};

pub use error::WaferError;
pub use login::{LoggedIn, login};
pub use refusal::Refusal;

/// `wafer`.
pub const KIND: RemoteKind = RemoteKind { scheme: "wafer", form: "wafer://workspace", open };

/// The GPU that a new workspace is made with.
pub const GPU: &str = "gpu";

/// What a new workspace is: `modal` or `baremetal`.
pub const ENVIRONMENT: &str = "environment";

/// The container image of a new workspace.
pub const IMAGE: &str = "image";

/// Which container commands run in: `auto`, `gpu`, `cpu` or `baremetal`; the service chooses it, so
/// they go through the service.
pub const ROUTING: &str = "routing";

/// How the agent is reached: `ssh`, `exec`, or `auto`, the default.
pub const CARRIER: &str = "carrier";

/// Whose ncu may read the counters: `auto` (the workspace's, and where that may not the service's),
/// or `workspace` alone.
pub const NCU: &str = "ncu";

/// Settings, with what they may be; nothing: any word.
const SETTINGS: &[(&str, &[&str])] = &[
    (GPU, &[]),
    (ENVIRONMENT, &["modal", "baremetal"]),
    (IMAGE, &[]),
    (ROUTING, &["auto", "gpu", "cpu", "baremetal"]),
    (CARRIER, &["auto", "ssh", "exec"]),
    (NCU, &["auto", "workspace"]),
];

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    let known: Vec<&str> = SETTINGS.iter().map(|(name, _)| *name).collect();
    deploy::no_options(spec, &known)?;
    for (name, words) in SETTINGS {
        if let Some(value) = spec.options.get(*name)
            && !words.is_empty()
            && !words.contains(&value.as_str())
        {
            return Err(RemoteError::Setting {
                setting: (*name).to_owned(),
                why: format!("`{value}` is none of `{}`", words.join("`, `")),
            });
        }
    }
    let workspace = spec.url.strip_prefix("wafer://").unwrap_or_default().trim_end_matches('/');
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if workspace.is_empty() || workspace.len() > 100 || !workspace.bytes().all(plain) {
        return Err(RemoteError::Address {
            url: spec.url.clone(),
            why: "a workspace's name is of letters, digits and `._-`".to_owned(),
        });
    }
    let (workspace, bills) = (workspace.to_owned(), Bills::default());
    Ok(Box::new(Wafer { spec: spec.clone(), workspace, bills }))
}

/// A workspace.
struct Wafer {
    spec: RemoteSpec,
    workspace: String,
    bills: Bills,
}

impl Wafer {
    fn option(&self, name: &str) -> Option<&str> {
        self.spec.options.get(name).map(String::as_str)
    }

    async fn api(&self) -> Result<Api, WaferError> {
        let place = WaferService::find()?;
        let token = token::find(&place).await?;
        Api::new(&place.api, Some(&token))
    }

    /// The workspace, which commands can run in.
    async fn running(&self, api: &Api) -> Result<Workspace, WaferError> {
        let name = self.workspace.clone();
        match workspace::find(api, &name).await? {
            None => Err(WaferError::NotRunning { name, status: "absent".to_owned() }),
            // A version that tells no status lets the command find out.
            Some(found) if found.status == "running" || found.status.is_empty() => Ok(found),
            Some(Workspace { status, .. }) => Err(WaferError::NotRunning { name, status }),
        }
    }

    /// The way over ssh, where that is the one to take.
    fn ssh(&self, workspace: &Workspace) -> Result<Option<RemoteSpec>, RemoteError> {
        let carrier = self.option(CARRIER).unwrap_or("auto");
        if carrier == "exec" || (carrier == "auto" && self.option(ROUTING).is_some()) {
            return Ok(None);
        }
        match workspace.ssh_url() {
            Some(url) => {
                Ok(Some(RemoteSpec { url, options: Default::default(), ..self.spec.clone() }))
            }
            None if carrier == "ssh" => Err(RemoteError::Setting {
                setting: CARRIER.to_owned(),
                why: "the workspace has no way in over ssh".to_owned(),
            }),
            None => Ok(None),
        }
    }

    fn rental(&self, workspace: Workspace) -> Rental {
        let ssh = workspace.ssh_url();
        Rental { state: workspace.status, gpu: workspace.gpu_type, ssh, ..Rental::default() }
    }
}

#[async_trait::async_trait]
impl Remote for Wafer {
    fn name(&self) -> &str {
        &self.spec.name
    }

    fn transport(&self) -> &'static str {
        "wafer"
    }

    fn rented(&self) -> Option<&dyn RentedRemote> {
        Some(self)
    }

    fn served_ncu(&self) -> Option<&dyn ProviderNcu> {
        // Nobody asks a service that its user does not want asked.
        (self.option(NCU) != Some("workspace")).then_some(self as &dyn ProviderNcu)
    }

    fn take_bills(&self) -> Vec<Bill> {
        self.bills.take()
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let api = self.api().await?;
        let workspace = self.running(&api).await?;
        if let Some(spec) = self.ssh(&workspace)? {
            options.talk.verbose(&format!("the workspace is {}", spec.url));
            return (ssh::KIND.open)(&spec)?.connect(options).await;
        }
        let start = AgentStart::of(&self.spec, &options.agent)?;
        let routing = self.option(ROUTING).map(str::to_owned);
        let talk = options.talk.clone();
        let shell = WorkspaceShell::new(api, &workspace, routing, talk, self.bills.clone());
        let post = MailboxClient::new(shell, start, options.talk.clone());
        let wire = post.open().await?;
        Session::start(wire, Arc::new(MailboxStreams(post)), &self.spec).await
    }
}

#[async_trait::async_trait]
impl RentedRemote for Wafer {
    async fn up(&self, talk: &dyn UserPrompt) -> Result<Rental, RemoteError> {
        let or = |name, usual: &str| self.option(name).unwrap_or(usual).to_owned();
        let wanted = NewWorkspace {
            name: self.workspace.clone(),
            gpu_type: or(GPU, "B200"),
            environment_type: or(ENVIRONMENT, "baremetal"),
            image: self.option(IMAGE).map(str::to_owned),
        };
        let api = self.api().await?;
        Ok(self.rental(workspace::bring_up(&api, &wanted, talk).await?))
    }

    async fn state(&self) -> Result<Rental, RemoteError> {
        let api = self.api().await?;
        let found = workspace::find(&api, &self.workspace).await?;
        let mut rental = match found {
            Some(workspace) => self.rental(workspace),
            None => Rental { state: "absent".to_owned(), ..Rental::default() },
        };
        // A service that does not tell is no reason to say nothing.
        rental.credits = workspace::credits(&api).await.ok();
        Ok(rental)
    }

    async fn down(&self) -> Result<bool, RemoteError> {
        let api = self.api().await?;
        Ok(workspace::destroy(&api, &self.workspace).await?)
    }
}

#[async_trait::async_trait]
impl ProviderNcu for Wafer {
    fn called(&self) -> &'static str {
        "Wafer's own ncu"
    }

    async fn profile(
        &self,
        job: &ProviderJob,
        report: &Path,
        talk: &dyn UserPrompt,
    ) -> Result<ProviderResult, RemoteError> {
        profiler::profile(&self.api().await?, job, report, &self.bills, talk).await
    }
}

/// Further streams are further conversations.
struct MailboxStreams(MailboxClient);

#[async_trait::async_trait]
impl Streams for MailboxStreams {
    async fn open(&self) -> Result<AgentStream, RemoteError> {
        self.0.open().await
    }

    fn round_trip(&self) -> Duration {
        self.0.round_trip()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_and_names_that_cannot_be_are_refused_before_anything_is_asked() {
        let code = |spec: &RemoteSpec| spec.open().map(|_| ()).map_err(|e| e.code());
        let mut spec = RemoteSpec::new("w", "wafer://b200-dev");
        assert_eq!(code(&spec), Ok(()));
        spec.options.insert(ROUTING.into(), "gpu".into());
        assert_eq!(code(&spec), Ok(()));
        spec.options.insert(ROUTING.into(), "moon".into());
        assert_eq!(code(&spec), Err("bad_setting"));
        for bad in ["wafer://", "wafer://a/b", "wafer://a?b", "wafer://a b"] {
            assert_eq!(code(&RemoteSpec::new("w", bad)), Err("bad_address"), "{bad}");
        }
    }
}
