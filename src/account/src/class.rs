//! What a piece of GPU work, or a call of the host, is.
//!
//! Traces give names only, so the class comes from the name: first the library that wrote the
//! kernel, since each has its own way to name, then the words within. Words of a user's own kernel
//! count only where they say plainly what it does, because people name kernels as they like. Names
//! are as nsys, CUPTI and torch write them; `tests/fixtures/kernel_names` lists recorded ones.

mod compiled;
mod library;
mod torch;
mod words;

use rgpu_model::Trace;
use rgpu_model::account::AccountCause;
use rgpu_model::trace::{TraceWork, TraceWorkKind};

use words::KernelWords;

/// Who wrote a kernel, and so what its user can change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum KernelFamily {
    /// torch's own operators, each a kernel.
    Torch,
    /// The compiler of torch, which writes Triton.
    Inductor,
    /// XLA, the compiler of JAX and TensorFlow.
    Xla,
    /// CuPy's own operators.
    Cupy,
    /// cuBLAS, cuDNN, CUTLASS, cuFFT and other libraries of NVIDIA.
    Nvidia,
    /// CUB and Thrust, which others call.
    Cub,
    /// Communication between GPUs.
    Communication,
    /// Kernels for attention that no library of NVIDIA has.
    Attention,
    /// The user, or a library that is not known.
    #[default]
    Own,
}

/// The class of a kernel by its demangled (or mangled) name.
pub fn of_kernel(name: &str) -> AccountCause {
    class_and_family(name).0
}

/// Who wrote a kernel, by its name.
pub fn family(name: &str) -> KernelFamily {
    class_and_family(name).1
}

/// Class and author of a kernel.
pub fn class_and_family(name: &str) -> (AccountCause, KernelFamily) {
    let words = KernelWords::new(name);
    if library::is_communication(&words) {
        return (AccountCause::Communication, KernelFamily::Communication);
    }
    let known = compiled::inductor(&words)
        .map(|class| (class, KernelFamily::Inductor))
        .or_else(|| compiled::xla(&words).map(|class| (class, KernelFamily::Xla)))
        .or_else(|| compiled::cupy(&words).map(|class| (class, KernelFamily::Cupy)))
        .or_else(|| library::attention(&words))
        .or_else(|| library::cub(&words).map(|class| (class, KernelFamily::Cub)))
        .or_else(|| torch::class(&words).map(|class| (class, KernelFamily::Torch)))
        .or_else(|| library::nvidia(&words).map(|class| (class, KernelFamily::Nvidia)));
    known.unwrap_or_else(|| (words::plain_class(&words), KernelFamily::Own))
}

/// The class of a piece of GPU work.
pub fn of_work(trace: &Trace, work: &TraceWork) -> AccountCause {
    let name = trace.names.get(work.name as usize).map_or("", String::as_str);
    match work.kind {
        TraceWorkKind::Kernel => of_kernel(name),
        TraceWorkKind::Copy => of_copy(name, work.pageable),
        TraceWorkKind::Set => AccountCause::Fill,
        TraceWorkKind::Graph => AccountCause::Graph,
    }
}

/// The class of a copy by its kind, such as `HtoD`, and by the memory of the host's side.
fn of_copy(kind: &str, pageable: Option<bool>) -> AccountCause {
    let has_host_side = ["Hto", "toH", "Ato", "toA"].iter().any(|side| kind.contains(side));
    if kind.starts_with("unified") || kind.starts_with("Unified") {
        return AccountCause::CopyUnified;
    }
    if matches!(kind, "DtoD" | "PtoP" | "AtoA" | "AtoD" | "DtoA" | "peer") || !has_host_side {
        return AccountCause::CopyDevice;
    }
    match pageable {
        Some(true) => AccountCause::CopyPageable,
        Some(false) => AccountCause::CopyPinned,
        None => AccountCause::CopyHost,
    }
}

/// The class of a call by its name: of the time in its body that is no wait for the GPU.
pub fn of_call(name: &str) -> AccountCause {
    // Words of the names of the runtime's and the driver's calls, first hit counts.
    const WORDS: &[(&[&str], AccountCause)] = &[
        (&["GraphInstantiate", "GraphExec", "GraphCreate", "GraphAdd"], AccountCause::Compilation),
        (&["GraphDestroy", "GraphClone", "GraphKernelNode"], AccountCause::Compilation),
        (&["BeginCapture", "EndCapture", "GraphUpload"], AccountCause::Compilation),
        (&["Launch"], AccountCause::LaunchCall),
        (&["ynchronize"], AccountCause::Synchronisation),
        (&["Malloc", "Free", "MemAlloc", "HostAlloc", "HostRegister"], AccountCause::Allocation),
        (&["HostUnregister", "MemHost", "MemPool", "MemCreate"], AccountCause::Allocation),
        (&["MemMap", "MemUnmap", "MemRelease", "MemSetAccess"], AccountCause::Allocation),
        (&["MemAddress"], AccountCause::Allocation),
        (&["Memcpy", "Memset", "MemPrefetch"], AccountCause::LaunchCall),
        (&["Module", "Library", "cuLink", "nvrtc", "nvJitLink"], AccountCause::Compilation),
    ];
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    let known = WORDS.iter().find(|(words, _)| has(words));
    known.map_or(AccountCause::OtherCall, |(_, class)| class.clone())
}

#[cfg(test)]
mod tests;
