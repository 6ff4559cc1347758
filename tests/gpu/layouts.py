"""Whether the hardware does what `rgpu layout check` predicts: sectors of a request to global memory and wavefronts
of a request to shared memory, for twelve access patterns. ncu counts both for one warp and one instruction each."""

import ast

REMOTE = "h200"
# Name, memory, layout from lanes to elements, bytes of an element, elements of a vector, swizzle of byte addresses.
PATTERNS = [
    ("g_rows_of_words", "gmem", "32:1", 4, 1, None),
    ("g_every_second", "gmem", "32:2", 4, 1, None),
    ("g_own_sectors", "gmem", "32:8", 4, 1, None),
    ("g_halves_row_each", "gmem", "32:1024", 2, 1, None),
    ("g_vector_row_each", "gmem", "32:1024", 2, 8, None),
    ("g_tile_of_rows", "gmem", "(8,4):(8,1024)", 2, 8, None),
    ("s_words", "smem", "32:1", 4, 1, None),
    ("s_two_ways", "smem", "32:2", 4, 1, None),
    ("s_column", "smem", "32:32", 4, 1, None),
    ("s_padded_column", "smem", "32:33", 4, 1, None),
    ("s_vectors_of_rows", "smem", "(8,4):(64,8)", 2, 8, None),
    ("s_vectors_swizzled", "smem", "(8,4):(64,8)", 2, 8, (3, 4, 3)),
]


def offsets(text):
    """The offset of each lane, without rgpu."""
    shape, stride = (ast.literal_eval(part) for part in text.split(":"))
    pairs = list(zip(shape, stride)) if isinstance(shape, tuple) else [(shape, stride)]
    for lane in range(32):
        offset = 0
        for extent, step in pairs:
            offset += lane % extent * step
            lane //= extent
        yield offset


def bytes_of(pattern):
    """The byte address of each lane."""
    _, _, text, element, _, swizzle = pattern
    for offset in offsets(text):
        byte = offset * element
        if swizzle:
            bits, base, shift = swizzle
            byte ^= (byte & (((1 << bits) - 1) << (base + shift))) >> shift
        yield byte


def kernel(pattern):
    """One warp loads once. The address comes from constant memory, which no counter here counts."""
    name, memory, _, element, vector, _ = pattern
    width = element * vector
    word, count = ("b16", 1) if width == 2 else ("b32", max(1, width // 4))
    letter = "h" if word == "b16" else "r"
    ctype = "unsigned short" if word == "b16" else "unsigned"
    registers = ", ".join(f"%{i}" for i in range(count))
    target = f"{{{registers}}}" if count > 1 else registers
    form = (f".v{count}" if count > 1 else "") + f".{word}"
    outputs = ", ".join(f'"={letter}"(v[{i}])' for i in range(count))
    source = f'"l"(in + at)' if memory == "gmem" else '"r"(base + at)'
    space = "global" if memory == "gmem" else "shared"
    table = ", ".join(map(str, bytes_of(pattern)))
    return f"""
__constant__ unsigned {name}_bytes[32] = {{{table}}};
extern "C" __global__ void {name}(const char* in, unsigned* out) {{
    __shared__ __align__(128) char memory[{1 if memory == "gmem" else 1 << 15}];
    unsigned base = (unsigned)__cvta_generic_to_shared(memory), at = {name}_bytes[threadIdx.x];
    {ctype} v[{count}];
    asm volatile("ld.{space}{form} {target}, [%{count}];" : {outputs} : {source});
    unsigned sum = base;
    for (int i = 0; i < {count}; i++) sum += v[i];
    out[threadIdx.x] = sum;
}}
"""


def program():
    launches = "".join(f"    {name}<<<1, 32>>>(in, out);\n" for name, *_ in PATTERNS)
    return "#include <cstdio>\n" + "".join(map(kernel, PATTERNS)) + f"""
int main() {{
    char* in; unsigned* out;
    if (cudaMalloc(&in, 1 << 20) || cudaMalloc(&out, 1 << 10) || cudaMemset(in, 0, 1 << 20)) return 1;
{launches}    cudaError_t ended = cudaDeviceSynchronize();
    printf("%s\\n", cudaGetErrorString(ended));
    return ended;
}}
"""


def layout(s):
    (s.project / "patterns.cu").write_text(program())
    p = s.rgpu("exec", "--remote", REMOTE, "patterns.cu", "--mode", "ncu", "--set", "full", "--json").json
    measured = {launch.get("kernel", "").split("(")[0]: launch.get("metrics", {}) for launch in p.get("launches", [])}
    s.check("every pattern was profiled", len(measured) == len(PATTERNS), str(sorted(measured)))
    value = lambda metrics, name: (metrics.get(name) or {}).get("value")
    for name, memory, text, element, vector, swizzle in PATTERNS:
        extra = ["--swizzle", ",".join(map(str, swizzle))] if swizzle else []
        line = ["layout", "check", text, "--elem-bytes", element, "--vector", vector, "--access", memory]
        said, metrics = s.rgpu(*line, *extra, "--json").json, measured.get(name, {})
        if memory == "gmem":
            sectors = value(metrics, "l1tex__t_sectors_pipe_lsu_mem_global_op_ld.sum")
            requests = value(metrics, "l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum")
            real = sectors / requests if sectors is not None and requests else None
            s.check(f"{name}: ncu counts the sectors a request that check predicts", real == said.get("sectors_per_request"),
                    f"{sectors} of {requests} against {said.get('sectors_per_request')}", note=f"{real}")
            continue
        real, ideal = (value(metrics, f"memory_l1_wavefronts_shared{end}") for end in ("", "_ideal"))
        counts = said.get("wavefronts") or {}
        s.check(f"{name}: ncu attributes the shared wavefronts that check predicts",
                (real, ideal) == (counts.get("total"), counts.get("ideal")), f"{real}, ideal {ideal} against {counts}",
                note=f"{real}, ideal {ideal}")
        ways = real / ideal if real is not None and ideal else None
        s.check(f"{name}: and as many conflict ways", ways == said.get("conflict_ways"), f"{ways} against {said.get('conflict_ways')}")
