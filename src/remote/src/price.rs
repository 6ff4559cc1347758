//! The hourly price of a host, as the user configured it.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// US dollars an hour, exact to a millionth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, JsonSchema)]
#[schemars(with = "f64")]
pub struct Price {
    micro_usd: u64,
}

/// A higher price is treated as a typing error.
const MAX_USD_PER_HOUR: f64 = 1e6;

impl Price {
    /// A price of `usd` US dollars per hour; `None`: negative, too high or not a number.
    pub fn per_hour(usd: f64) -> Option<Self> {
        let in_range = (0.0..=MAX_USD_PER_HOUR).contains(&usd);
        in_range.then(|| Self { micro_usd: (usd * 1e6).round() as u64 })
    }

    /// The price in US dollars per hour.
    pub fn usd_per_hour(self) -> f64 {
        self.micro_usd as f64 / 1e6
    }
}

impl std::str::FromStr for Price {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let usd = text.trim_start_matches('$').parse().ok();
        usd.and_then(Self::per_hour)
            .ok_or_else(|| format!("`{text}` is not a price in US dollars an hour, like 6.25"))
    }
}

impl fmt::Display for Price {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "${} an hour", self.usd_per_hour())
    }
}

impl Serialize for Price {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_f64(self.usd_per_hour())
    }
}

impl<'de> Deserialize<'de> for Price {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let usd = f64::deserialize(deserializer)?;
        Self::per_hour(usd).ok_or_else(|| {
            serde::de::Error::custom(format!("{usd} is not a price in US dollars an hour"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prices_are_read_and_written_as_dollars_an_hour() {
        for text in ["6.25", "$6.25"] {
            assert_eq!(text.parse::<Price>().unwrap().usd_per_hour(), 6.25);
        }
        for bad in ["", "free", "-1", "nan", "inf", "1e9"] {
            assert!(bad.parse::<Price>().is_err(), "{bad}");
        }
        assert_eq!(serde_json::to_string(&Price::per_hour(3.95)).unwrap(), "3.95");
        // TOML writes a whole number without a decimal point.
        assert_eq!(serde_json::from_str::<Price>("4").unwrap().to_string(), "$4 an hour");
    }
}
