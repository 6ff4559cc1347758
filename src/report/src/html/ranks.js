// The ranks of a program: a row for each with what it did, the collectives that waited marked on all
// rows, and a choice of the step or collective to look at.

const isCollective = name => /^(void )?nccl/.test(name);

/** What a rank did: {kind, start, length} by rank, from the events of the trace. */
function rankRows(ranks, trace) {
  const rows = new Map(ranks.ranks.map(r => [r.rank, []]));
  for (const [kind, name, start, length, , , , , rank] of trace ? trace.work : []) {
    if (!rows.has(rank)) continue;
    const what = kind === "copy" || kind === "set" ? 2 : isCollective(trace.names[name]) ? 1 : 0;
    rows.get(rank).push({ what, start, length });
  }
  return ranks.ranks.map(r => rows.get(r.rank));
}

function rankPicture(ranks) {
  const trace = page.trace;
  const rows = rankRows(ranks, trace);
  if (!rows.some(row => row.length)) return null;
  const KINDS = ["compute", "collective", "copy"];
  const [ROW, AXIS] = [28, 22];
  const span = Math.max(1, trace.span_ns);
  let [from, to] = [0, span];
  let marked = null;
  const canvas = el("canvas", { role: "img", "aria-label": "What each rank did over time: computing, collectives, copies." });
  const gutter = 72;
  const draw = () => {
    const [ratio, w] = [window.devicePixelRatio || 1, canvas.clientWidth || 900];
    const height = AXIS + rows.length * ROW + 4;
    canvas.width = w * ratio;
    canvas.height = height * ratio;
    canvas.style.height = height + "px";
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    g.fillStyle = themed("card");
    g.fillRect(0, 0, w, height);
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    const X = t => gutter + (t - from) / (to - from) * (w - gutter - 8);
    g.fillStyle = themed("dim");
    g.fillText(duration(from), gutter, AXIS / 2);
    const end = duration(to);
    g.fillText(end, w - 8 - g.measureText(end).width, AXIS / 2);
    rows.forEach((row, at) => {
      const y = AXIS + at * ROW;
      g.fillStyle = themed("dim");
      g.fillText(`rank ${ranks.ranks[at].rank}`, 8, y + ROW / 2);
      for (const { what, start, length } of row) {
        if (start > to || start + length < from) continue;
        const x = Math.max(gutter, X(start));
        g.fillStyle = resolved(what);
        // Collectives are thinner, so that what runs beside them is seen.
        const [top, thick] = what === 1 ? [y + 14, ROW - 18] : [y + 3, ROW - 8];
        g.fillRect(x, top, Math.max(1, Math.min(w, X(start + length)) - x), thick);
      }
      const start = marked && marked.start_ns[at];
      if (start !== null && start !== undefined) {
        g.strokeStyle = themed("ink");
        g.lineWidth = 2;
        g.strokeRect(X(start), y + 1, Math.max(2, X(start + marked.duration_ns[at]) - X(start)), ROW - 4);
      }
    });
  };
  const look = (start, length) => {
    const room = Math.max(1000, length * 0.15);
    [from, to] = [Math.max(0, start - room), Math.min(span, start + length + room)];
    draw();
  };
  const steps = ranks.steps ? ranks.steps.steps : [];
  const choices = [["everything", () => { marked = null; [from, to] = [0, span]; draw(); }]];
  const aligned = ranks.clock.source !== "none";
  ranks.waits.forEach(w => choices.push([`${words(w.operation)} ${w.number}: ${duration(w.late_ns)} for rank ${w.last}`, () => {
    marked = w;
    const there = w.start_ns.map((start, at) => [start, w.duration_ns[at]]).filter(([start]) => start !== null);
    const begin = Math.min(...there.map(([start]) => start));
    look(begin, Math.max(...there.map(([start, length]) => start + length)) - begin);
  }]));
  steps.forEach((step, at) => choices.push([`${ranks.steps.name} ${at}: ${duration(Math.max(...step.host_ns))}`, () => {
    marked = null;
    const begin = Math.min(...step.start_ns);
    look(begin, Math.max(...step.start_ns.map((start, rank) => start + step.host_ns[rank])) - begin);
  }]));
  const select = el("select", { "aria-label": "Step or collective" }, choices.map(([text], at) => el("option", { value: at }, text)));
  select.addEventListener("change", () => choices[Number(select.value)][1]());
  const legend = el("p", { class: "dim" }, KINDS.map((kind, at) => {
    const key = el("b", null, "■ ");
    key.style.color = color(at);
    return [key, kind + "  "];
  }), aligned ? "" : "The rows have no common clock: each begins at its own first event.");
  repaint.push(draw);
  window.addEventListener("resize", draw);
  return { node: el("div", null, el("label", null, "Look at ", select), canvas, legend), draw };
}

function ranks() {
  const of = page.ranks;
  if (!of) return;
  const clock = { report: "One report has all ranks.", host: "Times are those of their host's clock.", none: "There is no common clock: durations are compared, not starts.",
    fitted: `Clocks are fitted over ${plural(of.clock.collectives, "collective")}; the residual is ${duration(of.clock.residual_ns)}, and no finer order is known.` }[of.clock.source] || "";
  const share = (ns, all) => percent(100 * ns / Math.max(1, all));
  const picture = rankPicture(of);
  const times = table([
    { label: "rank", num: true, cell: r => r.rank, key: r => r.rank },
    { label: "place", cell: r => [r.host, r.gpu === undefined ? null : `GPU ${r.gpu}`].filter(x => x).join(" ") },
    { label: "span", num: true, cell: r => duration(r.span_ns), key: r => r.span_ns },
    { label: "compute", num: true, cell: r => share(r.compute_ns, r.span_ns), key: r => r.compute_ns },
    { label: "exposed communication", num: true, cell: r => share(r.exposed_ns, r.span_ns), key: r => r.exposed_ns },
    { label: "overlap", num: true, cell: r => r.communication_ns ? share(r.overlapped_ns, r.communication_ns) : "", key: r => r.overlapped_ns },
    { label: "copies", num: true, cell: r => share(r.copy_ns, r.span_ns), key: r => r.copy_ns },
    { label: "idle", num: true, cell: r => share(r.idle_ns, r.span_ns), key: r => r.idle_ns },
    { label: "causes of idle time", cell: r => r.idle.map(i => `${words(i.cause)} ${duration(i.total_ns)}`).join(", ") },
    { label: "waited for a rank", num: true, cell: r => duration(r.waited_ns), key: r => r.waited_ns },
    { label: "came last", num: true, cell: r => count(r.times_last), key: r => r.times_last },
  ], of.ranks, { label: "ranks" });
  const sums = of.collectives.length ? table([
    { label: "collective", cell: c => words(c.operation), key: c => c.operation },
    { label: "group", cls: "name", cell: c => c.group, key: c => c.group },
    { label: "ranks", num: true, cell: c => c.ranks },
    { label: "size", num: true, cell: c => c.bytes === undefined ? "" : bytes(c.bytes), key: c => c.bytes },
    { label: "calls", num: true, cell: c => count(c.calls), key: c => c.calls },
    { label: "median", num: true, cell: c => duration(c.median_ns), key: c => c.median_ns },
    { label: "algorithm", num: true, cell: c => c.algorithm_bytes_per_s ? rate(c.algorithm_bytes_per_s, "B/s") : "", key: c => c.algorithm_bytes_per_s },
    { label: "bus", num: true, cell: c => c.bus_bytes_per_s ? rate(c.bus_bytes_per_s, "B/s") : "", key: c => c.bus_bytes_per_s },
    { label: "of NVLink", num: true, cell: c => c.link_share ? percent(100 * c.link_share) : "", key: c => c.link_share },
    { label: "waited", num: true, cell: c => duration(c.waited_ns), key: c => c.waited_ns },
  ], of.collectives, { label: "collectives" }) : null;
  const balance = of.regions.length ? table([
    { label: "region", cls: "name", cell: r => el("code", null, r.path.join("::")) },
    { label: "slowest rank", num: true, cell: r => r.slowest },
    { label: "above the mean", num: true, cell: r => percent(100 * r.imbalance), key: r => r.imbalance },
    { label: "compute by rank", cell: r => r.compute_ns.slice(0, 16).map(duration).join(", ") },
  ], of.regions, { label: "regions by rank" }) : null;
  section("ranks", "Ranks", `Shares of each rank's time; overlaps count once. ${clock}`, picture && picture.node, times, sums, balance);
  if (picture) picture.draw();
}
