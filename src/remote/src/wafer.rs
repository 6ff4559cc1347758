//! A workspace at Wafer: a machine that its service creates and runs commands in.
//!
//! A workspace with ssh access is a host like any other, and our own ssh reaches it. Without ssh
//! access, or if the user asks for a container that only the service can choose (`routing`), the
//! agent's frames travel in short commands. Each command is a request of its own, so a stream that
//! is cut or just stops only costs another request.
//!
//! | module | contents |
//! |---|---|
//! | `service`, `token`, `login` | the service's address and the user's login, as in its own program |
//! | `api`, `sse`, `refusal` | one request, one stream, one refusal |
//! | `workspace` | creates, queries and destroys a workspace; the account's credits |
//! | `profiler` | the service's own ncu, for workspaces that may not read counters |
//! | `exec`, `install`, `mailbox` | a command whose end is certain; the agent's upload and frames |
//!
//! Not tested against the live service: the facts come from its published clients (`wafer-ai`
//! 0.0.13 and 0.0.85), which the tests run against the same fake server.

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

use super::client::StreamOpener;
use super::deploy::AgentStart;
use super::stream::AgentStream;
use super::{
    AddressFlag, Bill, ConnectOptions, PendingBills, ProviderJob, ProviderNcu, ProviderResult,
    Remote, RemoteError, RemoteKind, RemoteSpec, Rental, RentedRemote, Session, Setting,
    SettingValue, UserPrompt, ssh,
};
use api::Api;
use exec::WorkspaceShell;
use mailbox::MailboxClient;
use service::WaferService;
use workspace::{NewWorkspace, Workspace};

pub use error::WaferError;
pub use login::{LoggedIn, login};

/// Remotes of kind `wafer`: a workspace at Wafer.
pub const KIND: RemoteKind = RemoteKind {
    scheme: "wafer",
    form: "wafer://workspace",
    has_many_hosts: false,
    what: "a workspace at Wafer",
    heading: "A Wafer workspace",
    example: "wafer --workspace WORKSPACE",
    address: Some(AddressFlag {
        setting: Setting::new(
            "workspace",
            SettingValue::Text("NAME"),
            "The workspace at Wafer; `remote up` creates it if it does not exist",
        ),
        address: |workspace| Ok(format!("wafer://{workspace}")),
    }),
    settings: SETTINGS,
    open,
};

const GPU: &str = "gpu";
const ENVIRONMENT: &str = "environment";
const IMAGE: &str = "image";
/// The service chooses the container, so the commands go through the service.
const ROUTING: &str = "routing";
const CARRIER: &str = "carrier";
const NCU: &str = "ncu";

const SETTINGS: &[Setting] = &[
    Setting::new(GPU, SettingValue::Text("GPU"), "The GPU of a new workspace [default: B200]"),
    Setting::new(
        ENVIRONMENT,
        SettingValue::OneOf("KIND", &["modal", "baremetal"]),
        "The kind of a new workspace: baremetal (the default) or modal",
    ),
    Setting::new(IMAGE, SettingValue::Text("IMAGE"), "The container image of a workspace"),
    Setting::new(
        ROUTING,
        SettingValue::OneOf("KIND", &["auto", "gpu", "cpu", "baremetal"]),
        "The container that commands run in: auto, gpu, cpu or baremetal",
    ),
    Setting::new(
        CARRIER,
        SettingValue::OneOf("WAY", &["auto", "ssh", "exec"]),
        "How a workspace is reached: auto, ssh, or exec (its service's own commands)",
    ),
    Setting::new(
        NCU,
        SettingValue::OneOf("WHOSE", &["auto", "workspace"]),
        "The ncu that reads counters: `auto` (the workspace's, else the service's) or `workspace`",
    ),
];

fn open(spec: &RemoteSpec) -> Result<Box<dyn Remote>, RemoteError> {
    let workspace = spec.url.strip_prefix("wafer://").unwrap_or_default().trim_end_matches('/');
    let is_allowed = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    if workspace.is_empty() || workspace.len() > 100 || !workspace.bytes().all(is_allowed) {
        return Err(RemoteError::Address {
            url: spec.url.clone(),
            why: "a workspace's name is of letters, digits and `._-`".to_owned(),
        });
    }
    let (workspace, bills) = (workspace.to_owned(), PendingBills::default());
    Ok(Box::new(Wafer { spec: spec.clone(), workspace, bills }))
}

/// The remote for one workspace.
struct Wafer {
    spec: RemoteSpec,
    workspace: String,
    bills: PendingBills,
}

impl Wafer {
    fn option(&self, name: &str) -> Option<&str> {
        self.spec.options.get(name).map(String::as_str)
    }

    async fn api(&self) -> Result<Api, WaferError> {
        let service = WaferService::find()?;
        let token = token::find(&service).await?;
        Api::new(&service.api, Some(&token))
    }

    /// The workspace, which must be running.
    async fn running(&self, api: &Api) -> Result<Workspace, WaferError> {
        let name = self.workspace.clone();
        match workspace::find(api, &name).await? {
            None => Err(WaferError::NotRunning { name, status: "absent".to_owned() }),
            // If a version reports no status, the command itself shows whether the workspace runs.
            Some(found) if found.status == "running" || found.status.is_empty() => Ok(found),
            Some(Workspace { status, .. }) => Err(WaferError::NotRunning { name, status }),
        }
    }

    /// The remote over ssh, if ssh is to be used.
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

    fn provider_ncu(&self) -> Option<&dyn ProviderNcu> {
        // With `workspace`, the service's ncu must not be used.
        (self.option(NCU) != Some("workspace")).then_some(self as &dyn ProviderNcu)
    }

    fn take_bills(&self) -> Vec<Bill> {
        self.bills.take()
    }

    async fn connect(&self, options: &ConnectOptions) -> Result<Session, RemoteError> {
        let api = self.api().await?;
        let workspace = self.running(&api).await?;
        if let Some(spec) = self.ssh(&workspace)? {
            options.user_prompt.verbose(&format!("the workspace is {}", spec.url));
            return (ssh::KIND.open)(&spec)?.connect(options).await;
        }
        let start = AgentStart::new(&self.spec, &options.agent)?;
        let routing = self.option(ROUTING).map(str::to_owned);
        let user_prompt = options.user_prompt.clone();
        let shell = WorkspaceShell::new(api, &workspace, routing, user_prompt, self.bills.clone());
        let mailbox_client = MailboxClient::new(shell, start, options.user_prompt.clone());
        let wire = mailbox_client.open().await?;
        Session::start(wire, Arc::new(MailboxStreams(mailbox_client)), &self.spec).await
    }
}

#[async_trait::async_trait]
impl RentedRemote for Wafer {
    async fn up(&self, options: &ConnectOptions) -> Result<Rental, RemoteError> {
        let option_or = |name, default: &str| self.option(name).unwrap_or(default).to_owned();
        let new_workspace = NewWorkspace {
            name: self.workspace.clone(),
            gpu_type: option_or(GPU, "B200"),
            environment_type: option_or(ENVIRONMENT, "baremetal"),
            image: self.option(IMAGE).map(str::to_owned),
        };
        let api = self.api().await?;
        Ok(self.rental(workspace::bring_up(&api, &new_workspace, &*options.user_prompt).await?))
    }

    async fn state(&self, _: &ConnectOptions) -> Result<Rental, RemoteError> {
        let api = self.api().await?;
        let found = workspace::find(&api, &self.workspace).await?;
        let mut rental = match found {
            Some(workspace) => self.rental(workspace),
            None => Rental { state: "absent".to_owned(), ..Rental::default() },
        };
        // Missing credits are no reason to fail.
        rental.credits = workspace::credits(&api).await.ok();
        Ok(rental)
    }

    async fn down(&self, _: &ConnectOptions) -> Result<bool, RemoteError> {
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
        user_prompt: &dyn UserPrompt,
    ) -> Result<ProviderResult, RemoteError> {
        profiler::profile(&self.api().await?, job, report, &self.bills, user_prompt).await
    }
}

/// Opens further streams to the agent, through mailboxes.
struct MailboxStreams(MailboxClient);

#[async_trait::async_trait]
impl StreamOpener for MailboxStreams {
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
