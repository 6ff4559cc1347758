//! What bare sources say about their kernels.

use std::path::Path;

use super::infer::{device_code, infer, instantiation_of};
use crate::kernel::{CaseSelection, EntryPoint, FoundKernel, KernelError};

fn found(source: &str, launch: Option<&str>) -> FoundKernel {
    infer(Path::new("mine.cu"), source, launch).unwrap()
}

/// Entry, grid, block, shared memory and the elements of each array.
fn described(found: &FoundKernel) -> String {
    let spec = &found.spec;
    let EntryPoint::Device(entry) = &spec.entry else { return String::new() };
    let list = |exprs: &[crate::kernel::expr::Expr]| {
        exprs.iter().map(|expr| expr.text().to_owned()).collect::<Vec<_>>().join(", ")
    };
    let launch = spec.launch.as_ref().unwrap();
    let shared = launch.shared.as_ref().map(|bytes| format!(" + {}", bytes.text()));
    let arrays = spec.args.iter().filter(|arg| !arg.shape.is_empty());
    let arrays: Vec<String> =
        arrays.map(|arg| format!("{}[{}]", arg.name, list(&arg.shape))).collect();
    format!(
        "{entry}<<<({}), ({}){}>>> {}",
        list(&launch.grid),
        list(&launch.block),
        shared.unwrap_or_default(),
        arrays.join(" ")
    )
}

const MATMUL: &str = "#define TILE 16
#define CEIL(a, b) (((a) + (b) - 1) / (b))
template <typename T, int W = TILE>
__global__ void matmul(const T *A, const T *B, T *C, int M, int N, int K) {
  __shared__ T a[W][W + 1], b[W][W];
  int row = blockIdx.y * W + threadIdx.y, col = blockIdx.x * W + threadIdx.x;
  T sum = T(0);
  for (int t = 0; t < CEIL(K, W); ++t) {
    int k = t * W + threadIdx.x;
    a[threadIdx.y][threadIdx.x] = (row < M && k < K) ? A[row * K + k] : T(0);
    k = t * W + threadIdx.y;
    b[threadIdx.y][threadIdx.x] = (k < K && col < N) ? B[k * N + col] : T(0);
    __syncthreads();
    for (int i = 0; i < W; ++i) sum += a[threadIdx.y][i] * b[i][threadIdx.x];
    __syncthreads();
  }
  if (row < M && col < N) C[row * N + col] = sum;
}
";

#[test]
fn arrays_have_the_elements_that_conditions_and_loops_reach() {
    assert_eq!(
        described(&found(MATMUL, None)),
        "matmul<float, 16><<<(ceil_div(N, 16), ceil_div(M, 16)), (16, 16)>>> \
         A[K * M] B[K * N] C[M * N]"
    );
    let stencil = "__global__ void blur(const float *in, float *out, int w, int h) {
      int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
      if (x >= w || y >= h) return;
      float sum = 0;
      for (int i = 0; i < 3; i++) sum += in[min(y + i, h - 1) * w + x];
      out[y * w + x] = sum;
    }";
    assert_eq!(
        described(&found(stencil, None)),
        "blur<<<(ceil_div(w, 16), ceil_div(h, 16)), (16, 16)>>> in[h * w] out[h * w]"
    );
    let gather =
        "__global__ void gather(const int *index, const float4 *rows, float4 *out, int n) {
      for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x)
        out[i] = rows[index[i]];
    }";
    assert_eq!(
        described(&found(gather, None)),
        "gather<<<(ceil_div(n, 256)), (256)>>> index[n] rows[404] out[4 * n]"
    );
}

#[test]
fn launches_of_the_host_code_are_used_as_they_are() {
    let source = "template <int BLOCK>
    __global__ void scale(const float *x, float *y, int rows, int cols) {
      extern __shared__ float s[];
      for (int i = threadIdx.x; i < cols; i += BLOCK) s[i % BLOCK] = x[blockIdx.x * cols + i];
      y[blockIdx.x] = s[0];
    }
    template <int BLOCK> void run(const float *x, float *y, int rows, int cols) {
      dim3 grid(rows);
      scale<BLOCK><<<grid, BLOCK, BLOCK * sizeof(float)>>>(x, y, rows, cols);
    }
    void go(const float *x, float *y) { run<128>(x, y, 512, 4096); }";
    let kernel = found(source, None);
    assert_eq!(described(&kernel), "scale<128><<<(rows), (128) + 512>>> x[cols * rows] y[rows]");
    let case = &kernel.spec.cases(&CaseSelection::Default).unwrap()[0];
    assert_eq!(case.groups[0].sizes, [512, 4096], "{:?}", case.vars);
}

#[test]
fn a_launch_of_the_user_names_instance_shape_and_elements() {
    let asked =
        "matmul<half, 32><<<(n / 32, m / 32), {32, 32}, 64>>>(m * k, _, 2 * m * n, m, n, k)";
    assert_eq!(
        described(&found(MATMUL, Some(asked))),
        "matmul<half, 32><<<((n - n % 32) / 32, (m - m % 32) / 32), (32, 32) + 64>>> \
         A[k * m] B[32 * ceil_div(k, 32) * n] C[2 * m * n]"
            .replace("32 * ceil_div(k, 32) * n", "k * n")
            .replace("(n - n % 32) / 32", "(((n) - (n) % (32)) / (32))")
            .replace("(m - m % 32) / 32", "(((m) - (m) % (32)) / (32))")
    );
    assert_eq!(
        described(&found(MATMUL, Some("mat<double>"))).split("<<<").next(),
        Some("matmul<double, 16>")
    );
    let refused = infer(Path::new("mine.cu"), MATMUL, Some("matmul<float><<<1, 2>>>(n)"));
    assert!(refused.unwrap_err().to_string().contains("1 arguments"));
}

#[test]
fn what_the_source_does_not_tell_is_refused_with_its_line() {
    let refused = |source: &str| match infer(Path::new("mine.cu"), source, None) {
        Err(KernelError::NotInferred { problem, .. }) => problem,
        other => panic!("{other:?}"),
    };
    let structure =
        "struct P { int n; float a; };\n\n__global__ void k(P p, float *x) { x[0] = 1; }";
    assert!(refused(structure).starts_with("line 3: the parameter `P p`"));
    let mode = "\ntemplate <int MODE> __global__ void k(float *x) { x[MODE] = 0; }";
    assert!(refused(mode).starts_with("line 2: `k` is a template"));
    let index =
        "__global__ void k(float *x, int *i) { extern __shared__ float s[];\ns[i[0]] = *x; }";
    assert!(refused(index).starts_with("line 2: the dynamic shared memory"));
    // An open index is not refused, but said.
    let open = found("__global__ void k(float *x, int *i) { x[i[threadIdx.x]] = 0; }", None);
    assert!(open.assumptions.iter().any(|line| line.contains("`x` has a guessed number")));
}

#[test]
fn an_instance_is_written_for_the_compiler_in_its_namespace() {
    let source = "namespace a { namespace { template <typename T, int N>
        __global__ void k(const T *__restrict__ x, T y[], int n = 1) { y[0] = x[N]; } } }";
    let line = instantiation_of(Path::new("mine.cu"), source, "a::k<float, 4>").unwrap();
    assert_eq!(
        line,
        "namespace a { namespace  { template __global__ void k<float, 4>\
         (const float * __restrict__ x, float y [ ], int n); } }\n"
    );
    assert!(instantiation_of(Path::new("mine.cu"), source, "b<1>").is_err());
}

#[test]
fn code_for_torch_keeps_its_kernels_on_their_lines() {
    let source = "#include <torch/extension.h>\n#include <cuda_fp16.h>\n__global__ void k(float *x) {\n  x[0] = 1;\n}\nvoid run(torch::Tensor x) {\n  k<<<1, 1>>>(x.data_ptr<float>());\n}\nPYBIND11_MODULE(NAME, m) {\n  m.def(\"run\", &run);\n}\n";
    let code = device_code(Path::new("mine.cu"), source).unwrap();
    let lines: Vec<&str> = code.lines().collect();
    assert_eq!(lines.len(), 11);
    assert_eq!(
        lines[..5],
        ["", "#include <cuda_fp16.h>", "__global__ void k(float *x) {", "  x[0] = 1;", "}"]
    );
    assert!(lines[5..].iter().all(|line| line.is_empty()), "{lines:?}");
    assert_eq!(device_code(Path::new("mine.cu"), "int x;"), None);
}
