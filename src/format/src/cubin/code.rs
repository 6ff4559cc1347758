//! The machine code of a cubin: one section for each kernel, with its functions.

use super::elf::Elf;

/// A section of machine code (`.text.K`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeSection {
    /// Section index. Names may repeat, indices do not.
    pub index: usize,
    /// The text after `.text.`: the mangled name of the kernel or function.
    pub name: String,
    /// Offset in the file.
    pub offset: u64,
    /// Its size, padding included.
    pub bytes: u64,
    /// Functions that begin in this section, sorted by offset.
    pub functions: Vec<Function>,
}

/// A function in a section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Function {
    /// The mangled name, from the symbol table.
    pub name: String,
    /// Index of its symbol, as used by line tables and `nvdisasm -fun`.
    pub symbol_index: usize,
    /// Offset from the section's start.
    pub offset: u64,
    /// Size according to the symbol; 0 if unknown.
    pub bytes: u64,
    /// Whether it is a kernel and not a device function.
    pub kernel: bool,
}

impl CodeSection {
    /// The machine code, taken from the file that was read; empty if `file` is a different one.
    pub fn code<'a>(&self, file: &'a [u8]) -> &'a [u8] {
        let start = usize::try_from(self.offset).unwrap_or(usize::MAX);
        let end = usize::try_from(self.bytes).ok().and_then(|n| start.checked_add(n));
        end.and_then(|end| file.get(start..end)).unwrap_or_default()
    }
}

/// All code sections in the order of the file's section table.
pub(super) fn sections(elf: &Elf<'_>) -> Vec<CodeSection> {
    const STT_FUNC: u8 = 2;
    const STO_CUDA_ENTRY: u8 = 0x10;
    let mut of_section = vec![None; elf.sections.len()];
    let mut found: Vec<CodeSection> = Vec::new();
    for (index, section) in elf.sections.iter().enumerate() {
        let Some(name) = section.name.strip_prefix(b".text.") else { continue };
        of_section[index] = Some(found.len());
        found.push(CodeSection {
            index,
            name: String::from_utf8_lossy(name).into_owned(),
            offset: section.offset,
            bytes: section.data.len() as u64,
            functions: Vec::new(),
        });
    }
    let functions = elf.symbols.iter().enumerate().filter(|(_, s)| s.kind == STT_FUNC);
    for (symbol_index, symbol) in functions {
        let Some(Some(at)) = of_section.get(symbol.section).copied() else { continue };
        found[at].functions.push(Function {
            name: String::from_utf8_lossy(symbol.name).into_owned(),
            symbol_index,
            offset: symbol.value,
            bytes: symbol.size,
            kernel: symbol.other & STO_CUDA_ENTRY != 0,
        });
    }
    for section in &mut found {
        section.functions.sort_by_key(|f| f.offset);
    }
    found
}
