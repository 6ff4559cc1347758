// Metrics that ncu sampled while the launch ran.

function series() {
  if (!page.launches.some(l => l.series && l.series.length)) return;
  const box = el("div", { class: "series" });
  section("series", "Over the launch", "What ncu's sampler saw while the launch ran. Percentages are drawn from 0 to 100, other metrics from 0 to their largest value.", box);
  onLaunch(launch => {
    const list = (launch.series || []).filter(s => s.values.some(v => v !== 0));
    box.replaceChildren(...(list.length ? list.flatMap(seriesRow) : [el("p", { class: "dim" }, "Nothing was sampled during this launch.")]));
    box.dataset.drawn = list.length;
  });
}

/** The unit of a metric, from its name: `smsp__inst_executed.avg.per_cycle_active` is `inst/cycle`. */
function counted(name) {
  const [what, ...how] = name.split(".");
  if (how.includes("pct") || how.some(part => part.startsWith("pct_of"))) return "%";
  const noun = ["cycles", "sectors", "wavefronts", "inst", "ctas", "cgas", "warps", "bytes", "requests"].find(word => what.split("_").includes(word));
  const per = how.some(part => part.startsWith("per_cycle")) ? "/cycle" : how.includes("per_second") ? "/s" : "";
  return noun ? noun + per : per && "1" + per;
}

function seriesRow(s) {
  const name = s.metric.slice(s.metric.lastIndexOf(".TriageCompute.") + 1).replace("TriageCompute.", "");
  const most = Math.max(...s.values), top = s.unit === "%" ? Math.max(100, most) : most;
  const x = at => 300 * at / Math.max(1, s.values.length - 1), y = v => 34 - 32 * Math.max(0, v) / top;
  const line = s.values.map((v, at) => `${x(at).toFixed(1)},${y(v).toFixed(1)}`).join(" ");
  const span = duration(s.interval_ns * (s.values.length - 1));
  // ncu gives no unit for counts: the name says what is counted, and how.
  const unit = s.unit || counted(name);
  return [
    el("span", { class: "mono", title: s.metric }, breakable(name)),
    svg("svg", { viewBox: "0 0 300 36", preserveAspectRatio: "none", role: "img", "aria-label": `${name} over ${span}` },
      svg("polyline", { points: line })),
    el("span", { class: "num dim" }, `at most ${unit === "%" ? percent(most) : `${most >= 1e4 ? count(Math.round(most)) : digits(most)} ${unit}`.trim()} in ${span}`),
  ];
}
