//! The fingerprint of a selection: two runs with the same one made the same measurement.

use std::fmt::Write;

use rgpu_protocol::plan::Arg;
use rgpu_protocol::{Digest, HostFacts};

use crate::store::digest_file;
use rgpu_model::Selection;
use rgpu_plan::tool::{JobFileContent, ProfileTarget, Request};

/// sha256 in hexadecimal over the source or binary, the sizes, the tools' options and the tools'
/// versions. Unreadable files count by name alone.
pub(super) fn fingerprint(request: &Request, selection: &Selection, facts: &HostFacts) -> String {
    let mut text = String::from("rgpu.selection/1\n");
    let mut line = |key: &str, value: &dyn std::fmt::Debug| {
        let _ = writeln!(text, "{key} {value:?}");
    };
    let digest = |path: &std::path::Path| digest_file(path).map(|d| d.sha256.to_string()).ok();
    match &request.target {
        ProfileTarget::Kernel { spec, sources, cases, seed } => {
            line("kernel", &(spec.name.as_str(), spec.entry_name(), request.arch.as_deref(), seed));
            for (there, here) in &sources.files {
                line("source", &(there, digest(here)));
            }
            for case in cases {
                let sizes: Vec<_> = case.groups.iter().map(|group| &group.sizes).collect();
                line("case", &(&case.name, &case.vars, sizes));
            }
            line("timing", &(request.timing.warmup, request.timing.iters));
        }
        ProfileTarget::Program(program) => {
            line("program", &program.argv);
            if let Some(Arg::Text(path)) = program.argv.first() {
                line("binary", &digest(std::path::Path::new(path)));
            }
            for file in &program.files {
                let digest = match &file.content {
                    JobFileContent::Local(path) => digest(path),
                    JobFileContent::Bytes(bytes) => Some(Digest::sha256(bytes).to_string()),
                };
                line("file", &(&file.path, digest));
            }
        }
    }
    line("mode", &request.mode);
    let regions: Vec<_> = selection.regions.iter().map(|region| &region.matched).collect();
    line("regions", &(regions, &request.ncu.nvtx_include));
    line("kernels", &(&selection.kernel_names, &selection.kernel_excludes));
    let chosen: Vec<_> =
        selection.kernels.iter().map(|k| (&k.filter, k.skipped, k.profiled)).collect();
    line("chosen", &chosen);
    line("collected", &(&selection.set, &selection.sections, &selection.metrics));
    line("replay", &selection.replay_mode);
    let ncu = &request.ncu;
    line("ncu", &(&ncu.clock_control, &ncu.target_processes, &ncu.ncu_args));
    line("launches", &(ncu.launch_skip, ncu.launch_count));
    for name in ["ncu", "nsys", "nvcc", "nvrtc"] {
        line(name, &facts.tool(name).map(|tool| &tool.version));
    }
    line("driver", &facts.driver);
    Digest::sha256(text.as_bytes()).to_string()
}
