//! The NVTX ranges that were open when a result was measured.

use super::notes::Notes;
use super::wire::Message;

/// Maximum number of domains, and of strings per domain: far beyond any real report. It limits the
/// time for a damaged one, since they are searched linearly by number.
const MAX_ENTRIES: usize = 4096;

/// `NvtxState`: 1 domains, 2 threads with their push/pop stacks, 3 start/end ranges.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvtxState {
    /// The domains; an unnamed one is the default domain.
    pub domains: Vec<NvtxDomain>,
    /// One stack for each thread and domain that has open push/pop ranges.
    pub stacks: Vec<NvtxStack>,
    /// Open start/end ranges of all threads.
    pub ranges: Vec<NvtxStartEnd>,
}

/// `NvtxDomainInfo`: 1 id, 2 name, 3 registered strings, 4 name tables.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvtxDomain {
    /// Number of the domain in its process.
    pub id: u64,
    /// Its name; empty or `<default domain>` for the default one.
    pub name: String,
    strings: Vec<(u64, String)>,
}

/// The nested ranges of one thread in one domain, outermost first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvtxStack {
    /// Id of the host thread.
    pub thread: u64,
    /// Number of the domain in its process.
    pub domain: u64,
    /// The ranges' names, outermost first.
    pub path: Vec<String>,
}

/// An open start/end range.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NvtxStartEnd {
    /// Number of the domain in its process.
    pub domain: u64,
    /// The range's own number.
    pub id: u64,
    /// The range's text; empty if it is not in the file.
    pub name: String,
    /// The thread that started it.
    pub thread: u64,
}

impl NvtxState {
    /// The name of a domain; `None` for the default domain and for one that is not listed.
    pub fn domain_name(&self, id: u64) -> Option<&str> {
        let domain = self.domains.iter().find(|domain| domain.id == id)?;
        Some(domain.name.as_str()).filter(|name| !name.is_empty() && *name != "<default domain>")
    }

    pub(super) fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut state = NvtxState::default();
        // Domains come first, whatever their position: they hold the registered names of the
        // ranges.
        for field in message.fields().flatten().filter(|field| field.number == 1) {
            if let Some(domain) = field.message().filter(|_| state.domains.len() < MAX_ENTRIES) {
                state.domains.push(NvtxDomain::read(domain, notes));
            }
        }
        notes.walk(message, "NVTX state", |notes, field| match field.number {
            1 => field.message().map(|_| ()),
            2 => field.message().map(|thread| state.add_thread(thread, notes)),
            3 => field.message().map(|domain| state.add_start_end(domain, notes)),
            4 | 5 => Some(()),
            _ => None,
        });
        state
    }

    fn add_thread(&mut self, message: Message<'_>, notes: &mut Notes) {
        let thread = first_varint(message, 1);
        notes.walk(message, "NVTX thread", |notes, field| match field.number {
            1 => field.varint().map(|_| ()),
            2 => field.message().map(|message| {
                let domain = first_varint(message, 1);
                let mut path = Vec::new();
                notes.walk(message, "NVTX push/pop domain", |notes, field| match field.number {
                    1 => field.varint().map(|_| ()),
                    3 => field.message().map(|range| {
                        path.push(self.range(range, domain, notes, PUSH_POP).name);
                    }),
                    _ => None,
                });
                if !path.is_empty() {
                    self.stacks.push(NvtxStack { thread, domain, path });
                }
            }),
            _ => None,
        });
    }

    fn add_start_end(&mut self, message: Message<'_>, notes: &mut Notes) {
        let domain = first_varint(message, 1);
        notes.walk(message, "NVTX start/end domain", |notes, field| match field.number {
            1 => field.varint().map(|_| ()),
            3 => field.message().map(|message| {
                let range = self.range(message, domain, notes, START_END);
                self.ranges.push(range);
            }),
            _ => None,
        });
    }

    fn range(
        &self,
        message: Message<'_>,
        domain: u64,
        notes: &mut Notes,
        layout: Layout,
    ) -> NvtxStartEnd {
        let mut range = NvtxStartEnd { domain, ..NvtxStartEnd::default() };
        let mut attributes = None;
        notes.walk(message, layout.what, |_, field| {
            if field.number == layout.name {
                range.name = field.text()?.into_owned();
            } else if field.number == layout.attributes {
                attributes = Some(field.message()?);
            } else if field.number == layout.id {
                range.id = field.varint()?;
            } else if field.number == layout.thread {
                range.thread = field.varint()?;
            } else if field.number != layout.api_call {
                return None;
            }
            Some(())
        });
        if let Some(attributes) = attributes.filter(|_| range.name.is_empty()) {
            range.name = self.message_text(attributes, domain, notes).unwrap_or_default();
        }
        range
    }

    /// The name in `NvtxEventAttributes` (5 message {1 type, 2 text, 3 handle of a registered
    /// string}), for ranges whose own name is empty.
    fn message_text(&self, message: Message<'_>, domain: u64, notes: &mut Notes) -> Option<String> {
        let (mut text, mut handle) = (None, None);
        notes.walk(message, "NVTX attributes", |notes, field| match field.number {
            5 => field.message().map(|message| {
                notes.walk(message, "NVTX message", |_, field| match field.number {
                    1 => field.varint().map(|_| ()),
                    2 => field.text().map(|found| text = Some(found.into_owned())),
                    3 => field.varint().map(|found| handle = Some(found)),
                    _ => None,
                });
            }),
            1..=4 => Some(()),
            _ => None,
        });
        text.filter(|text| !text.is_empty()).or_else(|| {
            let domain = self.domains.iter().find(|known| known.id == domain)?;
            let (_, value) = domain.strings.iter().find(|(id, _)| Some(*id) == handle)?;
            Some(value.clone())
        })
    }
}

impl NvtxDomain {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut domain = NvtxDomain::default();
        notes.walk(message, "NVTX domain", |notes, field| match field.number {
            1 => field.varint().map(|id| domain.id = id),
            2 => field.text().map(|name| domain.name = name.into_owned()),
            3 => field.message().map(|message| {
                let (mut id, mut value) = (0, String::new());
                notes.walk(message, "NVTX string", |_, field| match field.number {
                    1 => field.varint().map(|number| id = number),
                    2 => field.text().map(|text| value = text.into_owned()),
                    _ => None,
                });
                if domain.strings.len() < MAX_ENTRIES {
                    domain.strings.push((id, value));
                }
            }),
            4 => field.message().map(|_| ()),
            _ => None,
        });
        domain
    }
}

/// The two kinds of range have the same fields under different numbers; 0 means no field.
#[derive(Clone, Copy)]
struct Layout {
    what: &'static str,
    name: u32,
    attributes: u32,
    id: u32,
    thread: u32,
    api_call: u32,
}

const PUSH_POP: Layout =
    Layout { what: "NVTX push/pop range", name: 1, attributes: 2, id: 4, thread: 0, api_call: 3 };
const START_END: Layout =
    Layout { what: "NVTX start/end range", name: 2, attributes: 3, id: 1, thread: 5, api_call: 4 };

fn first_varint(message: Message<'_>, number: u32) -> u64 {
    let found = message.fields().flatten().find(|field| field.number == number);
    found.and_then(|field| field.varint()).unwrap_or_default()
}
