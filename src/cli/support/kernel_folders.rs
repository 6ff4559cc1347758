//! The folders in which commands look for kernels: the project's, the user's and rgpu's own.

use super::app::App;
use super::session::own_program;
use rgpu_plan::kernel::KernelFolders;

/// The folders that are searched for kernels.
pub(in crate::cli) fn kernel_folders(app: &App) -> KernelFolders {
    let shipped = own_program().ok().and_then(|exe| {
        let here = exe.parent()?.to_owned();
        // Installed: ../share/rgpu/kernels. In a workspace: target/<profile>/rgpu.
        [here.join("../share/rgpu/kernels"), here.join("../../kernels")]
            .into_iter()
            .find_map(|p| p.canonicalize().ok().filter(|p| p.is_dir()))
    });
    KernelFolders {
        project: app.config.project.clone(),
        kernel_path: app.config.kernel_path.value.clone(),
        shipped,
    }
}
