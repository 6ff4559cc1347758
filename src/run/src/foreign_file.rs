//! Says of files that rgpu does not read what they are, with the next step to type.

use rgpu_format::unpack::Packing;

/// A file that rgpu does not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForeignFile {
    /// What it is, as a clause.
    pub what: &'static str,
    /// What the user does next.
    pub next_step: String,
}

/// The first line of a pointer of Git LFS.
const LFS_POINTER: &[u8] = b"version https://git-lfs.github.com/spec/";

/// Whether a file that begins with `head` stands for one that Git LFS has not fetched.
fn is_lfs_pointer(head: &[u8]) -> bool {
    head.starts_with(LFS_POINTER)
}

/// What a file is that begins with `head`, if it is known and no reader takes it.
pub fn recognise(name: &str, head: &[u8]) -> Option<ForeignFile> {
    let quoted = rgpu_model::error::shell_word(name);
    let (what, next_step) = if is_lfs_pointer(head) {
        (
            "this is a pointer of Git LFS: the file itself was not fetched",
            format!("in its repository: `git lfs pull --include '*{name}'`"),
        )
    } else if is_nvprof(head) {
        (
            "this is a file of nvprof, which ended with CUDA 12; rgpu does not read it",
            format!(
                "record again with `rgpu profile`; for a list of its kernels: \
                 `nvprof --import-profile {quoted} --csv --print-gpu-trace` of CUDA 11"
            ),
        )
    } else {
        return packed(head).map(|(what, tool)| ForeignFile {
            what,
            next_step: format!("unpack it first: `{tool} {quoted}`"),
        });
    };
    Some(ForeignFile { what, next_step })
}

/// A packed file of which only traces are read: what it is, and the program that unpacks it.
fn packed(head: &[u8]) -> Option<(&'static str, &'static str)> {
    if head.starts_with(b"BZh") {
        return Some(("this file is packed with bzip2", "bunzip2 --keep"));
    }
    if head.starts_with(b"\xfd7zXZ\0") {
        return Some(("this file is packed with xz", "unxz --keep"));
    }
    let packing = Packing::from_head(head)?;
    let inside = rgpu_format::unpack::head(head, 4096);
    if rgpu_format::torch_trace::TorchTrace::is_trace(&inside) || inside.starts_with(b"NVR\0") {
        return None;
    }
    match packing {
        Packing::Gzip => {
            Some(("this file is packed with gzip and holds no trace", "gunzip --keep"))
        }
        // A report of ncu may be cut inside its first bytes.
        Packing::Zstd if inside.is_empty() => None,
        Packing::Zstd => Some(("this file is packed with zstd and holds no trace", "zstd -d")),
    }
}

/// Whether it is a database of nvprof or of the Visual Profiler (`.nvvp`, `.nvprof`): CUPTI's
/// tables with a `StringTable`, where nsys has `StringIds`. The schema is at the beginning of the
/// file.
fn is_nvprof(head: &[u8]) -> bool {
    let has = |text: &[u8]| head.windows(text.len()).any(|part| part == text);
    head.starts_with(b"SQLite format 3\0")
        && has(b"CUPTI_ACTIVITY_KIND_")
        && has(b"StringTable")
        && !has(b"StringIds")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_is_named_with_the_next_step() {
        let pointer = b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n";
        let lfs = recognise("a.nsys-rep", pointer).unwrap();
        assert_eq!(lfs.next_step, "in its repository: `git lfs pull --include '*a.nsys-rep'`");
        let sqlite = |table: &str| {
            let text = format!("CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY (); CREATE TABLE {table}");
            [&b"SQLite format 3\0"[..], text.as_bytes()].concat()
        };
        assert!(
            recognise("a b.nvvp", &sqlite("StringTable")).unwrap().next_step.contains("'a b.nvvp'")
        );
        assert_eq!(recognise("a.sqlite", &sqlite("StringIds")), None);
        assert!(recognise("a.bz2", b"BZh91AY").unwrap().next_step.contains("bunzip2"));
        assert_eq!(recognise("a.ncu-rep", b"NVR\0"), None);
    }
}
