// The comparison of two sides.

const amount = x => Math.abs(x) >= 1000 ? count(Math.round(x)) : digits(x);
const speedup = t => t.speedup.toFixed(3) + " ×" + (t.ci95 ? ` (95 % interval ${t.ci95.map(x => x.toFixed(3)).join(" to ")})` : "");
/** A speedup, followed by how its times were measured. */
const timed = t => `speedup ${speedup(t)}` + (t.source === "abba" ? `; timed calls interleaved, ${plural(t.rounds || 0, "round")}` : t.source === "alternated_processes" ? "; each side timed in two processes, in the order a b b a" : t.source === "launches" ? "; from launches under the tool" : "; each side timed in its own run");

function comparison() {
  const c = page.comparison;
  if (!c) return;
  const mood = { FASTER: "good", SLOWER: "bad", SAME: "", AMBIGUOUS: "warn" }[c.verdict];
  const change = m => el("span", { class: { better: "up", worse: "down" }[m.change] }, m.a ? (m.b >= m.a ? "+" : "−") + percent(Math.abs(100 * (m.b - m.a) / m.a)) : "");
  const shape = g => !g.grid ? "" : `${g.grid.join("·")} × ${g.block.join("·")}`;
  section("compare", "Comparison", `${c.a.name} is the base, ${c.b.name} is compared with it; above 1 means faster.`,
    el("p", null, el("span", { class: "badge " + mood }, c.verdict), " ", said(c.summary)),
    c.time && c.cases.length < 2 ? el("p", { id: "compare-time" }, `${duration(c.time.a.median_ns)} → ${duration(c.time.b.median_ns)}, ${timed(c.time)}`) : null,
    c.cases.length > 1 ? table([
      { label: "case", cell: k => k.name, key: k => k.name },
      { label: "before", num: true, cell: k => duration(k.time.a.median_ns), key: k => k.time.a.median_ns },
      { label: "after", num: true, cell: k => duration(k.time.b.median_ns), key: k => k.time.b.median_ns },
      { label: "speedup", num: true, cell: k => speedup(k.time), key: k => k.time.speedup },
      { label: "verdict", cell: k => k.time.verdict },
    ], c.cases, { label: "compared cases" }) : null,
    c.differences.length ? [el("h3", null, "Unlike in"), el("ul", { class: "plain" }, c.differences.map(d => el("li", null, `${words(d.what)}: ${d.a} against ${d.b}`)))] : null,
    c.kernels.length ? [el("h3", null, "Kernels under the tool"), table([
      { label: "kernel", cls: "name", cell: k => kernelName(k.kernel), key: k => k.kernel },
      { label: "before", num: true, cell: k => k.time ? duration(k.time.a.median_ns) : "", key: k => k.time && k.time.a.median_ns },
      { label: "after", num: true, cell: k => k.time ? duration(k.time.b.median_ns) : "", key: k => k.time && k.time.b.median_ns },
      { label: "speedup", num: true, cell: k => k.time ? k.time.speedup.toFixed(2) + " ×" : "", key: k => k.time && k.time.speedup },
      { label: "launches", num: true, cell: k => k.launches[0] === k.launches[1] ? count(k.launches[0]) : k.launches.map(count).join(" and ") },
      { label: "verdict", cell: k => !k.time ? "" : Math.min(...k.launches) < 5 ? el("span", { class: "dim" }, "too few launches") : k.time.verdict },
      { label: "bound by", cell: k => k.bound ? (k.bound[0] === k.bound[1] ? words(k.bound[0]) : k.bound.map(words).join(" → ")) : "" },
      { label: "geometry", cell: k => shape(k.geometry_a) === shape(k.geometry_b) ? shape(k.geometry_a) : shape(k.geometry_a) + " → " + shape(k.geometry_b) },
    ], c.kernels, { label: "compared kernels" })] : null,
    c.kernels.slice(0, 8).map(k => k.metrics.length + k.resources.length ? [el("h3", null, kernelName(k.kernel)), table([
      { label: "metric", cls: "name", cell: m => el("span", { title: m.metric }, m.label) },
      { label: "before", num: true, cell: m => amount(m.a) + (m.unit ? " " + m.unit : "") },
      { label: "after", num: true, cell: m => amount(m.b) + (m.unit ? " " + m.unit : "") },
      { label: "change", num: true, cell: change },
    ], [...k.metrics, ...k.resources], { label: "changed metrics", limit: 12 })] : null),
    [["Only in the base", c.only_a], ["Only on the other side", c.only_b]].map(([title, list]) => list.length ? [el("h3", null, title), el("ul", { class: "plain" }, list.map(k => el("li", null, kernelName(k.kernel), ` ${shape(k.geometry)}, ${plural(k.launches, "launch")}`)))] : null),
    c.parts.some(p => !p.there) ? [el("h3", null, "Missing parts"), el("ul", { class: "plain" }, c.parts.filter(p => !p.there).map(p => el("li", null, `${p.part}: ${p.note}`)))] : null);
}
