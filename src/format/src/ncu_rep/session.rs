//! The session of a report: device, versions, command line and settings.
//!
//! Every block may contain a `SessionDetails`. They are merged; a later block only adds to it.

use super::notes::Notes;
use super::value::MetricValue;
use super::wire::Message;

/// Maximum number of devices, attributes or versions kept: far beyond any report, a limit for
/// damaged ones.
const MAX_ENTRIES: usize = 4096;

fn keep<T>(list: &mut Vec<T>, item: T) {
    if list.len() < MAX_ENTRIES {
        list.push(item);
    }
}

/// `ProcessInfo`: 1 pid, 2 host name, 3 process name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Process {
    /// The process id on the host.
    pub id: u64,
    /// The host's name. Private: it travels with the report.
    pub host: String,
    /// The name of the executable, as ncu stored it.
    pub name: String,
}

impl Process {
    pub(super) fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut process = Process::default();
        notes.walk(message, "process", |_, field| match field.number {
            1 => field.varint().map(|id| process.id = id),
            2 => field.text().map(|host| process.host = host.into_owned()),
            3 => field.text().map(|name| process.name = name.into_owned()),
            _ => None,
        });
        process
    }
}

/// `SystemInfo`: 1 operating system, 2 build, 3 processor, 4 architecture, 5 computer name,
/// 6 platform. The other fields hold addresses and are not read.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct System {
    /// Name of the operating system.
    pub os: String,
    /// The operating system's build, as ncu stored it.
    pub build: String,
    /// The name of the processor, as ncu stored it.
    pub processor: String,
    /// The architecture of the processor, as ncu stored it.
    pub architecture: String,
    /// The computer's name. Private: it travels with the report.
    pub computer: String,
}

impl System {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut system = System::default();
        notes.walk(message, "system", |_, field| {
            let text = match field.number {
                1 => &mut system.os,
                2 => &mut system.build,
                3 => &mut system.processor,
                4 => &mut system.architecture,
                5 => &mut system.computer,
                6..=12 => return Some(()),
                _ => return None,
            };
            *text = field.text()?.into_owned();
            Some(())
        });
        system
    }
}

/// One GPU and its attributes, as the driver names them.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Device {
    /// The device's number in the session.
    pub id: u64,
    /// The GPU's name, as the driver gives it.
    pub name: String,
    /// Attribute names and values, in the file's order.
    pub attributes: Vec<(String, MetricValue<'static>)>,
}

impl Device {
    /// The first attribute of this name.
    pub fn attribute(&self, name: &str) -> Option<&MetricValue<'static>> {
        self.attributes.iter().find(|(key, _)| key == name).map(|(_, value)| value)
    }

    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut device = Device::default();
        notes.walk(message, "device attributes", |notes, field| match field.number {
            1 => field.varint().map(|id| device.id = id),
            2 => field.text().map(|name| device.name = name.into_owned()),
            3 => field.message().map(|message| {
                let (mut name, mut value) = (String::new(), MetricValue::Missing);
                notes.walk(message, "device attribute", |notes, field| match field.number {
                    1 => field.text().map(|text| name = text.into_owned()),
                    2 => field.message().map(|m| value = MetricValue::read(m, notes).into_owned()),
                    _ => None,
                });
                keep(&mut device.attributes, (name, value));
            }),
            _ => None,
        });
        device
    }
}

/// `ExecutableSettings`: 1 path, 2 work directory, 3 arguments, 4 environment.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Executable {
    /// Path of the profiled program on the host.
    pub path: String,
    /// The working directory of the program.
    pub directory: String,
    /// The program's arguments, as one text. Private.
    pub arguments: String,
    /// Its environment; empty in every report seen. Private.
    pub environment: String,
}

/// `ProfilerSettings`: 1 NVTX, 2 and 3 start and stop, 4 activity, 5 filters, 6 others, 7 sections,
/// 8 clock control, 9 warp sampling, 10 and up not identified.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionSettings {
    /// Whether NVTX was enabled.
    pub nvtx: Option<bool>,
    /// The activity, by ncu's name.
    pub activity: String,
    /// The enabled sections, as ncu writes them.
    pub sections: String,
    /// The clock control mode, by ncu's name.
    pub clock_control: String,
    /// Text of unidentified fields, by field number; among them is the replay mode.
    pub other: Vec<(u32, String)>,
}

impl SessionSettings {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut settings = SessionSettings::default();
        notes.walk(message, "profiler settings", |_, field| match field.number {
            1 => field.varint().map(|on| settings.nvtx = Some(on != 0)),
            4 => field.text().map(|text| settings.activity = text.into_owned()),
            7 => field.text().map(|text| settings.sections = text.into_owned()),
            8 => field.text().map(|text| settings.clock_control = text.into_owned()),
            2 | 3 | 5 | 6 | 9 => Some(()),
            10..=40 => {
                // Nested options contain control characters, labels do not.
                if let Some(text) = field.text().filter(|text| !text.chars().any(char::is_control))
                {
                    keep(&mut settings.other, (field.number, text.into_owned()));
                }
                Some(())
            }
            _ => None,
        });
        settings
    }
}

/// The session, merged over all blocks.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Session {
    /// The profiler's process id.
    pub process_id: u64,
    /// Start of the session, as stored in the file.
    pub creation_time: u64,
    /// The machine that ncu ran on.
    pub host: System,
    /// The machine that the program ran on.
    pub target: System,
    /// The GPUs with their attributes.
    pub devices: Vec<Device>,
    /// The user's comments on the report.
    pub comments: String,
    /// Component and version, such as `Nsight Compute Target` and `2025.3.1.0 (build 36398880)`.
    pub versions: Vec<(String, String)>,
    /// The program that was profiled, with its arguments.
    pub executable: Executable,
    /// The options that ncu ran with.
    pub settings: SessionSettings,
    /// The full command line of the tool. Private.
    pub command_line: String,
}

impl Session {
    /// The version of the first component whose name contains `provider`.
    pub fn version(&self, provider: &str) -> Option<&str> {
        let found = self.versions.iter().find(|(name, _)| name.contains(provider));
        found.map(|(_, version)| version.as_str())
    }

    pub(super) fn merge(&mut self, message: Message<'_>, notes: &mut Notes) {
        notes.walk(message, "session details", |notes, field| match field.number {
            1 => field.varint().map(|id| self.process_id = id),
            2 => field.varint().map(|time| self.creation_time = time),
            3 => field.message().map(|system| self.host = System::read(system, notes)),
            4 => field.message().map(|system| self.target = System::read(system, notes)),
            5 => field.message().map(|_| ()),
            6 => field.message().map(|device| keep(&mut self.devices, Device::read(device, notes))),
            7 => field.text().map(|text| self.comments = text.into_owned()),
            8 => field.message().map(|message| {
                let (mut provider, mut version) = (String::new(), String::new());
                notes.walk(message, "version", |_, field| match field.number {
                    1 => field.text().map(|text| provider = text.into_owned()),
                    2 => field.text().map(|text| version = text.into_owned()),
                    _ => None,
                });
                keep(&mut self.versions, (provider, version));
            }),
            9 => field.message().map(|message| self.executable = executable(message, notes)),
            10 => {
                field.message().map(|message| self.settings = SessionSettings::read(message, notes))
            }
            11 => field.text().map(|text| self.command_line = text.into_owned()),
            _ => None,
        });
    }
}

fn executable(message: Message<'_>, notes: &mut Notes) -> Executable {
    let mut executable = Executable::default();
    notes.walk(message, "executable settings", |_, field| {
        let text = match field.number {
            1 => &mut executable.path,
            2 => &mut executable.directory,
            3 => &mut executable.arguments,
            4 => &mut executable.environment,
            _ => return None,
        };
        *text = field.text()?.into_owned();
        Some(())
    });
    executable
}
