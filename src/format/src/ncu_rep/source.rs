//! The code in a report: cubins, the addresses of their functions, source files.

use super::notes::Notes;
use super::wire::Message;

/// `SourceData`: 1 reference, 2 code, 3 intermediate, 4 cubin, 5 SASS level, 6 compute capability
/// (`major << 16 | minor`), 7 flags, 8 source files, 9 relocations with the functions.
/// A later message with the same reference adds functions and omits the cubin; the two are merged.
/// merged.
#[derive(Debug, Clone, Default)]
pub struct Source<'a> {
    /// The reference that results use.
    pub reference: u64,
    /// The cubin, an ELF file; empty if the tool did not keep it.
    pub cubin: &'a [u8],
    /// PTX or other intermediate text; empty in every report seen.
    pub intermediate: &'a [u8],
    /// Compute capability, major and minor.
    pub compute_capability: Option<(u16, u16)>,
    /// The functions of the cubin with their addresses on the GPU.
    pub functions: Vec<Function>,
    /// Source files; present only with `--import-source yes`.
    pub files: Vec<SourceFile<'a>>,
}

/// A function of a cubin.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Function {
    /// The symbol, as in the cubin's section `.text.<symbol>`.
    pub symbol: String,
    /// Its absolute address: an instruction's address minus this is its offset in the section.
    pub address: u64,
    /// The symbol's number in the cubin.
    pub index: u64,
}

/// A source file that is embedded in the report.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SourceFile<'a> {
    /// Its path on the compiling or profiling machine.
    pub path: String,
    /// Contents of the file.
    pub content: &'a [u8],
}

impl<'a> Source<'a> {
    /// The function that contains the instruction at `address`, and the offset in its section.
    pub fn function_at(&self, address: u64) -> Option<(&Function, u64)> {
        let before = self.functions.iter().filter(|function| function.address <= address);
        let function = before.max_by_key(|function| function.address)?;
        Some((function, address - function.address))
    }

    pub(super) fn read(message: Message<'a>, notes: &mut Notes) -> Self {
        let mut source = Source::default();
        notes.walk(message, "source", |notes, field| match field.number {
            1 => field.varint().map(|reference| source.reference = reference),
            2 => field.message().map(|_| ()),
            3 => field.message().map(|bytes| source.intermediate = bytes.bytes()),
            4 => field.message().map(|bytes| source.cubin = bytes.bytes()),
            5 | 7 => field.varint().map(|_| ()),
            6 => field.uint32().map(|version| {
                source.compute_capability = Some(((version >> 16) as u16, version as u16));
            }),
            8 => field.message().map(|files| source.add_files(files, notes)),
            9 => field.message().map(|message| {
                notes.walk(message, "relocation data", |notes, field| match field.number {
                    1 => field.message().map(|function| {
                        source.functions.push(Function::read(function, notes));
                    }),
                    _ => None,
                });
            }),
            _ => None,
        });
        source
    }

    /// `SourceFiles`: 1 repeated {1 path, 2 content}.
    fn add_files(&mut self, message: Message<'a>, notes: &mut Notes) {
        notes.walk(message, "source files", |notes, field| match field.number {
            1 => field.message().map(|message| {
                let mut file = SourceFile::default();
                notes.walk(message, "source file", |_, field| match field.number {
                    1 => field.text().map(|path| file.path = path.into_owned()),
                    2 => field.message().map(|content| file.content = content.bytes()),
                    _ => None,
                });
                self.files.push(file);
            }),
            _ => None,
        });
    }

    pub(super) fn merge(&mut self, other: Source<'a>) {
        if self.cubin.is_empty() {
            self.cubin = other.cubin;
        }
        if self.intermediate.is_empty() {
            self.intermediate = other.intermediate;
        }
        self.compute_capability = self.compute_capability.or(other.compute_capability);
        self.functions.extend(other.functions);
        self.files.extend(other.files);
    }
}

impl Function {
    fn read(message: Message<'_>, notes: &mut Notes) -> Self {
        let mut function = Function::default();
        notes.walk(message, "function", |_, field| match field.number {
            1 => field.text().map(|symbol| function.symbol = symbol.into_owned()),
            2 => field.varint().map(|address| function.address = address),
            3 => field.varint().map(|index| function.index = index),
            _ => None,
        });
        function
    }
}
