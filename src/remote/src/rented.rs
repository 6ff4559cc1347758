//! Rented remotes: created on demand, paid for while they exist, then deleted.

use schemars::JsonSchema;
use serde::Serialize;

use super::{ConnectOptions, RemoteError};

/// The state of a rented remote.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Rental {
    /// The state as the platform reports it: `running`, `creating`, `absent` …
    pub state: String,
    /// The kind of its GPU.
    pub gpu: Option<String>,
    /// The rgpu version of the deployed app, if there is one.
    pub version: Option<String>,
    /// The ssh address, if it has one.
    pub ssh: Option<String>,
    /// The account's credits. Absent if the platform does not report them.
    pub credits: Option<Credits>,
}

/// The credits of an account, in US dollars.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Credits {
    /// The name of the account's plan.
    pub tier: String,
    /// The account's status, such as `active`.
    pub status: String,
    /// Credits used in this period.
    pub used_usd: f64,
    /// Credits left in this period. Absent if there is no limit.
    pub left_usd: Option<f64>,
    /// Credits that were bought in addition.
    pub topped_up_usd: f64,
    /// Whether the account may read hardware counters. Absent if the platform does not report it.
    pub hardware_counters: Option<bool>,
}

/// Operations on a rented remote besides connecting to it.
#[async_trait::async_trait]
pub trait RentedRemote: Send + Sync {
    /// Creates the machine if it does not exist, and waits until it runs.
    async fn up(&self, options: &ConnectOptions) -> Result<Rental, RemoteError>;

    /// The machine's current state.
    async fn state(&self, options: &ConnectOptions) -> Result<Rental, RemoteError>;

    /// Deletes the machine and all data on it; returns whether it existed.
    async fn down(&self, options: &ConnectOptions) -> Result<bool, RemoteError>;
}
