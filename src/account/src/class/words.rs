//! A kernel's name, cut into what its words are looked for in.

use rgpu_model::account::AccountCause;

/// Longer names are cut: what decides is at the front.
const MAX_NAME_BYTES: usize = 4096;

/// The name of a kernel in lower case.
pub(super) struct KernelWords {
    /// The whole name.
    text: String,
    /// End of the name without its parameters.
    own_end: usize,
    /// End of the name without template arguments.
    head_end: usize,
}

impl KernelWords {
    /// The words of a name.
    pub(super) fn new(name: &str) -> KernelWords {
        let cut = (0..=name.len().min(MAX_NAME_BYTES)).rev().find(|at| name.is_char_boundary(*at));
        let text = name.get(..cut.unwrap_or(0)).unwrap_or_default().to_ascii_lowercase();
        let (head_end, own_end) = ends(&text);
        KernelWords { text, own_end, head_end }
    }

    /// The whole name.
    pub(super) fn text(&self) -> &str {
        &self.text
    }

    /// The name with its template arguments, without its parameters.
    pub(super) fn own(&self) -> &str {
        self.text.get(..self.own_end).unwrap_or_default()
    }

    /// The path of the name: without template arguments and parameters.
    pub(super) fn head(&self) -> &str {
        let head = self.text.get(..self.head_end).unwrap_or_default();
        head.strip_prefix("void ").unwrap_or(head)
    }

    /// Whether the name without its parameters has one of the words anywhere.
    pub(super) fn has(&self, words: &[&str]) -> bool {
        let own = self.own();
        words.iter().any(|word| own.contains(word))
    }

    /// Whether the path has one of the words anywhere.
    pub(super) fn head_has(&self, words: &[&str]) -> bool {
        let head = self.head();
        words.iter().any(|word| head.contains(word))
    }

    /// Whether the path has one of the words by itself: no letter before it, and behind it none but
    /// `kernel` or `kernels`.
    fn head_has_word(&self, words: &[&str]) -> bool {
        let head = self.head();
        words.iter().any(|word| {
            head.match_indices(word).any(|(at, _)| {
                let before = head.get(..at).unwrap_or_default().bytes().next_back();
                let behind = head.get(at.saturating_add(word.len())..).unwrap_or_default();
                let ends = !behind.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic());
                !before.is_some_and(|byte| byte.is_ascii_alphabetic())
                    && (ends || behind.starts_with("kernel"))
            })
        })
    }

    /// Whether the name is one word, as compilers give it: no template, no parameters.
    pub(super) fn is_identifier(&self) -> bool {
        !self.text.is_empty()
            && self.text.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.'))
    }

    /// The first class one word of which the name, without its parameters, has.
    pub(super) fn first_hit(&self, table: &[(AccountCause, &[&str])]) -> Option<AccountCause> {
        table.iter().find(|(_, words)| self.has(words)).map(|(class, _)| class.clone())
    }
}

/// Ends of the path, and of the name without its parameters.
fn ends(text: &str) -> (usize, usize) {
    const UNNAMED: &[&str] = &["<unnamed>", "(anonymous namespace)"];
    let (mut head_end, mut depth, mut at) = (None, 0_usize, 0_usize);
    let bytes = text.as_bytes();
    while let Some(byte) = bytes.get(at) {
        let rest = text.get(at..).unwrap_or_default();
        let unnamed = UNNAMED.iter().find(|name| rest.starts_with(**name));
        if let Some(name) = unnamed {
            at = at.saturating_add(name.len());
            continue;
        }
        match byte {
            b'<' => {
                head_end = head_end.or(Some(at));
                depth = depth.saturating_add(1);
            }
            // `->` closes nothing.
            b'>' if at > 0 && bytes.get(at - 1) == Some(&b'-') => {}
            b'>' => depth = depth.saturating_sub(1),
            b'(' if depth == 0 => return (head_end.unwrap_or(at), at),
            _ => {}
        }
        at = at.saturating_add(1);
    }
    (head_end.unwrap_or(text.len()), text.len())
}

/// The class of a kernel of the user, if its path says plainly what it does.
pub(super) fn plain_class(words: &KernelWords) -> AccountCause {
    const ANYWHERE: &[(AccountCause, &[&str])] = &[
        (AccountCause::Attention, &["attention", "attn_fwd", "attn_bwd", "flash_attn"]),
        (AccountCause::Softmax, &["softmax", "cross_entropy", "crossentropy"]),
        (
            AccountCause::Normalisation,
            &["layer_norm", "layernorm", "rms_norm", "rmsnorm", "batch_norm", "group_norm"],
        ),
        (AccountCause::Convolution, &["conv1d", "conv2d", "conv3d", "convolution"]),
        (AccountCause::MatrixProduct, &["gemm", "gemv", "matmul", "mat_mul", "marlin"]),
        (AccountCause::Layout, &["transpose"]),
    ];
    const ALONE: &[(AccountCause, &[&str])] = &[
        (AccountCause::Attention, &["attn", "mha"]),
        (AccountCause::Sort, &["radix_sort", "bitonic_sort", "merge_sort", "topk", "top_k"]),
        (AccountCause::Reduction, &["reduce", "reduction", "prefix_sum", "prefix_scan"]),
        (AccountCause::GatherScatter, &["gather", "scatter", "scatter_add"]),
        (AccountCause::ElementWise, &["saxpy", "axpy", "vectoradd", "vector_add", "vec_add"]),
        (AccountCause::Optimizer, &["adam", "adamw", "sgd"]),
        (AccountCause::Random, &["dropout", "philox", "threefry"]),
    ];
    if is_fft(words.head()) {
        return AccountCause::Fft;
    }
    let anywhere = ANYWHERE.iter().find(|(_, list)| words.head_has(list));
    let alone = || ALONE.iter().find(|(_, list)| words.head_has_word(list));
    anywhere.or_else(alone).map_or(AccountCause::OtherKernel, |(class, _)| class.clone())
}

/// Whether a path has the word `fft`. `DiffTensor` and `buffType` have its letters, too.
fn is_fft(head: &str) -> bool {
    head.match_indices("fft").any(|(at, _)| {
        let before = head.get(..at).unwrap_or_default();
        !["di", "u", "o", "a", "e"].iter().any(|end| before.ends_with(end))
    })
}
