//! What a piece of GPU work, or a call of the host, is.

use rgpu_model::Trace;
use rgpu_model::account::AccountCause;
use rgpu_model::trace::TraceWork;

/// The class of a kernel by its demangled (or mangled) name.
pub fn of_kernel(_name: &str) -> AccountCause {
    AccountCause::OtherKernel
}

/// The class of a piece of GPU work.
pub fn of_work(trace: &Trace, work: &TraceWork) -> AccountCause {
    let name = trace.names.get(work.name as usize).map_or("", String::as_str);
    of_kernel(name)
}

/// The class of a call by its name: of the time in its body that is no wait for the GPU.
pub fn of_call(_name: &str) -> AccountCause {
    AccountCause::OtherCall
}
