//! The ids of rungs. A rung is one command that can do a step of a plan; `rgpu_plan::tool`
//! describes each.

use super::open_enum::open_enum;

open_enum! {
    /// Id of a rung: one command that can do a step. Plans and the host's events have it as text.
    pub enum RungId {
        /// As [`RungId::NcuRequested`], but run as root.
        NcuSudo = "ncu.sudo",
        /// ncu with the user's sections and metrics.
        NcuRequested = "ncu.asked",
        /// ncu that replays the whole program for each pass over a range.
        NcuAppRange = "ncu.app_range",
        /// ncu that measures each kernel of a range.
        NcuKernel = "ncu.kernel",
        /// The provider's ncu, on a machine that it chooses.
        NcuService = "ncu.service",
        /// ncu with its basic sections.
        NcuBasic = "ncu.basic",
        /// ncu without counters: only launches and their geometry.
        NcuLaunch = "ncu.launch",
        /// The provider's ncu without counters.
        NcuServiceLaunch = "ncu.service_launch",
        /// ncu with the time of each launch only.
        NcuTimes = "ncu.times",
        /// nsys with the user's traces.
        NsysFull = "nsys.full",
        /// nsys with CUDA and NVTX.
        NsysCuda = "nsys.cuda",
        /// nsys with NVTX alone.
        NsysNvtx = "nsys.nvtx",
        /// The export of nsys's report.
        NsysExport = "nsys.export",
        /// torch's own profiler, from a hook in the program.
        Torch = "torch",
        /// Our collector with NVIDIA's libcupti.
        Cupti = "cupti",
        /// Our collector without libcupti: ranges only.
        Nvtx = "nvtx",
        /// The runner with CUDA events.
        CudaEvents = "events",
        /// The runner with the host's clock; for a program, the program itself.
        HostClock = "host",
        /// The reference on the CPU; for a program, the program itself.
        Cpu = "cpu",
        /// One tool of Compute Sanitizer.
        Sanitizer = "sanitizer",
        /// The runner with canaries around each buffer.
        Guard = "guard",
        /// The check against the reference.
        Verify = "verify",
        /// The leaderboard's own program.
        Board = "board",
        /// nvcc of the host.
        BuildNvcc = "build.nvcc",
        /// NVRTC of the host.
        BuildNvrtc = "build.nvrtc",
        /// nvcc of NVIDIA's wheels.
        BuildWheels = "build.wheels",
        /// The C compiler of the host, for a reference.
        BuildCc = "build.cc",
        /// cargo of the host.
        BuildCargo = "build.cargo",
        /// Nothing ran: it is below every rung.
        None = "none",
    }
}
