// Plots with two logarithmic axes.

/** Labelled powers of ten, 1-2-5 steps where there are few, or round values if those are few too, within [low, high]. */
function ticks(low, high) {
  if (high / low <= 8) return roundTicks(low, high, 6).list;
  const steps = Math.log10(high / low) > 2.5 ? [1] : [1, 2, 5];
  const list = [];
  for (let e = Math.floor(Math.log10(low)); e <= Math.ceil(Math.log10(high)); e++) {
    for (const step of steps) {
      const value = step * 10 ** e;
      if (value >= low * 0.999 && value <= high * 1.001) list.push(value);
    }
  }
  return list;
}

/** A label without the zeros after its point. */
const round = text => text.replace(/\.0+(?= |$)/, "");

/** `series`: {name, points: [{x, y, label, title, faint, xs, ys}], line, hollow}. `xs`, `ys`: the two ends of an error bar. `x`, `y`: {label, show}. */
function plotted(series, x, y, label) {
  const all = series.flatMap(s => s.points);
  const [w, h, left, top, right, bottom] = [1100, 430, 92, 16, 30, 48];
  const around = values => {
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const room = Math.max(1.12, (high / low) ** 0.06);
    return [low / room, high * room];
  };
  const [x0, x1] = around(all.flatMap(p => [p.x, ...(p.xs || [])])), [y0, y1] = around(all.flatMap(p => [p.y, ...(p.ys || [])]));
  const X = v => left + Math.log(v / x0) / Math.log(x1 / x0) * (w - left - right);
  const Y = v => h - bottom - Math.log(v / y0) / Math.log(y1 / y0) * (h - top - bottom);
  const plot = svg("svg", { class: "plot", viewBox: `0 0 ${w} ${h}`, role: "img", "aria-label": label });
  for (const t of ticks(x0, x1)) {
    plot.append(svg("line", { class: "grid", x1: X(t), x2: X(t), y1: top, y2: h - bottom }), svg("text", { x: X(t), y: h - bottom + 17, "text-anchor": "middle" }, round(x.show(t))));
  }
  for (const t of ticks(y0, y1)) {
    plot.append(svg("line", { class: "grid", x1: left, x2: w - right, y1: Y(t), y2: Y(t) }), svg("text", { x: left - 8, y: Y(t) + 4, "text-anchor": "end" }, round(y.show(t))));
  }
  plot.append(svg("text", { x: (left + w - right) / 2, y: h - 8, "text-anchor": "middle" }, x.label),
    svg("text", { x: 14, y: (top + h - bottom) / 2, "text-anchor": "middle", transform: `rotate(-90 14 ${(top + h - bottom) / 2})` }, y.label));
  // Labels that would touch an earlier one are left out; the tooltip and the table have them.
  const taken = [];
  const free = (cx, cy, text) => {
    const box = [cx, cy - 12, cx + 7 * text.length, cy + 2];
    if (box[2] > w || box[3] > h - bottom || taken.some(t => box[0] < t[2] && t[0] < box[2] && box[1] < t[3] && t[1] < box[3])) return false;
    taken.push(box);
    return true;
  };
  series.forEach((s, at) => {
    const stroke = color(s.color ?? at);
    if (s.line) plot.append(svg("path", { class: "roof" + (s.faint ? " faint" : ""), stroke, d: s.points.map((p, n) => `${n ? "L" : "M"}${X(p.x).toFixed(1)} ${Y(p.y).toFixed(1)}`).join("") }));
    if (s.bare) return;
    for (const p of s.points) {
      const bar = ends => plot.append(svg("line", { class: "error", stroke, "stroke-width": 2, ...ends }));
      if (p.xs) bar({ x1: X(p.xs[0]), x2: X(p.xs[1]), y1: Y(p.y), y2: Y(p.y) });
      if (p.ys) bar({ x1: X(p.x), x2: X(p.x), y1: Y(p.ys[0]), y2: Y(p.ys[1]) });
      plot.append(svg("circle", { cx: X(p.x), cy: Y(p.y), r: p.faint ? 4 : 6, fill: s.hollow || p.faint ? "var(--card)" : stroke, stroke, "stroke-width": 2 }, svg("title", null, p.title)));
      if (p.label && free(X(p.x) + 9, Y(p.y) + 16, p.label)) plot.append(svg("text", { class: "ink", x: X(p.x) + 9, y: Y(p.y) + 16 }, p.label));
    }
  });
  plot.dataset.drawn = all.length;
  const legend = series.map((s, at) => {
    const swatch = el("i", { class: "swatch" + (s.hollow ? " hollow" : "") });
    swatch.style[s.hollow ? "borderColor" : "background"] = color(s.color ?? at);
    return el("span", null, swatch, s.name);
  });
  return [el("div", { class: "wide", tabindex: 0, role: "region", "aria-label": label }, plot), el("div", { class: "legend" }, legend)];
}

/** Marks points that another point beats in both: less time and more throughput. */
function markBeaten(series) {
  const all = series.flatMap(s => s.points);
  for (const p of all) p.faint = all.some(q => q !== p && q.x <= p.x && q.y >= p.y && (q.x < p.x || q.y > p.y));
}
