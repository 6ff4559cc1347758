//! The cost of a run: the provider's bill, else the remote's price for the run's time.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// At most this many different bills are stored for one run.
const MAX_BILLS_PER_RUN: usize = 20;

/// The cost of a run, as in `run.json`.
#[serde_with::skip_serializing_none]
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Cost {
    /// The remote's price in US dollars per hour, from the user's settings.
    pub usd_per_hour: Option<f64>,
    /// The cost of the run in US dollars.
    pub cost_usd: Option<f64>,
    /// Where `cost_usd` comes from.
    pub cost_from: Option<CostSource>,
    /// The provider's bill for the run.
    pub billed: Option<BilledCost>,
}

/// Where a cost comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum CostSource {
    /// The provider billed it.
    Provider,
    /// The remote's price per hour, multiplied by the run's duration.
    Price,
}

impl CostSource {
    /// The name used in documents.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Provider => "provider",
            Self::Price => "price",
        }
    }
}

/// A provider's bill for a run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct BilledCost {
    /// US dollars that the provider billed, summed over its separate items. Absent if no amount can
    /// be distinguished from a balance or an hourly price.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usd: Option<f64>,
    /// Number of billed items.
    pub times: u32,
    /// The first different messages of the provider.
    pub words: Vec<String>,
}

impl Cost {
    /// The cost of a run on a remote with this price, before any time or bill.
    pub fn at(usd_per_hour: Option<f64>) -> Self {
        Self { usd_per_hour, ..Self::default() }
    }

    /// The name of the cost's source, as in documents.
    pub fn source(&self) -> Option<String> {
        self.cost_from.map(|from| from.as_str().to_owned())
    }

    /// Adds a bill of the provider.
    pub fn bill(&mut self, words: String, usd: Option<f64>) {
        let billed = self.billed.get_or_insert_default();
        billed.times = billed.times.saturating_add(1);
        billed.usd = [billed.usd, usd].into_iter().flatten().reduce(|a, b| a + b);
        if billed.words.len() < MAX_BILLS_PER_RUN && !billed.words.contains(&words) {
            billed.words.push(words);
        }
    }

    /// The total cost of several runs, with its source if all have the same one.
    pub fn total<'a>(of: impl Iterator<Item = &'a Self>) -> Self {
        let costs = of.filter_map(|cost| Some((cost.cost_usd?, cost.cost_from)));
        let sum = costs.reduce(|(a, x), (b, y)| (a + b, x.filter(|x| Some(*x) == y)));
        let (cost_usd, cost_from) = sum.map_or((None, None), |(usd, from)| (Some(usd), from));
        Self { cost_usd, cost_from, ..Self::default() }
    }

    /// Computes the cost of a run of this many seconds.
    pub(super) fn compute_cost(&mut self, seconds: f64) {
        let billed = self.billed.as_ref().and_then(|billed| billed.usd);
        let priced = self.usd_per_hour.map(|price| price / 3600.0 * seconds);
        (self.cost_usd, self.cost_from) = match (billed, priced) {
            (Some(usd), _) => (Some(usd), Some(CostSource::Provider)),
            (None, Some(usd)) => (Some(usd), Some(CostSource::Price)),
            (None, None) => (None, None),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_billed_goes_before_what_the_price_makes_of_the_time() {
        let mut cost = Cost::at(Some(3600.0));
        cost.compute_cost(2.0);
        assert_eq!((cost.cost_usd, cost.cost_from), (Some(2.0), Some(CostSource::Price)));
        cost.bill("it costs something".into(), None);
        cost.compute_cost(2.0);
        assert_eq!(cost.cost_from, Some(CostSource::Price), "no amount is not a cost");
        for _ in 0..2 {
            cost.bill("$0.25 used".into(), Some(0.25));
        }
        cost.compute_cost(2.0);
        assert_eq!((cost.cost_usd, cost.cost_from), (Some(0.5), Some(CostSource::Provider)));
        let billed = cost.billed.unwrap();
        assert_eq!((billed.times, billed.words.len()), (3, 2));
    }
}
