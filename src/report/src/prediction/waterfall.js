// The waterfall of a predicted time: each bar begins where the one before it ends. A click on a layer
// shows its kernels, a click on a kernel its terms.

const LIMITS = { compute: 0, memory: 1, shared: 2, link: 3, launch: 4, quantize: 5 };
const LIMIT_WORDS = { compute: "arithmetic", memory: "HBM traffic", shared: "shared memory", link: "links between GPUs", launch: "launches", quantize: "quantization" };

/** A part whose terms all run beside other work adds nothing to the sum. */
const beside = part => part.terms.length > 0 && part.terms.every(term => !term.counts);

/** The time of one layer by what limits its parts. */
function byLimit(layer) {
  const sums = new Map();
  for (const part of layer.parts) if (!beside(part)) sums.set(part.limited_by, (sums.get(part.limited_by) || 0) + part.time_ns);
  return [...sums].sort((a, b) => LIMITS[a[0]] - LIMITS[b[0]]);
}

/** Rows of a phase, of one of its layers, or of one kernel: {name, ns, bound, pieces, open, hidden, note}. */
function phaseRows(phase, open) {
  return phase.layers.map(layer => ({
    name: (layer.count > 1 ? count(layer.count) + " × " : "") + layer.name, ns: layer.count * layer.total.time_ns, bound: layer.count * layer.total.bound_ns,
    pieces: byLimit(layer).map(([limit, ns]) => [limit, layer.count * ns]), open: () => open(layer),
  }));
}
function layerRows(layer, open) {
  return layer.parts.map(part => ({ name: words(part.name), ns: part.time_ns, bound: part.bound_ns, pieces: [[part.limited_by, part.time_ns]],
    hidden: beside(part), open: () => open(part), note: LIMIT_WORDS[part.limited_by] }));
}
function termRows(terms) {
  // Other names are those of links: latency, transfer, fetch.
  const limit = name => { const plain = name.replace(/^bound_|_memory$/g, ""); return plain in LIMITS ? plain : "link"; };
  return terms.map(term => ({ name: words(term.name), ns: term.ns, pieces: [[limit(term.name), term.ns]], hidden: !term.counts,
    note: el("code", null, term.formula) }));
}

/** The bars, and below them their sum. `scale`: a time that must fit too. */
function waterfall(rows, label, scale = 0) {
  const total = sum(rows.filter(r => !r.hidden).map(r => r.ns));
  const most = Math.max(total, scale, ...rows.map(r => r.ns), 1e-9);
  let at = 0;
  const seen = new Set();
  const lines = rows.map(row => {
    const track = el("span", { class: "track" });
    let x = row.hidden ? 0 : at;
    for (const [limit, ns] of row.pieces) {
      const piece = bar(row.hidden ? "beside" : null, ns / most, LIMITS[limit]);
      piece.style.left = 100 * x / most + "%";
      track.append(piece);
      if (ns > 0) seen.add(limit);
      x += ns;
    }
    if (row.bound !== undefined && !row.hidden) {
      const mark = el("i", { class: "least", title: "bound: " + duration(row.bound) });
      mark.style.left = 100 * at / most + "%";
      mark.style.width = 100 * row.bound / most + "%";
      track.append(mark);
    }
    if (!row.hidden) at += row.ns;
    const share = row.hidden ? "not in the sum" : percent(100 * row.ns / (total || 1));
    return [row.open ? el("button", { type: "button", class: "name", on: { click: row.open } }, row.name) : el("span", { class: "name" }, row.name), track,
      el("span", { class: "num" }, duration(row.ns)), el("span", { class: "num dim" }, share), el("span", { class: "dim extra" }, row.note)];
  });
  const legend = [...seen].sort((a, b) => LIMITS[a] - LIMITS[b]).map(limit => {
    const swatch = el("i", { class: "swatch" });
    swatch.style.background = color(LIMITS[limit]);
    return el("span", null, swatch, LIMIT_WORDS[limit]);
  });
  const box = el("div", null, el("div", { class: "waterfall", role: "group", "aria-label": label }, lines,
    el("b", { class: "name" }, "sum"), el("span", { class: "track" }), el("b", { class: "num" }, duration(total)), el("span"), el("span", { class: "extra" })),
  el("div", { class: "legend" }, legend, rows.some(r => r.bound !== undefined) && el("span", null, el("i", { class: "swatch least" }), "the bound of the same work")));
  box.dataset.drawn = rows.length;
  return box;
}

const shownValue = input => (input.unit === "ns" ? duration(input.value) : input.unit === "B" ? bytes(input.value)
  : /^(B|FLOP)\/s$/.test(input.unit) ? rate(input.value, input.unit) : input.unit === "FLOP" ? si(input.value, "FLOP")
    : (Number.isInteger(input.value) ? count(input.value) : digits(input.value)) + (input.unit === "1" ? "" : " " + input.unit));

/** Formula, values and sources of terms. */
function termTable(terms) {
  return table([
    { label: "term", cell: t => words(t.name) },
    { label: "time", num: true, cell: t => duration(t.ns), key: t => t.ns },
    { label: "formula", cell: t => el("code", null, t.formula) },
    { label: "values", cls: "text", cell: t => t.inputs.map(i => el("div", null, el("code", null, i.symbol), " = " + shownValue(i))) },
    { label: "sources", cls: "text", cell: t => [...new Set(t.inputs.map(i => i.source).filter(Boolean))].map(s => el("div", { class: "dim" }, s)) },
  ], terms, { label: "terms" });
}

/** The waterfall of a phase, from the whole model down to the terms of one kernel. `scale`: the time of
    the longest such phase of all sides. */
function drillDown(phase, label, scale) {
  const box = el("div");
  const path = el("div", { class: "tools", role: "group", "aria-label": "Part of the model" });
  const crumb = (text, show) => el("button", { type: "button", "aria-pressed": String(!show), on: { click: show || (() => {}) } }, text);
  function model() {
    path.replaceChildren(crumb("All layers"));
    box.replaceChildren(path, waterfall(phaseRows(phase, layerView), label, scale));
  }
  function layerView(layer) {
    path.replaceChildren(crumb("All layers", model), crumb(layer.count > 1 ? `One of ${count(layer.count)} × ${layer.name}` : layer.name));
    const facts = [`model FLOPs utilization ${percent(100 * layer.mfu)}`];
    if (layer.weight_bytes) facts.push(`weights ${bytes(layer.weight_bytes)} a GPU`);
    if (layer.kv_bytes_per_token) facts.push(`KV cache ${bytes(layer.kv_bytes_per_token)} a token and GPU`);
    box.replaceChildren(path, waterfall(layerRows(layer, part => partView(layer, part)), label), el("p", { class: "note" }, facts.join("; ") + "."));
    path.lastChild.focus();
  }
  function partView(layer, part) {
    path.replaceChildren(crumb("All layers", model), crumb(layer.name, () => layerView(layer)), crumb(words(part.name)));
    box.replaceChildren(path, waterfall(termRows(part.terms), label), termTable(part.terms));
    path.lastChild.focus();
  }
  model();
  return box;
}
