// How the samples of each time are spread, with its median and interval.

function samples() {
  const list = [];
  for (const c of page.cases.length ? page.cases : [{ name: "", timing: page.timing }]) {
    const time = c.timing;
    if (time && time.histogram) list.push({ name: c.name, label: clocks[time.clock] || words(time.clock), time });
    if (time && time.graph && time.graph.histogram) list.push({ name: c.name, label: "in a CUDA graph", time: time.graph });
  }
  if (!list.length) return;
  section("samples", "Samples", "Each bar counts samples. The line is the median, and the band its 95 % interval.",
    el("div", { class: "samples" }, list.slice(0, 40).map(distribution)),
    list.length > 40 && el("p", { class: "dim" }, `${list.length - 40} more are in profile.json.`));
}

const clocks = { cuda_events: "CUDA events", host_clock: "host clock", cpu_reference: "the reference on the CPU" };

function distribution({ name, label, time }) {
  const { low_ns, high_ns, counts, below, above } = time.histogram;
  const width = 420, height = 96, floor = 74, most = Math.max(1, ...counts), step = width / counts.length;
  const x = ns => width * Math.max(0, Math.min(1, (ns - low_ns) / (high_ns - low_ns)));
  const [from, to] = time.ci95_ns.map(x), middle = x(time.median_ns);
  const outside = [[below, "below"], [above, "above"]].filter(([n]) => n).map(([n, side]) => `${count(n)} ${side}`);
  const ticks = roundTicks(low_ns, high_ns, 5);
  return el("figure", null,
    el("figcaption", null, el("b", null, name), name && " ", el("span", { class: "dim" }, `${label}: ${duration(time.median_ns)}, ${plural(time.samples, "sample")}${outside.length ? ` (${outside.join(", ")} the bins)` : ""}`)),
    svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "plot", role: "img", "aria-label": `Distribution of the samples of ${name || "the kernel"}, ${label}` },
      svg("rect", { class: "band", x: from.toFixed(1), y: 4, width: Math.max(1, to - from).toFixed(1), height: floor - 4 }),
      counts.map((n, at) => n > 0 && svg("rect", { class: "bin", x: (at * step + 0.5).toFixed(1), width: (step - 1).toFixed(1),
        y: (floor - 66 * n / most).toFixed(1), height: (66 * n / most).toFixed(1) }, svg("title", null, `${count(n)} from ${axis(low_ns + at * (high_ns - low_ns) / counts.length, (high_ns - low_ns) / 400)}`))),
      svg("line", { class: "median", x1: middle.toFixed(1), x2: middle.toFixed(1), y1: 2, y2: floor }),
      svg("line", { class: "axis", x1: 0, x2: width, y1: floor, y2: floor }),
      ticks.list.map(ns => svg("text", { x: Math.max(18, Math.min(width - 18, x(ns))).toFixed(1), y: floor + 16, "text-anchor": "middle" }, axis(ns, ticks.gap)))));
}
