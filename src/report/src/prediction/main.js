// Assembles the page: a language model, a collective, or kernels.

const began = performance.now();

function calibrated(documents) {
  const all = documents.every(d => d.calibration === "calibrated");
  return el("div", { class: "badges" }, el("span", { class: "badge " + (all ? "good" : "warn"), title: all ? "measured efficiencies are used everywhere" : "no measured efficiencies, or not everywhere: the times are still too fast" }, all ? "calibrated" : "uncalibrated"));
}

/** The first card; its heading is only for screen readers. */
function summarised(...children) {
  section("summary", "Summary", null, ...children).querySelector("h2").classList.add("skip");
}

const ERROR_BARS = " The bars cover 80 % of the measured times held out of the fit.";
const between = likely => likely ? `, likely ${duration(likely[0])} to ${duration(likely[1])}` : "";

function kernel() {
  const documents = page.sides.map(s => s.document);
  const [first] = documents;
  summarised(el("p", { class: "title" }, documents.length > 1 ? `${duration(sum(documents.map(d => d.time_ns)))} in ${documents.length} kernels` : `${duration(first.time_ns)}, and never below ${duration(first.bound_ns)}`),
    el("p", { class: "lead" }, documents.map(d => `${d.subject} on ${d.gpu}`).join("; ") + "."), calibrated(documents));
  documents.forEach((d, at) => {
    const shares = d.shares;
    section("kernel" + (at || ""), documents.length > 1 ? d.subject : "Where the time goes", `Limited by ${LIMIT_WORDS[d.limited_by] || d.limited_by}. Pale bars run beside a longer one and are not in the sum.`,
      waterfall(termRows(d.terms), "Terms of the prediction"),
      el("div", { class: "tiles" }, tile("Prediction", duration(d.time_ns), d.calibration + between(d.likely_ns)), tile("Bound", duration(d.bound_ns), `${percent(100 * d.bound_ns / d.time_ns)} of the prediction`, d.bound_ns / d.time_ns),
        tile("Work", si(d.flops, "FLOP"), `${digits(d.intensity)} FLOP a byte`), tile("Traffic", bytes(d.bytes), "over HBM"),
        d.tile && tile("Tile", `${d.tile.rows} × ${d.tile.columns}`, d.tile.split > 1 ? `k in ${d.tile.split} parts` : "best of a library's"),
        shares && tile("Measured", duration(shares.measured_ns), `${percent(100 * shares.of_bound)} of the bound`, shares.of_bound)),
      el("h3", null, "Every term"), termTable(d.terms));
  });
}

function collective() {
  const [{ document: d }] = page.sides;
  const name = words(d.op);
  summarised(el("p", { class: "title" }, `${duration(d.time_ns)}, and never below ${duration(d.bound_ns)}`),
    el("p", { class: "lead" }, `${name} of ${bytes(d.bytes)} on ${count(d.gpus)} × ${d.gpu}, by ${d.algorithm} and ${d.protocol}.`), calibrated([d]),
    el("div", { class: "tiles" }, tile("Prediction", duration(d.time_ns), d.calibration), tile("Bound", duration(d.bound_ns), "links alone", d.bound_ns / d.time_ns), tile("Bus rate", rate(d.bus_bandwidth, "B/s"), "as nccl-tests has it")));
  const point = (line, ns, ys) => ({ x: line.bytes, y: ns, ys, title: `${bytes(line.bytes)}: ${duration(ns)}${between(ys)}, ${line.algorithm}, ${line.protocol}` });
  section("sizes", "By message size", "The bound is what must leave each GPU over its link, without reductions inside the switch." + (d.sizes.some(s => s.likely_ns) ? ERROR_BARS : ""),
    plotted([{ name: "prediction", line: true, points: d.sizes.map(s => point(s, s.time_ns, s.likely_ns)) }, { name: "bound", line: true, bare: true, faint: true, color: 9, points: d.sizes.map(s => point(s, s.bound_ns)) }],
      { label: "message size", show: bytes }, { label: "time", show: duration }, "Time against message size; the table below has its numbers"),
    table([
      { label: "size", num: true, cell: s => bytes(s.bytes), key: s => s.bytes }, { label: "time", num: true, cell: s => duration(s.time_ns), key: s => s.time_ns },
      { label: "bound", num: true, cell: s => duration(s.bound_ns), key: s => s.bound_ns }, { label: "bus rate", num: true, cell: s => rate(s.bus_bandwidth, "B/s"), key: s => s.bus_bandwidth },
      { label: "algorithm", cell: s => words(s.algorithm) }, { label: "protocol", cell: s => words(s.protocol) },
    ], d.sizes, { label: "sizes" }));
  section("time", "Where the time goes", null, waterfall(termRows(d.terms), "Terms of the prediction"), termTable(d.terms));
}

function server() {
  nameSides();
  for (const part of [serverSummary, comparedSides, pareto, phases, stages, loads]) part();
}

function aboutPrediction() {
  const documents = page.sides.map(s => s.document);
  const notes = [...new Set(documents.flatMap(d => d.notes || []))];
  const definitions = Object.entries(documents[0].definitions || {});
  section("about", "About", "Made by rgpu model without any GPU: a prediction, not a measurement. The bound is the speed of light: no run is faster, unless its data were in a cache.",
    definitions.length ? el("dl", { class: "facts" }, definitions.map(([k, v]) => [el("dt", null, el("code", null, k)), el("dd", null, v)])) : null,
    notes.length + absent.length ? el("ul", { class: "plain" }, [...notes, ...absent.map(([what, why]) => `${what}: ${why}`)].map(n => el("li", null, said(n)))) : null);
}

const kinds = { "rgpu.model-kernel/1": kernel, "rgpu.model-collective/1": collective, "rgpu.model-llm/1": server };
kinds[page.sides[0].document.schema]();
aboutPrediction();
