// The headline: what limits the performance, the times, what to try, and which rung was reached.

function number(launch, ...ids) {
  for (const id of ids) {
    const at = page.metrics.ids.indexOf(id);
    const row = page.metrics.rows[launch.id];
    if (at >= 0 && row && typeof row[at] === "number") return row[at];
  }
  return undefined;
}

function tiles() {
  const list = [];
  const time = page.timing;
  if (time) {
    const half = 50 * (time.ci95_ns[1] - time.ci95_ns[0]) / time.median_ns;
    const cpu = time.clock === "cpu_reference";
    list.push(tile(cpu ? "The reference on the CPU takes" : "Time without a tool", duration(time.median_ns),
      `± ${percent(half)}, median of ${count(time.samples)}${cpu ? "; no GPU was measured" : ""}`));
    if (time.graph) {
      const graph = time.graph;
      list.push(tile("In a CUDA graph", duration(graph.median_ns), `± ${percent(50 * (graph.ci95_ns[1] - graph.ci95_ns[0]) / graph.median_ns)}, median of ${count(graph.samples)}`));
    }
    if (time.bytes_per_s > 0) list.push(tile("Bandwidth", rate(time.bytes_per_s, "B/s"), "from [work]"));
    if (time.flops_per_s > 0) list.push(tile("Rate", rate(time.flops_per_s, "FLOP/s"), "from [work]"));
  }
  for (const sol of (page.speed_of_light || []).slice(0, 1)) {
    list.push(tile("Of the speed of light", percent(sol.percent), sol.bound + " side", sol.percent / 100));
    if (sol.flops) list.push(tile("MFU", percent(sol.flops.percent), `of ${sol.flops.label} (${sol.flops.source})`, sol.flops.percent / 100));
  }
  for (const share of (page.bound || []).slice(0, 1)) {
    const clock = share.specified_mhz ? `the specified ${count(Math.round(share.specified_mhz))} MHz` : "the specified clock";
    const other = share.at_measured_clock;
    list.push(tile("Of the bound", percent(share.percent), `what ${share.unit} can do at ${clock}`
      + (other ? `; ${percent(other.percent)} at the measured ${count(Math.round(other.mhz))} MHz` : ""), share.percent / 100));
  }
  for (const use of page.memory.slice(0, 4)) {
    const whole = use.total_bytes;
    list.push(tile("Peak memory" + (use.device || page.memory.length > 1 ? ` of GPU ${use.device}` : ""), bytes(use.peak_allocated_bytes),
      "in tensors" + (use.peak_reserved_bytes ? `, ${bytes(use.peak_reserved_bytes)} held by the allocator` : "") + (whole ? `, of ${bytes(whole)}` : "")
        + (use.scope === "trace" ? " (in the trace)" : ""), whole ? Math.max(use.peak_reserved_bytes, use.peak_allocated_bytes) / whole : undefined));
  }
  if (page.busy) {
    list.push(tile(page.summed_over ? "GPUs busy" : "GPU busy", page.busy.percent, page.busy.note, page.busy.share));
  }
  const launch = current();
  if (launch && launch.detailed) {
    if (launch.duration_ns !== undefined) list.push(tile(page.launches.length > 1 ? `Launch #${launch.id} ${short(launch.kernel)}` : "This launch", duration(launch.duration_ns), "under the tool's clocks"));
    for (const main of page.main_metrics) {
      const x = number(launch, ...main.ids);
      if (x !== undefined) list.push(tile(main.name, percent(x), main.of, x / 100));
    }
  }
  if (page.correctness) {
    const c = page.correctness;
    list.push(tile("Results", c.verdict, c.verdict === "unchecked" ? c.note : `${plural(c.checked, "value")} compared`));
  }
  return list;
}

function summary() {
  const head = page.headline;
  const box = el("div", { class: "tiles" });
  const verdicts = el("div", { class: "badges" });
  const node = section("summary", "Summary", null, el("p", { class: "title" }, head.title), el("p", { class: "lead" }, said(head.text)),
    page.model && el("p", { class: "note" }, "Model: " + page.model), verdicts, box);
  node.querySelector("h2").classList.add("skip");
  onLaunch(launch => {
    box.replaceChildren(...tiles());
    // Below a headline about the whole program, verdicts of one launch would mislead.
    const list = head.launch !== undefined && launch && launch.classification ? launch.classification.verdicts : [];
    verdicts.replaceChildren(...list.map(v => el("span", { class: "badge " + (v.verdict === launch.classification.primary ? "warn" : ""),
      title: `score ${v.score}, confidence ${v.confidence}` }, words(v.verdict))));
  });
  for (const warning of page.warnings) {
    node.append(el("p", { class: "note" }, el("span", { class: "badge warn" }, "warning"), " ", said(warning.text)));
  }
}

function evidence(list) {
  return table([
    { label: "metric", cell: e => el("code", null, e.metric), cls: "name" },
    { label: "value", num: true, cell: e => measured(e.value, e.unit) },
    { label: "threshold", num: true, cell: e => e.threshold === undefined ? "" : measured(e.threshold, e.unit.startsWith("%") ? "%" : e.unit) },
    { label: "threshold from", cell: e => e.source || "" },
  ], list);
}

function covered(list) {
  return table([
    { label: "kernel", cell: c => kernelName(c.kernel), cls: "name" },
    { label: "launches", num: true, cell: c => count(c.launches) },
    { label: "GPU time", num: true, cell: c => duration(c.total_ns) },
    { label: "could give back", num: true, cell: c => duration(c.stake_ns) },
    { label: "its longest", cls: "text", cell: c => said(c.text) },
  ], list, { stack: true });
}

/** ` (784 launches, 1.80 ms)` of a finding about one kernel. */
const launchesOf = c => c && c.launches > 1 ? ` (${plural(c.launches, "launch")}, ${duration(c.total_ns)})` : null;

/** What limits each kernel with much of the GPU time, or why that is not known. */
function kernelVerdicts() {
  const list = page.kernel_verdicts || [];
  if (page.kernels.length < 2 || !list.length) return;
  const repeated = v => { const before = list[list.indexOf(v) - 1]; return before && before.text === v.text; };
  section("verdicts", "What limits the kernels", ["The kernels with at least 5 % of the GPU time, a compiler's tuning aside, longest first.", ...(page.profiled || [])].join(" "),
    table([
      { label: "kernel", cell: v => kernelName(v.kernel), cls: "name" },
      { label: "GPU time", num: true, cell: v => percent(v.percent) },
      { label: "launches", num: true, cell: v => count(v.launches) },
      { label: "verdict", cell: v => v.verdict ? el("span", { class: "badge warn" }, words(v.verdict)) : "none" },
      { label: "because", cls: "text", cell: v => repeated(v) ? el("span", { class: "dim" }, "as above") : said(v.text) },
    ], list, { stack: true }));
}

/** Where start-up is in the order of the findings, and why. */
function startUpOrder() {
  const list = page.findings.filter(f => f.category !== "correctness");
  const at = list.findIndex(f => f.id === "gpu_waits_for_first_launches");
  if (at < 0 || list.length < 2) return "";
  return at === 0 ? ". Start-up is first, because what repeats has next to nothing to give back"
    : ", but start-up, which happens once, comes after what repeats";
}

function findings() {
  if (!page.findings.length) return absent.push(["What to try", "no rule found anything to act on"]);
  const several = new Set(page.findings.map(f => f.kernel || f.launch)).size > 1;
  section("findings", "What to try", `Most time at stake first${startUpOrder()}. Each finding has the numbers it is based on.`,
    el("ol", { class: "findings" }, page.findings.flatMap((f, at) => {
      if (page.finding_texts[at].little) return [];
      const launch = page.launches[f.launch];
      const kernel = f.kernel || (launch && launch.kernel);
      const texts = page.finding_texts[at];
      const covers = f.covers || [];
      return el("li", null, el("span", { class: "n", "aria-hidden": "true" }, at + 1),
        el("div", { class: "what" }, said(texts.title)),
        el("div", { class: "note" }, el("span", { class: "badge" }, words(f.category)), several && kernel && covers.length < 2 ? [" ", kernelName(kernel), launchesOf(covers[0]), texts.gain && ","] : null, texts.gain && [" ", said(texts.gain)]),
        texts.places && texts.places.length ? el("ul", { class: "places" }, texts.places.map(p => el("li", null, said(p)))) : null,
        texts.code ? el("div", { class: "note" }, "at ", said(texts.code)) : null,
        el("div", { class: "hint" }, "→ ", said(texts.hint)),
        covers.length > 1 ? el("details", null, el("summary", null, plural(covers.length, "kernel")), covered(covers)) : null,
        f.evidence.length ? el("details", null, el("summary", null, "Evidence"), evidence(f.evidence)) : null);
    })), littleFindings());
}

/** The findings about next to nothing of a step, as a list. */
function littleFindings() {
  const list = page.finding_texts.filter(texts => texts.little);
  return list.length ? el("details", { class: "little" }, el("summary", null, plural(list.length, "finding") + " below 1 % of a step"),
    el("ul", null, list.map(texts => el("li", null, said(texts.title), texts.gain && ["; ", said(texts.gain)], el("div", { class: "hint" }, "→ ", said(texts.hint)))))) : null;
}

function ladder() {
  if (!page.ladder.length) return absent.push(["Ladder", "a report file has no record of rungs"]);
  section("ladder", "Ladder", `What was tried, in order; the profile came from rung “${page.rung}”.`,
    el("ol", { class: "ladder" }, page.ladder.map(r => el("li", { class: r.ok ? "ok" : null },
      el("span", { class: "dot", "aria-hidden": "true" }, r.ok ? "✓" : "✕"),
      el("div", null, el("b", null, r.rung), " ", el("span", { class: "dim" }, r.step), " ",
        el("span", { class: "badge " + (r.ok ? "good" : "bad") }, r.ok ? "worked" : words(r.code || "given up")),
        r.message ? el("p", null, said(r.message)) : null)))));
}
