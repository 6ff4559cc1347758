// The memory of torch's allocator over time.

function memoryUse() {
  const points = (page.trace && page.trace.memory) || [];
  if (points.length < 2) return;
  const devices = [...new Set(points.map(p => p[1]))].sort((a, b) => a - b);
  section("allocator", "GPU memory over time", "Bytes in tensors, and bytes that the allocator holds for them. Of neighbouring changes only the highest is drawn.",
    devices.map(device => memoryPlot(points.filter(p => p[1] === device), devices.length > 1 ? `GPU ${device}` : "")));
}

function memoryPlot(points, name) {
  const [w, h, left, right, top, bottom] = [1100, 230, 70, 16, 12, 34];
  const [from, to] = [points[0][0], points[points.length - 1][0]];
  const total = (page.memory.find(use => use.device === points[0][1]) || {}).total_bytes;
  const most = Math.max(1, ...points.map(p => Math.max(p[2], p[3])));
  const X = ns => left + (ns - from) / Math.max(1, to - from) * (w - left - right);
  const Y = n => top + (1 - n / (most * 1.05)) * (h - top - bottom);
  const steps = at => points.map((p, n) => (n ? `H${X(p[0]).toFixed(1)}V` : `M${X(p[0]).toFixed(1)} `) + Y(p[at]).toFixed(1)).join("");
  const highest = points.reduce((a, b) => b[2] > a[2] ? b : a);
  const plot = svg("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": `GPU memory over time: at most ${bytes(highest[2])} in tensors` });
  for (const n of roundTicks(0, most * 1.05, 5).list) {
    plot.append(svg("line", { class: "grid", x1: left, x2: w - right, y1: Y(n), y2: Y(n) }),
      svg("text", { x: left - 8, y: Y(n) + 4, "text-anchor": "end" }, bytes(n)));
  }
  const times = roundTicks(from, to, 6);
  for (const ns of times.list) {
    const anchor = X(ns) > w - right - 30 ? "end" : "middle";
    plot.append(svg("text", { x: X(ns), y: h - 10, "text-anchor": anchor }, ns === 0 ? "0" : axis(ns, times.gap)));
  }
  plot.append(svg("path", { class: "roof", stroke: color(1), d: steps(3) }), svg("path", { class: "roof", stroke: color(0), d: steps(2) }),
    svg("circle", { cx: X(highest[0]), cy: Y(highest[2]), r: 5, fill: color(0), stroke: "var(--card)", "stroke-width": 2 },
      svg("title", null, `${bytes(highest[2])} in tensors at ${duration(highest[0])}`)));
  plot.dataset.drawn = points.length;
  const entry = (at, text) => {
    const swatch = el("i", { class: "swatch" });
    swatch.style.background = color(at);
    return el("span", null, swatch, text);
  };
  return el("div", null, name && el("h3", null, name),
    el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": "GPU memory over time" }, plot),
    el("div", { class: "legend" }, entry(0, `in tensors, at most ${bytes(highest[2])} at ${duration(highest[0])}`),
      entry(1, `held by the allocator, at most ${bytes(Math.max(...points.map(p => p[3])))}` + (total ? ` of ${bytes(total)}` : ""))));
}
