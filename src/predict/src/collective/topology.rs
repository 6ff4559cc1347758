//! The links between the GPUs of a collective.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::hw::Gpu;

/// The links that a collective uses. Rates are one way, of one GPU, in B/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Topology {
    /// Number of GPUs that NVLink or PCIe joins: those of a node, or of a rack.
    pub domain: f64,
    /// The rate between GPUs of one domain.
    pub inside: f64,
    /// Whether NVLink joins the GPUs of a domain.
    pub has_nvlink: bool,
    /// The rate between domains; 0 if there is no network.
    pub network: f64,
    /// The rate that all GPUs can send, over the rate of the switches between domains: at least 1.
    pub oversubscription: f64,
    /// GPUs of one NUMA node, and the rate between NUMA nodes for one GPU, where PCIe joins them.
    pub numa: Option<(f64, f64)>,
}

/// A topology file. An absent key has the value of the GPU's own file.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TopologyFile {
    /// Number of GPUs that NVLink or PCIe joins.
    #[serde(default)]
    pub domain_gpus: Option<u32>,
    /// NVLink of one GPU, one way, in GB/s. 0 if there is none.
    #[serde(default)]
    pub nvlink_gb_s: Option<f64>,
    /// PCIe of one GPU, one way, in GB/s. Used without NVLink.
    #[serde(default)]
    pub pcie_gb_s: Option<f64>,
    /// The network of one GPU, one way, in GB/s.
    #[serde(default)]
    pub network_gb_s: Option<f64>,
    /// The rate that all GPUs can send, over the rate of the switches between domains.
    #[serde(default)]
    pub oversubscription: Option<f64>,
    /// Number of GPUs per NUMA node.
    #[serde(default)]
    pub numa_gpus: Option<u32>,
    /// The rate between NUMA nodes for one GPU, one way, in GB/s.
    #[serde(default)]
    pub numa_gb_s: Option<f64>,
}

/// Why a topology cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TopologyError {
    /// The text is not TOML, or has unknown or missing keys.
    #[error("the topology cannot be read: {0}")]
    Toml(#[from] toml::de::Error),
    /// A number is out of its range.
    #[error("`{key}` of the topology is {value}; it must be {expected}")]
    Range {
        /// The key in the file.
        key: &'static str,
        /// The given value.
        value: f64,
        /// The allowed values, in words.
        expected: &'static str,
    },
    /// Neither the file nor the GPU has a link between GPUs.
    #[error("no link between GPUs is known; give `nvlink_gb_s` or `pcie_gb_s` in a topology file")]
    NoLink,
}

impl TopologyFile {
    /// Reads a topology file.
    ///
    /// # Errors
    /// The text is not of this form, or a number is out of range.
    pub fn parse(text: &str) -> Result<Self, TopologyError> {
        let file: Self = toml::from_str(text)?;
        let rates = [
            ("nvlink_gb_s", file.nvlink_gb_s, 0.0),
            ("pcie_gb_s", file.pcie_gb_s, f64::MIN_POSITIVE),
            ("network_gb_s", file.network_gb_s, 0.0),
            ("numa_gb_s", file.numa_gb_s, f64::MIN_POSITIVE),
            ("oversubscription", file.oversubscription, 1.0),
            ("domain_gpus", file.domain_gpus.map(f64::from), 1.0),
            ("numa_gpus", file.numa_gpus.map(f64::from), 1.0),
        ];
        for (key, value, least) in rates {
            if let Some(value) = value.filter(|v| !(v.is_finite() && *v >= least && *v <= 1e6)) {
                let expected = if least >= 1.0 { "1 to 1,000,000" } else { "0 to 1,000,000" };
                return Err(TopologyError::Range { key, value, expected });
            }
        }
        Ok(file)
    }
}

impl Topology {
    /// The links of a GPU's own file. `None` if it has none between GPUs.
    #[must_use]
    pub fn for_gpu(gpu: &Gpu) -> Option<Self> {
        let inside = gpu.nvlink.or(gpu.host)?;
        Some(Self {
            domain: gpu.domain.max(1.0),
            inside,
            has_nvlink: gpu.nvlink.is_some(),
            network: gpu.nic.unwrap_or(0.0),
            oversubscription: 1.0,
            numa: None,
        })
    }

    /// The links of a GPU's file, with those of `file` in their place.
    ///
    /// # Errors
    /// Neither has a link between GPUs.
    pub fn with(gpu: &Gpu, file: &TopologyFile) -> Result<Self, TopologyError> {
        let rate = |value: Option<f64>| value.map(|gigabytes| gigabytes * 1e9);
        let nvlink = rate(file.nvlink_gb_s).or(gpu.nvlink).filter(|rate| *rate > 0.0);
        let inside = nvlink.or(rate(file.pcie_gb_s)).or(gpu.host).ok_or(TopologyError::NoLink)?;
        Ok(Self {
            domain: file.domain_gpus.map_or(gpu.domain.max(1.0), f64::from),
            inside,
            has_nvlink: nvlink.is_some(),
            network: rate(file.network_gb_s).or(gpu.nic).unwrap_or(0.0),
            oversubscription: file.oversubscription.unwrap_or(1.0),
            numa: file.numa_gpus.map(f64::from).zip(rate(file.numa_gb_s)),
        })
    }

    /// Number of domains that `ranks` GPUs need.
    #[must_use]
    pub fn nodes(&self, ranks: f64) -> f64 {
        (ranks / self.domain).ceil().max(1.0)
    }

    /// The narrowest link of a collective of `ranks` GPUs, for one GPU and one way. Between
    /// domains every GPU of a domain sends over its own part of the network.
    #[must_use]
    pub fn link(&self, ranks: f64) -> f64 {
        let inside = match self.numa {
            Some((gpus, rate)) if !self.has_nvlink && ranks.min(self.domain) > gpus => {
                self.inside.min(rate)
            }
            _ => self.inside,
        };
        if self.nodes(ranks) <= 1.0 {
            return inside;
        }
        let local = ranks.min(self.domain);
        inside.min(self.network * local / self.oversubscription)
    }

    /// Whether links join `ranks` GPUs: a second domain needs a network.
    #[must_use]
    pub fn joins(&self, ranks: f64) -> bool {
        self.nodes(ranks) <= 1.0 || self.network > 0.0
    }

    /// Whether NCCL may use LL128, which needs writes of 128 bytes to stay whole.
    #[must_use]
    pub fn has_ll128(&self, nodes: f64) -> bool {
        self.has_nvlink && nodes <= 1.0
    }

    /// The same links, limited to one domain.
    #[must_use]
    pub fn node(&self) -> Self {
        Self { network: 0.0, ..*self }
    }

    /// One GPU of each domain, joined by the network.
    #[must_use]
    pub fn between_nodes(&self) -> Self {
        Self {
            domain: f64::INFINITY,
            inside: self.network / self.oversubscription,
            has_nvlink: false,
            network: 0.0,
            oversubscription: 1.0,
            numa: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hw::find;

    #[test]
    fn a_file_changes_what_it_names() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let file = TopologyFile::parse("domain_gpus = 4\noversubscription = 2.0").unwrap();
        let topology = Topology::with(&gpu, &file).unwrap();
        assert_eq!((topology.domain, topology.inside), (4.0, 450e9));
        assert_eq!(topology.link(8.0), 50e9 * 4.0 / 2.0);
        assert!(TopologyFile::parse("oversubscription = 0.5").is_err());
        assert!(TopologyFile::parse("nvlink = 900").is_err());
    }

    #[test]
    fn pcie_between_sockets_is_the_narrowest() {
        let gpu = find("h200").unwrap().gpu().unwrap();
        let text = "nvlink_gb_s = 0.0\npcie_gb_s = 64.0\nnuma_gpus = 4\nnuma_gb_s = 20.0";
        let topology = Topology::with(&gpu, &TopologyFile::parse(text).unwrap()).unwrap();
        assert_eq!(topology.link(4.0), 64e9);
        assert_eq!(topology.link(8.0), 20e9);
        assert!(!topology.has_ll128(1.0));
    }
}
