//! Rented remotes: created on demand, paid for while they exist, then deleted.

use schemars::JsonSchema;
use serde::Serialize;

use super::{RemoteError, UserPrompt};

/// How a rented remote stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Rental {
    /// `running`, `creating`, `absent` …, as its platform says.
    pub state: String,
    /// The kind of GPU it was made with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub gpu: Option<String>,
    /// The version of rgpu that the deployed app is of, where one is.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The way in over ssh, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ssh: Option<String>,
    /// What the account has left; absent where the platform does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credits: Option<Credits>,
}

/// What an account has used and has left, in US dollars.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Credits {
    /// The name of the account's plan.
    pub tier: String,
    /// The account's status, such as `active`.
    pub status: String,
    /// Used in this period.
    pub used_usd: f64,
    /// Left in it; absent: there is no limit.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub left_usd: Option<f64>,
    /// Paid in beyond it.
    pub topped_up_usd: f64,
    /// Whether the account may read hardware counters; absent: the platform does not tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hardware_counters: Option<bool>,
}

/// Operations on a rented remote besides connecting to it.
#[async_trait::async_trait]
pub trait RentedRemote: Send + Sync {
    /// Creates the machine if it does not exist, and waits until it runs.
    ///
    /// # Errors
    /// [`RemoteError`] says which side failed.
    async fn up(&self, talk: &dyn UserPrompt) -> Result<Rental, RemoteError>;

    /// The machine's current state.
    ///
    /// # Errors
    /// As for [`Self::up`].
    async fn state(&self) -> Result<Rental, RemoteError>;

    /// Deletes the machine and all data on it; returns whether it existed.
    ///
    /// # Errors
    /// As for [`Self::up`].
    async fn down(&self) -> Result<bool, RemoteError>;
}
