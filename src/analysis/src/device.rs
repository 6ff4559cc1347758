//! The device that a profile was measured on, as far as it is known.

use rgpu_model::{Launch, Profile};

/// A device by its name and compute capability.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Device {
    pub(super) name: Option<String>,
    pub(super) compute: Option<(u32, u32)>,
}

/// The device of a profile: the name from the reports, else the host's GPU that was used, else the
/// host's only GPU.
pub(super) fn find_device(profile: &Profile) -> Device {
    let gpus = profile.host.as_ref().map_or(&[][..], |host| &host.gpus);
    let used = match &profile.gpu {
        Some(uuid) => gpus.iter().find(|gpu| gpu.uuid == *uuid),
        None if gpus.len() == 1 => gpus.first(),
        None => None,
    };
    let of_launch = profile.launches.iter().find_map(compute);
    Device {
        name: profile.device.clone().or_else(|| used.map(|gpu| gpu.name.clone())),
        compute: of_launch.or_else(|| used.map(|gpu| (gpu.sm / 10, gpu.sm % 10))),
    }
}

/// The compute capability that a launch's own report states.
pub(super) fn compute(launch: &Launch) -> Option<(u32, u32)> {
    let number = |name| launch.number(name).filter(|x| (0.0..1000.0).contains(x));
    let major = number("device__attribute_compute_capability_major")?;
    let minor = number("device__attribute_compute_capability_minor")?;
    Some((major as u32, minor as u32))
}

/// The major part of [`compute`].
pub(super) fn major(launch: &Launch) -> Option<u32> {
    compute(launch).map(|(major, _)| major)
}
