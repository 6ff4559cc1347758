// The memory chart: what the kernel asks of each memory space, and what the caches and memories
// then move, as in Nsight Compute.

const PEAK = ".pct_of_peak_sustained_elapsed";
const requests = kind => `l1tex__t_requests_pipe_${kind}.sum`;
const wavefronts = kind => `l1tex__data_pipe_lsu_wavefronts_mem_shared_op_${kind}.sum`;
const sass = kind => `smsp__sass_inst_executed_op_${kind}.sum`;
const executed = kind => `smsp__inst_executed_op_${kind}.sum`;

/** Rows of the chart. `read` and `write` name the metrics that are added: instructions of the kernel,
    then what they become in the cache (`unit`). Rows without `always` appear only if the launch uses them. */
const SPACES = [
  { name: "Global", into: "l1", unit: "requests", always: true,
    read: [[sass("global_ld")], [requests("lsu_mem_global_op_ld")]], write: [[sass("global_st")], [requests("lsu_mem_global_op_st")]] },
  { name: "Global atomics", into: "l1", unit: "requests",
    write: [[executed("generic_atom_dot_alu"), executed("generic_atom_dot_cas"), executed("global_red")], [requests("lsu_mem_global_op_atom"), requests("lsu_mem_global_op_red")]] },
  { name: "Local", into: "l1", unit: "requests", always: true,
    read: [[sass("local_ld")], [requests("lsu_mem_local_op_ld")]], write: [[sass("local_st")], [requests("lsu_mem_local_op_st")]] },
  { name: "Texture", into: "l1", unit: "requests", read: [[executed("texture")], [requests("tex_mem_texture")]] },
  { name: "Surface", into: "l1", unit: "requests",
    read: [[executed("surface_ld")], [requests("tex_mem_surface_op_ld")]], write: [[executed("surface_st")], [requests("tex_mem_surface_op_st")]] },
  { name: "Copy to shared", title: "LDGSTS, cp.async", into: "l1", unit: "requests",
    read: [[executed("ldgsts")], ["sm__sass_l1tex_t_requests_pipe_lsu_mem_global_op_ldgsts.sum"]] },
  { name: "TMA", into: "l1", unit: "bytes", read: [[executed("tma_ld")], ["l1tex__m_xbar2l1tex_read_bytes_mem_global_op_tma_ld.sum"]],
    write: [[executed("tma_st")], ["l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_st.sum", "l1tex__m_l1tex2xbar_write_bytes_mem_global_op_tma_red.sum"]] },
  { name: "Cluster shared", title: "shared memory of other blocks of the cluster", into: "l1", unit: "requests",
    read: [[sass("dshared_ld")], [requests("lsu_mem_dshared_op_ld")]], write: [[sass("dshared_st")], [requests("lsu_mem_dshared_op_st")]] },
  { name: "Shared", into: "shared", unit: "wavefronts", always: true,
    read: [[sass("shared_ld")], [wavefronts("ld")]], write: [[sass("shared_st")], [wavefronts("st")]] },
  { name: "Shared atomics", into: "shared", unit: "wavefronts", write: [[executed("shared_atom")], [wavefronts("atom")]] },
  { name: "Shared matrices", title: "LDSM and STSM, ldmatrix and stmatrix", into: "shared", read: [[executed("ldsm")]], write: [[executed("shared_stsm")]] },
  { name: "Tensor operands", title: "operands of wgmma that the tensor cores read from shared memory", into: "shared",
    read: [[sass("shared_gmma")]] },
];
const CACHE = { read: ["l1tex__m_xbar2l1tex_read_bytes.sum"], write: ["l1tex__m_l1tex2xbar_write_bytes.sum"] };
/** Sectors of 32 bytes that the L2 cache fetches from, or sends to, a memory that is not the GPU's own. */
const remote = aperture => ({ scale: 32, read: [`lts__t_sectors_srcunit_tex_aperture_${aperture}_op_read_lookup_miss.sum`],
  write: [`lts__t_sectors_srcunit_tex_aperture_${aperture}_op_write.sum`] });
const MEMORIES = [
  { name: "System memory", ...remote("sysmem") },
  { name: "Peer memory", ...remote("peer") },
  { name: "Device memory", read: ["dram__bytes_read.sum"], write: ["dram__bytes_write.sum"] },
];

/** The sum of metrics; undefined if the report lacks one, because part of a sum is no sum. */
function total(launch, ids, scale = 1) {
  const values = (ids || []).map(id => number(launch, id));
  return values.length && !values.includes(undefined) ? sum(values) * scale : undefined;
}

/** One direction between two boxes: its amount, its share of the peak, and the metrics behind them. */
function flow(launch, from, to, unit, ids, scale) {
  return { from, to, unit, ids, scale, amount: total(launch, ids, scale),
    share: ids.length === 1 ? number(launch, ids[0] + PEAK) : undefined };
}

/** All that the chart draws, or null if the report has none of its numbers. */
function memoryFlows(launch) {
  const spaces = [], unused = [], unknown = [];
  for (const space of SPACES) {
    const into = space.into === "l1" ? "L1/TEX cache" : "Shared memory";
    const links = [];
    for (const way of ["write", "read"]) {
      if (!space[way]) continue;
      const ends = (a, b) => way === "write" ? [a, b] : [b, a];
      const [instructions, moved] = space[way];
      links.push(flow(launch, ...ends("Kernel", space.name), "instructions", instructions));
      if (moved) links.push(flow(launch, ...ends(space.name, into), space.unit, moved));
    }
    const known = links.filter(l => l.amount !== undefined);
    if (space.always || known.some(l => l.amount > 0)) spaces.push({ ...space, links });
    else (known.length ? unused : unknown).push(space.name);
  }
  const pair = (a, b, of) => [flow(launch, a, b, "bytes", of.write, of.scale), flow(launch, b, a, "bytes", of.read, of.scale)];
  const cache = pair("L1/TEX cache", "L2 cache", CACHE);
  const memories = MEMORIES.map(m => ({ name: m.name, links: pair("L2 cache", m.name, m) }));
  const moved = [...cache, ...memories.flatMap(m => m.links), ...spaces.flatMap(s => s.links)];
  return moved.some(l => l.amount !== undefined) ? { spaces, cache, memories, unused, unknown, all: [...spaces.flatMap(s => s.links), ...cache, ...memories.flatMap(m => m.links)] } : null;
}

function memoryChart() {
  if (!page.launches.some(l => memoryFlows(l))) {
    return absent.push(["Memory chart", "its counters were not collected (ncu's section MemoryWorkloadAnalysis_Chart; `--set full` has it)"]);
  }
  const box = el("div");
  section("memory", "Memory", "What the kernel asks of each memory space, and what caches and memories then move for it. An arrow points the way the data goes. The wider and the more orange it is, the nearer it is to its peak.", box);
  onLaunchAndWidth(box, (launch, width) => {
    const flows = memoryFlows(launch);
    box.replaceChildren(...(flows ? drawnMemory(launch, flows, width) : [el("p", { class: "dim" }, "The counters of the memory chart are absent for this launch.")]));
  });
}

const amountOf = (x, unit) => unit === "bytes" ? bytes(x) : scaled(x, [[1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
const inUnit = f => f.amount === undefined ? "not collected" : amountOf(f.amount, f.unit) + ({ bytes: "", instructions: " inst" }[f.unit] ?? " " + f.unit);

function drawnMemory(launch, flows, width) {
  const ROW = 62, HEAD = 26;
  const cached = flows.spaces.filter(s => s.into === "l1"), shared = flows.spaces.filter(s => s.into === "shared");
  const gap = 14, h = HEAD + flows.spaces.length * ROW + gap;
  // Where the text of the whole chart would be too small, its parts stand below each other.
  const inParts = width < 1050;
  const columns = inParts ? [[0, 80], [260, 121], [561, 121], [862, 121], [1163, 121]] : [[0, 80], [228, 138], [574, 142], [850, 118], [1102, 138]];
  const [kernel, spaces, caches, l2, memory] = columns;
  const plot = svg("svg", { class: "plot memory", role: "img" });
  const box = (column, y, height, name, lines = [], cls = "", title = "") => {
    const middle = column[0] + column[1] / 2, first = y + height / 2 + 5 - 8.5 * lines.length;
    plot.append(svg("rect", { class: "unit " + cls, x: column[0] + 1, y: y + 1, width: column[1] - 2, height: height - 2, rx: 8 }, title && svg("title", null, title)),
      svg("text", { class: "strong", x: middle, y: first, "text-anchor": "middle" }, name),
      ...lines.map((line, at) => svg("text", { x: middle, y: first + 17 * (at + 1), "text-anchor": "middle" }, line)));
  };
  const arrow = (f, left, right, y) => {
    if (!f) return;
    const a = left[0] + left[1] + 4, b = right[0] - 4, from = f.from === left.name ? a : b, to = from === a ? b : a;
    const share = Math.max(0, Math.min(100, f.share || 0));
    const idle = !f.amount;
    const stroke = idle ? "color-mix(in oklab, var(--dim) 60%, var(--card))" : `color-mix(in oklab, var(--c1) ${f.share === undefined ? 0 : 30 + 0.7 * share}%, var(--c9))`;
    const width = idle ? 1.5 : 2 + share / 16, head = 5 + width / 2, back = to > from ? -head * 1.5 : head * 1.5;
    plot.append(svg("line", { x1: from, x2: to + back, y1: y, y2: y, stroke, "stroke-width": width, "stroke-dasharray": f.amount === undefined ? "4 4" : null }),
      svg("path", { fill: stroke, d: `M${to} ${y}L${to + back} ${y - head}L${to + back} ${y + head}Z` }),
      svg("text", { x: (a + b) / 2, y: y - 6 - width / 3, "text-anchor": "middle", class: idle ? null : "ink" },
        inUnit(f) + (f.amount && f.share !== undefined ? ` · ${percent(f.share)}` : "")));
  };
  const link = (links, left, right, y, height) => {
    const [out, back] = [links.find(l => l.from === left.name), links.find(l => l.to === left.name)];
    arrow(out, left, right, out && back ? y + height / 2 - 5 : y + height / 2 + 5);
    arrow(back, left, right, out && back ? y + height / 2 + 22 : y + height / 2 + 5);
  };
  const named = (column, name) => Object.assign([...column], { name });
  const rate = (text, id, show) => { const x = number(launch, id); return `${text} ${x === undefined ? "not collected" : show(x)}`; };
  [["kernel", kernel], ["memory space", spaces], ["on the SM", caches], ["on the GPU", l2], ["memory", memory]].forEach(([text, [x, w]]) =>
    plot.append(svg("text", { x: x + w / 2, y: 14, "text-anchor": "middle" }, text)));

  box(kernel, HEAD, h - HEAD, "Kernel");
  flows.spaces.forEach((space, at) => {
    const y = HEAD + at * ROW + (space.into === "shared" ? gap : 0);
    box(spaces, y + 5, ROW - 10, space.name, [], "space", space.title);
    link(space.links.filter(l => l.unit === "instructions"), named(kernel, "Kernel"), named(spaces, space.name), y, ROW);
    link(space.links.filter(l => l.unit !== "instructions"), named(spaces, space.name), named(caches, space.into === "l1" ? "L1/TEX cache" : "Shared memory"), y, ROW);
  });
  const l1Height = cached.length * ROW;
  box(caches, HEAD, l1Height, "L1/TEX cache", [rate("hit rate", "l1tex__t_sector_hit_rate.pct", x => digits(x) + " %")]);
  box(caches, HEAD + l1Height + gap, shared.length * ROW, "Shared memory",
    [rate("conflicts", "l1tex__data_bank_conflicts_pipe_lsu_mem_shared.sum", x => amountOf(x))]);
  box(l2, HEAD, h - HEAD, "L2 cache", [rate("hit rate", "lts__t_sector_hit_rate.pct", x => digits(x) + " %")]);
  link(flows.cache, named(caches, "L1/TEX cache"), named(l2, "L2 cache"), HEAD, l1Height);
  const each = (h - HEAD + 10) / flows.memories.length;
  flows.memories.forEach((m, at) => {
    const y = HEAD + at * each;
    const reached = m.name === "Device memory" && number(launch, "dram__bytes.sum.per_second");
    box(memory, y, each - 10, m.name, reached ? [bytes(reached) + "/s"] : []);
    link(m.links, named(l2, "L2 cache"), named(memory, m.name), y, each - 10);
  });
  plot.dataset.drawn = flows.all.filter(f => f.amount !== undefined).length;

  const notes = [];
  if (flows.unused.length) notes.push(`Not used by this launch: ${flows.unused.join(", ")}.`);
  if (flows.unknown.length) notes.push(`Not in the report: ${flows.unknown.join(", ")}.`);
  if (flows.all.some(f => f.amount === undefined)) notes.push("A dashed arrow is absent from the report; it is not 0.");
  const part = ([left], [right, size], at) => {
    const drawn = plot.cloneNode(true);
    drawn.setAttribute("viewBox", `${left} 0 ${right + size - left} ${h + 2}`);
    drawn.setAttribute("aria-label", `Memory chart of ${short(launch.kernel)}${inParts ? `, part ${at + 1} of 4` : ""}; the table below has its numbers`);
    return drawn;
  };
  const parts = inParts ? columns.slice(1).map((column, at) => part(columns[at], column, at)) : [part(kernel, memory)];
  return [el("div", { class: inParts && "parts" }, parts),
    notes.length ? el("p", { class: "note" }, notes.join(" ")) : null,
    el("details", null, el("summary", null, "Every arrow, with its metrics"), table([
      { label: "from", cell: f => f.from }, { label: "to", cell: f => f.to },
      { label: "amount", num: true, cell: f => f.amount === undefined ? "not collected" : count(f.amount), key: f => f.amount },
      { label: "unit", cell: f => f.unit },
      { label: "of the peak", num: true, cell: f => f.share === undefined ? "" : percent(f.share), key: f => f.share },
      { label: "metrics", cls: "name", cell: f => el("code", null, f.ids.join(" + ") + (f.scale ? ` × ${f.scale}` : "")) },
    ], flows.all, { label: "arrows of the memory chart" }))].filter(Boolean);
}
