// The roofline: rate against arithmetic intensity, both logarithmic, under labelled ceilings.

function roofline() {
  const drawable = l => l.roofline.some(r => r.unit.endsWith("OP/s")) && l.roofline.some(r => r.unit === "byte/s" && r.peak > 0);
  if (!page.launches.some(drawable)) {
    return absent.push(["Roofline", "the report has no roofline ceilings (ncu's sections SpeedOfLight_*RooflineChart)"]);
  }
  const box = el("div");
  section("roofline", "Roofline", null, box);
  onLaunchAndWidth(box, (launch, width) => box.replaceChildren(...(drawable(launch) ? roofs(launch, width) : [el("p", { class: "dim" }, "No ceilings were collected for this launch.")])));
}

/** Each ceiling once, since charts repeat them. */
function ceilings(launch, test) {
  const seen = new Map();
  for (const roof of launch.roofline.filter(test)) {
    const known = seen.get(roof.label);
    if (!known || (roof.achieved || 0) > (known.achieved || 0)) seen.set(roof.label, roof);
  }
  return [...seen.values()];
}

function roofs(launch, w) {
  const memory = ceilings(launch, r => r.unit === "byte/s" && r.peak > 0).sort((a, b) => a.peak - b.peak);
  const compute = ceilings(launch, r => r.unit === "FLOP/s" && r.peak > 0).sort((a, b) => b.peak - a.peak);
  const reached = compute.find(r => r.label === launch.compute_roof) || null;
  // Many tensor ceilings differ only in name. Keep those in use, the plain ones, and the highest of
  // the rest. The ceiling of a type holds the same operations as that of the instructions that ran.
  const instruction = r => /mma\b/.test(r.label);
  const tensor = compute.filter(r => /tensor/i.test(r.label) && !(r.achieved > 0));
  const repeated = r => /tensor/i.test(r.label) && r.achieved > 0 && reached && instruction(reached) && !instruction(r);
  const lines = compute.filter(r => !repeated(r) && (!tensor.includes(r) || r === tensor[0]));
  const all = reached ? memory.filter(m => m.achieved > 0).map(m => ({ memory: m, x: reached.achieved / m.achieved, y: reached.achieved })) : [];
  const every = el("details", null, el("summary", null, "Every ceiling, with its source"), ceilingTable(launch.roofline));
  const apart = tensorWork(launch, reached);
  if (!all.length) {
    const why = apart || (compute.some(r => r.achieved !== undefined) ? "The launch did no counted floating-point work, so no point can be drawn."
      : "The report does not count floating-point operations (ncu's sections SpeedOfLight_*RooflineChart do), so no point can be drawn.");
    return [el("p", { class: "note" }, said(why)), every];
  }
  const ridges = lines.flatMap(c => memory.map(m => c.peak / m.peak));
  // Loads that bypass a level's counters (TMA: L1) leave it with next to no traffic.
  const limit = 100 * Math.max(...ridges, 1);
  const points = all.filter(p => p.x <= limit);
  const xs = [...points.map(p => p.x), ...ridges, 0.1, 100];
  const ys = [...points.map(p => p.y), ...lines.map(l => l.peak)];
  const [x0, x1] = [Math.floor(Math.log10(Math.min(...xs))), Math.ceil(Math.log10(Math.max(...xs)) + 0.2)];
  const low = Math.max(Math.log10(Math.max(...ys)) - 8, Math.log10(Math.min(...ys)) - 1.2);
  const [y0, y1] = [Math.floor(low), Math.ceil(Math.log10(Math.max(...ys)) + 0.1)];
  const named = c => `${c.label} ${rate(c.peak, c.unit)}`;
  // On a narrow screen there is no room for the names of ceilings: they have numbers, and the legend has the names.
  const narrow = w < 640;
  // A letter is 7 pixels wide at most.
  const right = narrow ? 24 : Math.min(420, 24 + 7 * Math.max(...lines.map(c => named(c).length), 20));
  const [h, left, top, bottom] = narrow ? [380, 56, 26, 44] : [470, 92, 14, 44];
  const X = v => left + (Math.log10(v) - x0) / (x1 - x0) * (w - left - right);
  const Y = v => top + (y1 - Math.log10(v)) / (y1 - y0) * (h - top - bottom);
  const plot = svg("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `Roofline of ${launch.kernel}; the table below has its numbers` });
  const nth = Math.ceil(48 * (x1 - x0) / (w - left - right));
  for (let e = x0; e <= x1; e++) {
    plot.append(svg("line", { class: "grid", x1: X(10 ** e), x2: X(10 ** e), y1: top, y2: h - bottom }));
    if ((e - x0) % nth === 0) plot.append(svg("text", { x: X(10 ** e), y: h - bottom + 17, "text-anchor": "middle" }, e < 0 ? String(10 ** e) : count(10 ** e)));
  }
  for (let e = y0; e <= y1; e++) {
    plot.append(svg("line", { class: "grid", x1: left, x2: w - right, y1: Y(10 ** e), y2: Y(10 ** e) }),
      svg("text", { x: left - 8, y: Y(10 ** e) + 4, "text-anchor": "end" }, si(10 ** e, narrow ? "" : "FLOP/s").replace(".00", "").replace(/\.0 /, " ")));
  }
  if (narrow) plot.append(svg("text", { x: left - 8, y: 12, "text-anchor": "end" }, "FLOP/s"));
  plot.append(svg("text", { x: (left + w - right) / 2, y: h - 8, "text-anchor": "middle" }, "arithmetic intensity in FLOP per byte"));
  const top0 = lines.length ? lines[0].peak : 10 ** y1;
  memory.forEach((m, at) => {
    const from = Math.max(10 ** x0, 10 ** y0 / m.peak);
    const to = Math.min(10 ** x1, top0 / m.peak);
    if (to <= from) return;
    const stroke = color(at);
    plot.append(svg("path", { class: "roof", stroke, d: `M${X(from)} ${Y(from * m.peak)}L${X(to)} ${Y(to * m.peak)}` }));
    const angle = -Math.atan2(Y(from * m.peak) - Y(to * m.peak), X(to) - X(from)) * 180 / Math.PI;
    const lx = 10 ** (Math.log10(from) + 0.03 * (x1 - x0));
    plot.append(svg("text", { x: X(lx), y: Y(lx * m.peak) - 6, transform: `rotate(${angle} ${X(lx)} ${Y(lx * m.peak)})`, fill: stroke, class: "strong" }, narrow ? m.label : `${m.label} ${rate(m.peak, m.unit)}`));
  });
  let last = -Infinity;
  lines.forEach((c, at) => {
    const fastest = memory[memory.length - 1].peak;
    const from = Math.min(10 ** x1, Math.max(10 ** x0, c.peak / fastest));
    const used = c.achieved > 0;
    plot.append(svg("path", { class: "roof" + (used ? "" : " faint"), stroke: used ? "var(--ink)" : "var(--dim)", d: `M${X(from)} ${Y(c.peak)}L${X(10 ** x1)} ${Y(c.peak)}` }));
    const y = Math.max(Y(c.peak) + 4, last + 14);
    last = y;
    plot.append(svg("text", { x: w - right + 8, y, class: used ? "strong" : null }, narrow ? at + 1 : named(c)));
  });
  points.forEach(p => {
    const at = memory.indexOf(p.memory);
    const roof = Math.min(reached.peak, p.x * p.memory.peak);
    plot.append(svg("line", { class: "faint", stroke: color(at), x1: X(p.x), x2: X(p.x), y1: Y(p.y), y2: Y(roof) }),
      svg("circle", { cx: X(p.x), cy: Y(p.y), r: 6.5, fill: color(at), stroke: "var(--card)", "stroke-width": 2 },
        svg("title", null, `${p.memory.label}: ${rate(p.y, "FLOP/s")} at ${digits(p.x)} FLOP/byte, ${percent(100 * p.y / roof)} of what its roof allows`)));
  });
  plot.dataset.drawn = plot.childElementCount;
  const notes = el("div", { class: "legend" }, all.map(p => {
    const swatch = el("i", { class: "swatch" });
    swatch.style.background = color(memory.indexOf(p.memory));
    const at = `${p.memory.label}: ${p.x > limit ? count(Math.round(p.x)) : digits(p.x)} FLOP/byte, `;
    return el("span", null, swatch, at + (p.x > limit ? "not drawn: next to no traffic was counted there"
      : `${percent(100 * p.y / Math.min(reached.peak, p.x * p.memory.peak))} of its roof`));
  }));
  const numbers = narrow && el("div", { class: "legend" }, lines.map((c, at) => el(c.achieved > 0 ? "b" : "span", null, `${at + 1}: ${named(c)}`)));
  const executed = /tensor/i.test(reached.label) ? " Operations of the tensor cores are those that ran, padding included." : "";
  return [el("p", { class: "note" }, "A point is the rate that the launch reached; the distance to the line above is the possible gain. The points of all memory levels have the same rate. Ceilings are at the clock at which the launch ran." + executed),
    plot, numbers, notes, apart && el("p", { class: "note" }, said(apart)), every].filter(Boolean);
}

/** That the launch's work on the tensor cores is in no ceiling of the report, or null. */
function tensorWork(launch, reached) {
  if (reached && /tensor/i.test(reached.label)) return null;
  const [tcgen05, tensor] = ["sm__pipe_tc_cycles_active", "sm__pipe_tensor_cycles_active"];
  const [active, elapsed] = [".avg.pct_of_peak_sustained_active", ".avg.pct_of_peak_sustained_elapsed"];
  const busy = number(launch, tcgen05 + active, tensor + active, tcgen05 + elapsed, tensor + elapsed);
  // On Hopper constants go through this pipe too (`HFMA2.MMA`), which keeps it busy for some percent.
  if (busy === undefined || busy < 10) return null;
  return `The tensor cores were busy for ${percent(busy)} of the time. Their operations are not counted in this report (ncu's section SpeedOfLight_HierarchicalTensorRooflineChart counts them; \`--set full\` has it), so ${reached ? "the points are of the other work only" : "no point can be drawn"}.`;
}

const ceilingTable = list => table([
  { label: "ceiling", cell: r => r.label, key: r => r.label },
  { label: "peak", num: true, cell: r => rate(r.peak, r.unit), key: r => r.peak },
  { label: "reached", num: true, cell: r => r.achieved === undefined ? "" : rate(r.achieved, r.unit), key: r => r.achieved },
  { label: "of the peak", num: true, cell: r => r.achieved === undefined ? "" : percent(100 * r.achieved / r.peak), key: r => r.achieved / r.peak },
  { label: "source", cell: r => r.source },
  { label: "chart", cell: r => r.chart },
], list, { label: "ceilings" });
