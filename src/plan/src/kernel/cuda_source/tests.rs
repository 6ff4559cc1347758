//! What bare sources say about their kernels.

use std::path::Path;

use super::infer::{example_instances_of, infer, instantiation_of};
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
    let structure = "struct P { int n; Q q; };\n\n__global__ void k(P p, float *x) { x[0] = 1; }";
    assert!(refused(structure).starts_with("line 3: the parameter `P p`"));
    let linked = "struct Node { Node *next; int value; };
        __global__ void k(Node *nodes) { nodes[threadIdx.x].value = 1; }";
    assert!(refused(linked).contains("points to structures that hold pointers"));
    let mode = "\ntemplate <int MODE> __global__ void k(float *x) { x[MODE] = 0; }";
    assert!(refused(mode).starts_with("line 2: `k` is a template"));
    let index = "__global__ void k(float *x, int *i) { extern __shared__ float s[];\ns[i[0]] = *x; i[0] = 0; }";
    assert!(refused(index).starts_with("line 2: the dynamic shared memory"));
    // An open index is not refused, but said.
    let open =
        found("__global__ void k(float *x, int *i) { x[i[threadIdx.x]] = 0; i[0] = 0; }", None);
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
         (const float *__restrict__ x, float y[], int n); } }\n"
    );
    assert!(instantiation_of(Path::new("mine.cu"), source, "b<1>").is_err());
    let written = "template <typename T> __global__ void k(T *x) {}
        template __global__ void k<float>(float *x);";
    let line = |entry: &str| instantiation_of(Path::new("mine.cu"), written, entry).unwrap();
    assert_eq!(line("k<float>"), "");
    assert_eq!(line("k<int>"), "template __global__ void k<int>(int *x);\n");
}

#[test]
fn a_template_is_instantiated_by_a_line_with_example_arguments() {
    let lines = example_instances_of(
        Path::new("mine.cu"),
        "// template <int X> __global__ void comment(X x) {}
         template <typename T, int N = 4, bool FAST>
         __global__ void __launch_bounds__(256)
         tile(const T *__restrict__ x, T* y, std::pair<T, int> p, int n) { y[0] = N; }
         __global__ void plain(float *x) {}
         template <> __global__ void tile<float, 1, true>(float *x) {}
         template <int N> __global__ void only_declared(float *x);",
    );
    assert_eq!(
        lines,
        ["template __global__ void tile<float, 4, 1>\
          (const float *__restrict__ x, float* y, std::pair<float, int> p, int n);"]
    );
}

#[test]
fn the_names_and_the_main_of_a_source_are_found() {
    use super::{has_main, kernel_names, launches_on_device};
    let source = "__global__ void k(int n); __global__ void k(int n) {}
        #define KERNEL(name) __global__ void name(float *x) { x[0] = 1; }
        KERNEL(made)
        #if 0
        __global__ void left_out(int n) {}
        #endif
        namespace a { template <int N> __global__ void __launch_bounds__(N) t(float4 **p) {} }
        int main() { k<<<1, 1>>>(1); }";
    assert_eq!(kernel_names(source), ["k", "made", "t"]);
    assert!(has_main(source) && !has_main("// int main()\nvoid domain() {}"));
    assert!(!launches_on_device(source));
    assert!(launches_on_device("__global__ void k() { if (1) { c<<<1, 1>>>(); } }"));
}

#[test]
fn structures_by_value_become_their_members() {
    let source = "struct Size { int w; short h; double scale; };
        struct Params { const float *in; float *out; Size size; int2 steps; char pad; };
        __device__ bool inside(Size s, int x, int y) { return x < s.w && y < s.h; }
        __global__ void scale(Params p, float2 by) {
          int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y * blockDim.y + threadIdx.y;
          if (x >= p.size.w || y >= p.size.h) return;
          p.out[y * p.size.w + x] = p.in[y * p.size.w + x] * by.x;
        }
        void run(const float *in, float *out, int width, int height) {
          Params p = {in, out, width, height, 1.0, 0, 0, 0};
          Params q = p;
          scale<<<dim3((q.size.w + 31) / 32, (q.size.h + 7) / 8), dim3(32, 8)>>>(q, make_float2(1, 2));
        }";
    let kernel = found(source, None);
    assert_eq!(
        described(&kernel),
        "scale<<<(ceil_div(width, 32), ceil_div(height, 8)), (32, 8)>>> \
         p.in[height * width] p.out[height * width]"
    );
    let names: Vec<&str> = kernel.spec.args.iter().map(|arg| &*arg.name).collect();
    assert_eq!(
        names,
        [
            "p.in",
            "p.out",
            "p.size.w",
            "p.size.h",
            "p.size.scale",
            "p.steps.x",
            "p.steps.y",
            "p.pad",
            "by.x",
            "by.y"
        ]
    );
    let gap = "struct V { int n; float4 v; }; __global__ void k(V v, float *x) { x[v.n] = v.v.x; }";
    let names: Vec<String> = found(gap, None).spec.args.into_iter().map(|arg| arg.name).collect();
    assert_eq!(names, ["v.n", "v.gap4", "v.gap8", "v.v.x", "v.v.y", "v.v.z", "v.v.w", "x"]);
}

#[test]
fn sizes_stay_within_the_arrays_of_the_kernel_itself() {
    let source = "__global__ void top(const float *x, float *y, int rows, int k) {
      __shared__ float best[64];
      for (int i = 0; i < k; ++i) best[i] = x[blockIdx.x * k + i];
      y[blockIdx.x] = best[0];
    }
    void run(const float *x, float *y, int rows, int k) { top<<<rows, 32>>>(x, y, rows, k); }";
    let kernel = found(source, None);
    let case = &kernel.spec.cases(&CaseSelection::Default).unwrap()[0];
    assert_eq!(case.groups[0].sizes, [2048, 64]);
    assert!(kernel.assumptions.iter().any(|line| line.contains("`k` is at most 64: line 3")));
}

#[test]
fn a_tile_that_is_read_as_vectors_has_its_own_elements() {
    let source =
        "template <int BM> __global__ void __launch_bounds__(128) mm(int M, int K, float *A) {
      A += blockIdx.y * BM * K;
      for (int k = 0; k < K; k += 16) {
        reinterpret_cast<float4 *>(&A[(threadIdx.x / 4) * K + (threadIdx.x % 4) * 4])[0].x = 1;
        A += 16;
      }
    }";
    let text = described(&found(source, None));
    assert!(text.starts_with("mm<64><<<(1, ceil_div(M, 64)), (128)>>>"), "{text}");
}

#[test]
fn integers_of_an_array_that_is_only_read_bound_what_they_index() {
    let source = "__global__ void sum(int *count, int *list, float *x, float *y, int n) {
      int i = blockIdx.x * blockDim.x + threadIdx.x;
      if (i >= n) return;
      for (int k = 0; k < count[i]; ++k) y[i] += x[list[i + n * k]];
    }";
    let kernel = found(source, None);
    let text = described(&kernel);
    assert!(text.ends_with("count[n] list[100 * n] x[101] y[n]"), "{text}");
    assert!(!kernel.assumptions.iter().any(|line| line.contains("guessed")));
}

#[test]
fn other_ways_to_write_arrays_functors_and_launches_are_understood() {
    let rows = "const int N = 64;
      __global__ void add(float A[N][N], const float (*B)[N], float C[][N]) {
        int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y * blockDim.y + threadIdx.y;
        if (i < N && j < N) C[i][j] = A[i][j] + B[i][j];
      }
      void go() { dim3 block{16, 16}; add<<<dim3{N / 16, N / 16}, block>>>(0, 0, 0); }";
    assert_eq!(described(&found(rows, None)), "add<<<(4, 4), (16, 16)>>> A[4096] B[4096] C[4096]");
    let functor = "struct Add { __device__ float operator()(float a) const { return a + 1; } };
      extern __shared__ float cache[];
      template <typename Op> __global__ void map(float *x, curandState *state, int n, Op op) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        cache[threadIdx.x] = 0;
        if (i < n) x[i] = op(x[i]) + curand_uniform(&state[i]);
      }
      void go(float *x, curandState *s, int n) { 
        map<<<(n + 127) / 128, 128, 512>>>(x, s, n, Add()); }";
    let kernel = found(functor, None);
    assert!(
        described(&kernel).starts_with("map<Add><<<(ceil_div(n, 128)), (128) + 512>>> x[n] state["),
        "{}",
        described(&kernel)
    );
    assert_eq!(kernel.spec.args.last().unwrap().name, "op.gap0");
    let call = "__global__ void k(float *x, int n) {
        int i = blockIdx.x * 64 + threadIdx.x; if (i < n) x[i] = 0; }
      void go(float *x, int n) { void *args[] = {&x, &n};
        cudaLaunchCooperativeKernel((void *)k, dim3(132), dim3(64), args, 0, 0); }";
    assert_eq!(described(&found(call, None)), "k<<<(132), (64)>>> x[n]");
    let derived = "struct B { int a; }; struct P : B { int b; }; __global__ void k(P p) {}";
    assert!(infer(Path::new("mine.cu"), derived, None).is_err());
}

#[test]
fn instances_blocks_and_sizes_are_those_that_a_person_would_take() {
    let dispatched = "template <typename scalar_t>
      __global__ void norm(const scalar_t *x, scalar_t *y, int rows, int cols) {
        for (int c = threadIdx.x; c < cols; c += blockDim.x)
          y[blockIdx.x * cols + c] = x[blockIdx.x * cols + c]; }
      torch::Tensor run(torch::Tensor x, torch::Tensor y) {
        const auto rows = x.size(0); const auto cols = x.size(1);
        AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), \"norm\", ([&] {
          norm<scalar_t><<<rows, 256>>>(x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(),
                                        rows, cols); }));
        return y; }";
    assert_eq!(
        described(&found(dispatched, None)),
        "norm<float><<<(rows), (256)>>> x[cols * rows] y[cols * rows]"
    );
    let warps = "constexpr int TILE_M = 16, TILE_N = 16;
      enum { PAD = 3, STEP };
      enum class Order : unsigned char { ROWS, COLUMNS };
      __global__ void mm(half *a, float *c, int M, int N, Order order) {
        int m = (blockIdx.x * blockDim.x + threadIdx.x) / warpSize * TILE_M;
        int n = (blockIdx.y * blockDim.y + threadIdx.y) * STEP * 4;
        if (m < M && n < N) c[m + n * M] = a[m + TILE_N - 16]; }";
    let text = described(&found(warps, None));
    assert!(text.starts_with("mm<<<(ceil_div(M, 64), ceil_div(N, 64)), (128, 4)>>>"), "{text}");
    let sizes = |source: &str| {
        let kernel = found(source, None);
        kernel.spec.cases(&CaseSelection::Default).unwrap()[0].groups[0].sizes.clone()
    };
    let valid = "__global__ void conv(const float *x, float *y, int n, int kernel_size) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n - kernel_size + 1)
          for (int j = 0; j < kernel_size; ++j) y[i] += x[i + j]; }";
    assert_eq!(sizes(valid), [1 << 24, 3]);
    let strided = "__global__ void hist(const unsigned char *x, unsigned *bins, size_t n) {
        for (size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
          atomicAdd(&bins[x[i]], 1u); }
      void run(const unsigned char *x, unsigned *b, size_t n) {
        int sms; cudaDeviceGetAttribute(&sms, cudaDevAttrMultiProcessorCount, 0);
        hist<<<sms * 8, 256>>>(x, b, n); }";
    assert_eq!(sizes(strided), [1 << 24, 132]);
    let alone = "__global__ void saxpy(int n, float a, const float *x, float *y) {
        int stride = gridDim.x * blockDim.x;
        for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride)
          y[i] = a * x[i] + y[i]; }";
    assert_eq!(sizes(alone), [1 << 24]);
    let pairs = "__global__ void pairs(float4 *x, int n) {
        int i = blockIdx.x * 256 + threadIdx.x;
        for (int t = 0; t < gridDim.x; ++t) x[i].x += x[t * 256 + threadIdx.x].y; }
      void run(float4 *x, int n) { pairs<<<(n + 255) / 256, 256>>>(x, n); }";
    assert_eq!(sizes(pairs), [1 << 14]);
}

#[test]
fn deep_namespaces_take_linear_time_and_memory() {
    let opened: String =
        (0..60_000).map(|n| format!("namespace n{n} {{ void f{n}() {{}} ")).collect();
    let started = std::time::Instant::now();
    let declared = super::declarations(&format!("__global__ void first() {{}} {opened}"));
    assert!(started.elapsed().as_secs() < 20, "{:?}", started.elapsed());
    assert!(declared.is_cut);
    let long = format!("namespace {}n {{ void f() {{}} }}", "n::".repeat(300_000));
    assert!(super::declarations(&long).is_cut);
    let few = super::declarations("namespace a { namespace b { __global__ void k() {} } }");
    assert!(!few.is_cut);
    assert_eq!(few.kernels[0].scope, "a::b::");
}

#[test]
fn a_source_of_too_many_tokens_is_said_to_be_read_in_part() {
    let kernel = "__global__ void first(float *x) { x[threadIdx.x] = 1; }\n";
    let filler = ";".repeat(1_000_100);
    let found = found(&format!("{kernel}{filler}__global__ void last(float *x) {{}}"), None);
    let told = found.assumptions.join("\n");
    assert!(told.contains("a part of the source was not read"), "{told}");
    let macros = "#define A ;;;;;;;;;;\n#define B A A A A A A A A A A\n#define C B B B B B B B B\n";
    let many = format!("{macros}{}", "C ".repeat(2000));
    assert!(super::declarations(&many).is_cut);
    assert!(!super::declarations(kernel).is_cut);
}
