// Sections with lists: regions, operators, cases, metrics, code, sanitizer results, the run itself.

function regions() {
  const list = page.regions;
  const folded = page.library_regions;
  const inLibraries = folded && el("p", { class: "note" }, (list.length ? "Ranges of libraries are not in the table: " : "The program opened no range of its own. Ranges of libraries: ")
    + folded.label.replace(/^\(|\)$/g, "") + (folded.gpu_ns ? `, GPU ${duration(folded.gpu_ns)}` : "") + ". The JSON has them.");
  if (!list.length && folded) return void section("regions", "Regions", null, inLibraries);
  if (!list.length) return absent.push(["Regions", "no NVTX range was recorded"]);
  const most = Math.max(1, ...list.map(r => r.gpu_ns || 0));
  section("regions", "Regions", "NVTX ranges as a tree, most GPU time first. GPU time is the time of work" + (page.copies.length ? " (kernels and copies)" : "") + " launched inside the range and its inner ranges; host time is not GPU time." + (page.summed_over ? ` Times are summed over ${page.summed_over}.` : ""), inLibraries, table([
    { label: "region", cls: "name", cell: r => {
      const node = el("div", { class: "mono", title: r.path.join(" › ") }, breakable(rangeName(r.path[r.path.length - 1])));
      node.style.paddingLeft = (r.path.length - 1) * 22 + "px";
      return node;
    } },
    { label: "times", num: true, cell: r => r.instances === undefined ? "" : count(r.instances), key: r => r.instances },
    { label: "host", num: true, cell: r => r.host_ns === undefined ? "" : duration(r.host_ns), key: r => r.host_ns },
    { label: "GPU", num: true, cls: "hot", cell: r => r.gpu_ns === undefined ? "" : [bar(null, r.gpu_ns / most), el("span", null, duration(r.gpu_ns) + (r.inferred_gpu_ns ? `, ${duration(r.inferred_gpu_ns)} inferred` : ""))], key: r => r.gpu_ns },
    { label: "GPU span", num: true, cell: r => r.gpu_span_ns ? duration(r.gpu_span_ns) : "", key: r => r.gpu_span_ns },
    { label: "launches", num: true, cell: r => r.kernels.length ? count(sum(r.kernels.map(k => k.launches))) : "", key: r => sum(r.kernels.map(k => k.launches)) },
    { label: "kernels", cell: r => {
      const [first, ...rest] = r.kernels;
      if (!first) return "";
      const text = k => `${short(k.kernel)} ×${count(k.launches)} ${duration(k.total_ns)}`;
      return rest.length ? el("details", null, el("summary", null, text(first) + `, ${rest.length} more`), rest.map(k => el("div", { class: "dim" }, text(k)))) : el("span", { class: "dim" }, text(first));
    } },
  ], list, { label: "regions", stack: true, search: list.length > 8 ? r => r.path.join("::") + " " + r.kernels.map(k => k.kernel).join(" ") : null }));
}

/** `net.py(9): forward` without the folders of its file. Code outside of functions has no line. */
const shortPlace = text => text.replace(/^[^(]*\//, "").replace(/(\(\d+\))?: <module>$/, "");
/** The places of an operator; the tooltip has their full paths. */
const places = list => (list || []).flatMap((p, at) => [at ? "; " : null, el("span", { title: p.function }, breakable(shortPlace(p.function)))]);

function operators() {
  if (!page.operators.length) return;
  section("operators", "Operators", "The calls of the framework, and the kernels that they launched.", table([
    { label: "operator", cls: "name", cell: o => el("span", { class: "mono" }, breakable(o.name)), key: o => o.name },
    { label: "calls", num: true, cell: o => count(o.calls), key: o => o.calls },
    { label: "host", num: true, cell: o => duration(o.host_ns), key: o => o.host_ns },
    { label: "own host", num: true, cell: o => duration(o.host_self_ns), key: o => o.host_self_ns },
    { label: "GPU", num: true, cell: o => o.gpu_ns === undefined ? "" : duration(o.gpu_ns), key: o => o.gpu_ns },
    { label: "own GPU", num: true, cell: o => o.gpu_self_ns === undefined ? "" : duration(o.gpu_self_ns), key: o => o.gpu_self_ns },
    { label: "rate", num: true, cell: o => o.flops && o.gpu_self_ns ? rate(1e9 * o.flops / o.gpu_self_ns, "FLOP/s") : "", key: o => o.flops && o.gpu_self_ns ? o.flops / o.gpu_self_ns : undefined },
    { label: "called in", cls: "detail", cell: o => (o.places || []).length ? places(o.places) : "" },
    { label: "shapes", cls: "detail", cell: o => o.shapes },
  ], page.operators, { label: "operators", search: o => o.name, stack: true }));
}

/** The stages of a model: their time, rate and MFU. */
function stages() {
  const list = page.stages || [];
  if (!list.length) return;
  const peak = (list.find(s => s.utilization) || {}).utilization;
  const notes = ["gpu: time in which the GPU worked; host: time from entry to exit."];
  if (list.some(s => s.plain_ns)) notes.push("“unprofiled”: time of a step without torch's profiler, by which rate and MFU are.");
  const clocks = list.filter(s => s.utilization).map(s => s.clock);
  const busy = clocks.includes("gpu");
  const mfu = busy && !clocks.includes("host") ? "MFU while busy" : "MFU";
  if (peak) notes.push(`${mfu} is the share of ${rate(peak.peak, "FLOP/s")}: ${peak.label} (${peak.source}).`);
  if (busy) notes.push("With the clock gpu, rate and MFU leave out the time in which the GPU waits" + (list.some(s => s.gpu_span_ns) ? ", which “GPU span” has." : "."));
  section("stages", "Stages", notes.join(" "), table([
    { label: "case", cell: s => list.some(other => other.case !== s.case) ? s.case : "" },
    { label: "stage", cls: "name", cell: s => el("code", null, s.region), key: s => s.region },
    { label: "count", num: true, cell: s => count(s.instances), key: s => s.instances },
    { label: "mean", num: true, cell: s => duration(s.mean_ns), key: s => s.mean_ns },
    ...(list.some(s => s.plain_ns) ? [{ label: "unprofiled", num: true, cell: s => s.plain_ns ? duration(s.plain_ns) : "", key: s => s.plain_ns || 0 }] : []),
    { label: "clock", cell: s => s.clock },
    { label: "GPU span", num: true, cell: s => s.gpu_span_ns ? duration(s.gpu_span_ns) : "", key: s => s.gpu_span_ns },
    { label: "rate", num: true, cell: s => s.flops_per_s ? rate(s.flops_per_s, "FLOP/s") : "", key: s => s.flops_per_s },
    { label: mfu, num: true, cell: s => s.utilization ? percent(s.utilization.percent) : "", key: s => (s.utilization || {}).percent },
  ], list, { label: "stages" }));
}

function cases() {
  if (page.cases.length < 2) return;
  const mean = page.geometric_mean;
  const share = (c, side) => ((page.speed_of_light || []).find(s => s.case === c.name) || {})[side];
  const told = u => u ? `${percent(u.percent)} of ${u.label}` : "";
  const of_all = mean && mean.ci95_ns ? ` (${mean.ci95_ns.map(duration).join(" – ")})` : "";
  const on_cpu = page.cases.some(c => c.timing && c.timing.clock === "cpu_reference");
  const timed = on_cpu ? "No GPU was measured: the times are those of the reference on the CPU, not the kernel's."
    : page.cases.some(c => c.timing) ? "Each timed without a tool." : "Nothing was timed.";
  section("cases", "Cases", timed + (mean ? ` Geometric mean ${duration(mean.median_ns)}${of_all}.` : ""), table([
    { label: "case", cell: c => c.name, key: c => c.name },
    { label: "median", num: true, cell: c => c.timing ? duration(c.timing.median_ns) : "", key: c => c.timing && c.timing.median_ns },
    { label: "95 % interval", num: true, cell: c => c.timing ? c.timing.ci95_ns.map(duration).join(" – ") : "" },
    { label: "samples", num: true, cell: c => c.timing ? count(c.timing.samples) : "" },
    { label: "bandwidth", num: true, cell: c => c.timing && c.timing.bytes_per_s > 0 ? rate(c.timing.bytes_per_s, "B/s") : "", key: c => c.timing && c.timing.bytes_per_s },
    { label: "rate", num: true, cell: c => c.timing && c.timing.flops_per_s > 0 ? rate(c.timing.flops_per_s, "FLOP/s") : "", key: c => c.timing && c.timing.flops_per_s },
    { label: "share of memory peak", num: true, cell: c => told(share(c, "bytes")), key: c => (share(c, "bytes") || {}).percent },
    { label: "share of compute peak", num: true, cell: c => told(share(c, "flops")), key: c => (share(c, "flops") || {}).percent },
    { label: "results", cell: c => c.correctness ? c.correctness.verdict : "" },
  ], page.cases, { label: "cases" }));
}

function metrics() {
  if (!page.metrics.ids.length) return absent.push(["Metrics", "no counters were collected on this rung"]);
  const cited = new Set([...page.findings.flatMap(f => f.evidence), ...page.launches.flatMap(l => l.classification ? l.classification.verdicts.flatMap(v => v.evidence) : [])].map(e => e.metric));
  const box = el("div");
  section("metrics", "Metrics", "NVIDIA's names, in base units. Metrics that a verdict uses are marked and come first.", box);
  onLaunch(launch => {
    const row = page.metrics.rows[launch.id];
    if (!row) return box.replaceChildren(el("p", { class: "dim" }, "The metrics of this launch were left out to keep the page small; the CSV and JSON reports have them."));
    const list = page.metrics.ids.map((id, at) => ({ id, value: row[at], unit: page.metrics.units[at] })).filter(m => m.value !== null && m.value !== undefined);
    list.sort((a, b) => cited.has(b.id) - cited.has(a.id));
    box.replaceChildren(table([
      { label: "metric", cls: "name", cell: m => [el("code", null, m.id), cited.has(m.id) && [" ", el("span", { class: "badge warn" }, "evidence")]], key: m => m.id },
      { label: "value", num: true, cell: m => typeof m.value === "number" ? (Number.isInteger(m.value) ? count(m.value) : String(Number(m.value.toPrecision(7)))) : m.value, key: m => m.value },
      { label: "unit", cell: m => m.unit || "" },
    ], list, { label: "metrics", search: m => m.id + " " + m.unit, limit: 60 }));
  });
}

function toolRules() {
  if (!page.launches.some(l => l.rules.length)) return;
  const box = el("div");
  section("rules", "ncu's rules", "Messages of the tool's own rules; its estimates are not measurements.", box);
  onLaunch(launch => box.replaceChildren(launch.rules.length ? el("ul", { class: "plain" }, launch.rules.map(r => el("li", null,
    el("b", null, r.title || r.rule), r.speedup_percent ? el("span", { class: "dim" }, ` (estimate: ${percent(r.speedup_percent)})`) : null, " " + r.text))) : el("p", { class: "dim" }, "No rule has a message for this launch.")));
}

function code() {
  if (!page.code.length) return;
  section("code", "Compiled code", null, table([
    { label: "kernel", cls: "name", cell: k => kernelName(k.name || k.symbol), key: k => k.name || k.symbol },
    { label: "arch", cell: k => k.arch }, { label: "registers", num: true, cell: k => k.registers, key: k => k.registers },
    { label: "stack", num: true, cell: k => k.stack_bytes === undefined ? "?" : bytes(k.stack_bytes), key: k => k.stack_bytes },
    { label: "spills", num: true, cell: k => k.spill_store_bytes === undefined ? "" : `${k.spill_store_bytes}/${k.spill_load_bytes} B`, key: k => k.spill_store_bytes },
    { label: "shared", num: true, cell: k => bytes(k.shared_bytes), key: k => k.shared_bytes },
    { label: "size", num: true, cell: k => bytes(k.code_bytes), key: k => k.code_bytes },
    { label: "compiler", cell: k => k.compiler || "" },
  ], page.code, { label: "compiled kernels" }));
}

function sanitizer() {
  if (!page.sanitizer.length) return;
  const told = [page.checks_covered, page.checks_not_run].filter(Boolean).join(" ");
  section("sanitizer", "Sanitizer", told ? said(told) : null, page.sanitizer.map(r => [
    el("h3", null, r.tool, r.rank === undefined ? "" : ` of rank ${r.rank}`, " ", el("span", { class: "badge " + ({ clean: "good", found: "bad" }[r.verdict] || "warn") }, r.verdict === "found" ? plural(r.causes.length, "cause") : r.verdict), r.errors === undefined ? null : el("span", { class: "dim" }, " " + plural(r.errors, "error"))),
    r.note ? el("p", { class: "note" }, r.note) : null,
    el("ul", { class: "plain" }, r.causes.map(c => el("li", null, c.file ? el("code", null, c.file + (c.line ? ":" + c.line : "") + " ") : null, c.text,
      c.kernel ? [" in ", kernelName(c.kernel)] : null, c.count > 1 ? ` (${count(c.count)} times)` : "", c.details.map(d => el("div", { class: "dim" }, d))))),
  ]));
}

function about() {
  const run = page.run;
  const facts = [["Run", run.id], ["Started", run.started], ["Where", run.remote], ["GPU", page.device], ["Model", page.model], ["Mode", run.mode], ["Rung", page.rung !== run.mode && page.rung],
    ["Command", run.command.join(" ")], ["Compiler", page.kernel.compiler], ["Source", page.kernel.source], ["rgpu", run.rgpu]].filter(([, v]) => v);
  const node = section("about", "About", null, el("dl", { class: "facts" }, facts.map(([k, v]) => [el("dt", null, k), el("dd", null, v)])));
  const gone = [...absent.map(([what, why]) => `${what}: ${why}`), ...page.gaps, ...page.left_out];
  if (gone.length) node.append(el("h3", null, "Not here, and why"), el("ul", { class: "plain" }, gone.map(text => el("li", null, saidShort(text)))));
}
