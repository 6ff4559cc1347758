// A language model on GPUs: the server under load, its memory, its other ways, two configurations.

const spread = p => [`tp ${p.tp}`, p.pp > 1 && `pp ${p.pp}`, p.ep > 1 && `ep ${p.ep}`, p.sp && "sp", p.dp_attention && "dp attention"].filter(Boolean).join(", ");
/** What tells the sides apart: GPU and parallelism, else the name of the file. */
function nameSides() {
  const words = page.sides.map(s => `${s.document.gpu}, ${spread(s.document.parallelism)}`);
  if (words[0] !== words[1]) page.sides.forEach((side, at) => { side.name = words[at]; });
}
const served = document => document.points.filter(p => p.serving);
/** Suggestions without the way that was asked for, which is among them. */
const othersOf = document => (document.suggestions || []).filter(s => spread(s.parallelism) !== spread(document.parallelism));
const rateOf = x => x >= 100 ? count(Math.round(x)) : digits(x);

function serverTiles(side) {
  const first = served(side.document)[0];
  if (!first) return null;
  const s = first.serving;
  const best = served(side.document).reduce((a, b) => (b.serving.output_tokens_per_s_gpu > a.serving.output_tokens_per_s_gpu ? b : a));
  const fullest = side.document.stages.reduce((a, b) => (b.hbm_bytes / b.hbm_capacity_bytes > a.hbm_bytes / a.hbm_capacity_bytes ? b : a));
  return el("div", { class: "tiles" },
    tile("Time to first token", duration(s.ttft_ns), `bound ${duration(s.ttft_bound_ns)}, ${percent(100 * s.ttft_bound_ns / s.ttft_ns)} of it`, s.ttft_bound_ns / s.ttft_ns),
    tile("Time per output token", duration(s.tpot_ns), `bound ${duration(s.tpot_bound_ns)}, ${plural(first.concurrency, "request")} at once`, s.tpot_bound_ns / s.tpot_ns),
    tile("Best throughput", rateOf(best.serving.output_tokens_per_s_gpu), `tokens/s a GPU at ${plural(best.concurrency, "request")} at once`),
    tile("HBM of a GPU", bytes(fullest.hbm_bytes), `of ${bytes(fullest.hbm_capacity_bytes)} at ${plural(first.concurrency, "request")} at once`, fullest.hbm_bytes / fullest.hbm_capacity_bytes));
}

function serverSummary() {
  const [side, other] = page.sides;
  const { document } = side;
  const first = served(document)[0];
  const m = document.model;
  const gpus = document.parallelism.tp * document.parallelism.pp;
  const title = first ? `${duration(first.serving.ttft_ns)} to the first token, then ${duration(first.serving.tpot_ns)} a token` : "This way cannot run";
  const billions = n => digits(n / 1e9) + " B";
  const lead = `${m.architecture}: ${billions(m.parameters)} parameters, ${billions(m.active_parameters)} used a token, ${plural(m.layers, "layer")}`
    + (other ? "." : `, on ${count(gpus)} × ${document.gpu} (${spread(document.parallelism)}).`);
  summarised(el("p", { class: "title" }, other ? `${side.name} against ${other.name}` : title), el("p", { class: "lead" }, lead),
    calibrated(page.sides.map(s => s.document)),
    page.sides.map(s => [other && el("h3", null, s.name), serverTiles(s) || impossible(s.document)]));
}
const impossible = document => el("p", { class: "note" }, (document.points[0] || {}).impossible || "no load was asked for");

/** Two configurations at equal numbers of requests. */
function comparedSides() {
  if (page.sides.length < 2) return;
  const [a, b] = page.sides;
  const rows = served(a.document).map(p => ({ p: p.serving, n: p.concurrency, q: (served(b.document).find(q => q.concurrency === p.concurrency) || {}).serving })).filter(r => r.q);
  const gain = x => el("span", { class: x > 1.005 ? "up" : x < 0.995 ? "down" : "dim" }, x.toFixed(2) + " ×");
  const pair = (label, id, show, isTime) => {
    const better = r => isTime ? r.p[id] / r.q[id] : r.q[id] / r.p[id];
    return [{ label, num: true, cell: r => `${show(r.p[id])} → ${show(r.q[id])}`, key: r => r.q[id] }, { label: "gain", num: true, cell: r => gain(better(r)), key: better }];
  };
  const facts = d => ({ GPU: d.gpu, parallelism: spread(d.parallelism), "weights in": d.placement.weights, "KV cache in": d.placement.kv,
    model: d.model.architecture, "linear weights": d.model.linear_dtype, "expert weights": d.model.expert_dtype, calibration: d.calibration });
  const [fa, fb] = [facts(a.document), facts(b.document)];
  const unlike = Object.keys(fa).filter(k => fa[k] !== fb[k]);
  section("compare", "Comparison", `${b.name} against ${a.name} at equal numbers of requests; a gain above 1 × means that ${b.name} is better.`,
    unlike.length ? el("ul", { class: "plain" }, unlike.map(k => el("li", null, `${k}: ${fa[k]} against ${fb[k]}`))) : el("p", { class: "note" }, "Both have equal GPUs, parallelism, places and formats."),
    rows.length ? table([{ label: "requests", num: true, cell: r => count(r.n), key: r => r.n },
      ...pair("first token", "ttft_ns", duration, true), ...pair("per token, with prefills", "tpot_mixed_ns", duration, true), ...pair("tokens/s a GPU", "output_tokens_per_s_gpu", rateOf, false)],
    rows, { label: "compared loads" }) : el("p", { class: "note" }, "No number of requests was predicted for both."));
}

function pareto() {
  const several = page.sides.length > 1;
  const point = (s, label, title, xs) => ({ xs, x: s.tpot_mixed_ns, y: s.output_tokens_per_s_gpu, label, title: `${title}: ${duration(s.tpot_mixed_ns)} a token, ${rateOf(s.output_tokens_per_s_gpu)} tokens/s a GPU` });
  const series = page.sides.map((side, at) => ({ name: `${several ? side.name : spread(side.document.parallelism)}; the label is the number of requests`, line: true, color: at,
    points: served(side.document).map(p => point(p.serving, count(p.concurrency), plural(p.concurrency, "request"), p.likely && p.likely.tpot_mixed_ns)) }));
  page.sides.forEach((side, at) => {
    const ways = othersOf(side.document).filter(s => s.serving).map(s => point(s.serving, spread(s.parallelism), spread(s.parallelism)));
    if (ways.length) series.push({ name: `${several ? side.name + ": " : ""}other ways, with ${plural(side.document.points[0].concurrency, "request")}`, hollow: true, color: at + 2, points: ways });
  });
  const drawn = series.filter(s => s.points.length);
  if (sum(drawn.map(s => s.points.length)) < 2) return absent.push(["Throughput and latency", "one load makes no curve: `--concurrency 1..256:x2` predicts several"]);
  markBeaten(drawn);
  section("pareto", "Throughput and latency", "Up and to the left is better. A filled point is one that no other beats in both; a small one is beaten. Prefills of other requests are in the time per token." + (drawn.some(s => s.points.some(p => p.xs)) ? ERROR_BARS : ""),
    plotted(drawn, { label: "time per output token", show: duration }, { label: "output tokens/s a GPU", show: rateOf }, "Throughput against latency; the table below has its numbers"));
}

function loads() {
  const several = page.sides.length > 1;
  section("loads", "Loads", null, page.sides.map(({ name, document }) => [
    several && el("h3", null, name), el("p", { class: "note" }, `${count(document.points[0].input)} tokens in, ${count(document.points[0].output)} out.`),
    table([
      { label: "requests", num: true, cell: p => count(p.concurrency), key: p => p.concurrency },
      ...serverColumns(p => p.serving),
      { label: "impossible because", cls: "text", cell: p => p.impossible },
    ], document.points, { label: "loads" }), otherWays(document)]));
}

function serverColumns(of) {
  const column = (label, id, show) => ({ label, num: true, cell: r => of(r) && show(of(r)[id]), key: r => (of(r) || {})[id] });
  return [column("first token", "ttft_ns", duration), column("its bound", "ttft_bound_ns", duration), column("per token", "tpot_ns", duration), column("bound", "tpot_bound_ns", duration),
    column("with prefills", "tpot_mixed_ns", duration), column("tokens/s", "output_tokens_per_s", rateOf), column("a GPU", "output_tokens_per_s_gpu", rateOf),
    { label: "bubble", num: true, cell: r => of(r) && of(r).bubble > 0 ? percent(100 * of(r).bubble) : "" }];
}

function otherWays(document) {
  const list = othersOf(document);
  if (!list.length) return null;
  return [el("h3", null, "Other ways to spread it over as many GPUs"), table([
    { label: "way", cell: s => spread(s.parallelism) }, ...serverColumns(s => s.serving),
    { label: "ruled out because", cls: "text", cell: s => s.impossible },
  ], list, { label: "other ways" })];
}

function phases() {
  const sides = page.sides.filter(s => s.document.phases.length);
  if (!sides.length) return;
  section("time", "Where the time goes", "Each bar begins where the one before it ends. Select a layer to see its kernels, and a kernel to see its terms. Transfers between stages are not in it.",
    sides.map(side => [page.sides.length > 1 && el("h3", null, side.name), stepsOf(side.document)]));
}

/** The waterfall of prefill or decode. */
function stepsOf(document) {
  const box = el("div");
  const about = el("p", { class: "note" });
  const tabs = document.phases.map(phase => el("button", { type: "button", on: { click: () => draw(phase) } }, words(phase.phase)));
  function draw(phase) {
    tabs.forEach((tab, at) => tab.setAttribute("aria-pressed", String(document.phases[at] === phase)));
    about.textContent = `A step of ${plural(phase.sequences, "sequence")} with ${plural(phase.queries, "new token")} each; attention reads ${plural(phase.keys, "token")} of each.`;
    const all = page.sides.flatMap(s => s.document.phases).filter(p => p.phase === phase.phase);
    const scale = Math.max(...all.map(p => sum(p.layers.map(l => l.count * l.total.time_ns))));
    box.replaceChildren(drillDown(phase, `${words(phase.phase)} by layer`, scale));
  }
  draw(document.phases[document.phases.length - 1]);
  return el("div", { class: "steps" }, el("div", { class: "tools" }, tabs), about, box);
}

function stages() {
  const all = page.sides.filter(s => s.document.stages.length);
  if (!all.length) return;
  const kinds = [["weights", "weights_bytes"], ["KV cache", "kv_bytes"], ["activations", "activation_bytes"]];
  const most = Math.max(...all.flatMap(s => s.document.stages).map(s => Math.max(s.hbm_capacity_bytes, s.weights_bytes + s.kv_bytes + s.activation_bytes)));
  section("memory", "Memory of a GPU", "At the first load. The line is the capacity of HBM.", all.map(side => [all.length > 1 && el("h3", null, side.name),
    el("div", { class: "waterfall" }, side.document.stages.map((s, at) => {
      const track = el("span", { class: "track" });
      let x = 0;
      kinds.forEach(([name, id], n) => {
        const piece = bar(null, s[id] / most, n);
        piece.style.left = 100 * x / most + "%";
        piece.title = `${name}: ${bytes(s[id])}`;
        track.append(piece);
        x += s[id];
      });
      const line = el("i", { class: "limit" });
      line.style.left = `calc(${100 * s.hbm_capacity_bytes / most}% - 2px)`;
      track.append(line);
      return [el("span", { class: "name" }, `stage ${at}, layers ${s.first_layer} to ${s.first_layer + s.layers - 1}`), track, el("span", { class: "num" }, bytes(s.hbm_bytes)),
        el("span", { class: "num dim" }, "of " + bytes(s.hbm_capacity_bytes)), el("span", { class: "dim extra" }, kinds.map(([name, id]) => `${name} ${bytes(s[id])}`).join(", "))];
    }))]),
  el("div", { class: "legend" }, kinds.map(([name], n) => { const swatch = el("i", { class: "swatch" }); swatch.style.background = color(n); return el("span", null, swatch, name); })));
}
