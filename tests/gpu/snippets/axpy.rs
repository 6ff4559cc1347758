//! Compiles a kernel with NVRTC, launches it in an NVTX range and checks every value.

use rgpu_prelude::*;

const KERNEL: &str = r#"
extern "C" __global__ void axpy(float* y, const float* x, float a, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = a * x[i] + y[i];
}
"#;

fn main() -> Result<()> {
    let gpu = Gpu::new()?;
    let axpy = gpu.kernel(KERNEL, "axpy")?;
    let n = 1 << 20;
    let x: Vec<f32> = (0..n).map(|i| (i % 1000) as f32).collect();
    let device_x = gpu.stream.clone_htod(&x)?;
    let mut device_y = gpu.stream.clone_htod(&vec![1.0f32; n])?;
    let (a, count) = (0.5f32, n as i32);
    {
        let _range = range("axpy");
        let mut launch = gpu.stream.launch_builder(&axpy);
        launch.arg(&mut device_y).arg(&device_x).arg(&a).arg(&count);
        // SAFETY: the arguments match the kernel's parameters, and it accesses only `n` elements.
        unsafe { launch.launch(LaunchConfig::for_num_elems(n as u32)) }?;
        gpu.stream.synchronize()?;
    }
    let y = gpu.stream.clone_dtoh(&device_y)?;
    let wrong = y.iter().zip(&x).filter(|(y, x)| **y != 0.5 * **x + 1.0).count();
    println!("{}: {n} values, {wrong} wrong", gpu.context.name()?);
    std::process::exit(i32::from(wrong > 0));
}
