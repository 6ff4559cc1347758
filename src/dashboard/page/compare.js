// Two runs compared by `rgpu compare`.

const times = time => [duration(time.a.median_ns), " → ", duration(time.b.median_ns)];
const speedup = time => digits(time.speedup) + " ×" + (time.ci95 ? ` (${digits(time.ci95[0])} – ${digits(time.ci95[1])})` : "");
const verdictBadge = verdict => badge(verdict, verdictClass(verdict));

const timeColumns = [
  { label: "time", cell: row => row.time && times(row.time), num: true },
  { label: "speedup", cell: row => row.time && speedup(row.time), num: true },
  { label: "verdict", cell: row => row.time && verdictBadge(row.time.verdict) },
];

function metricText(change) {
  const unit = change.unit ? " " + change.unit : "";
  return el("li", { title: change.metric }, `${change.label}: ${digits(change.a)} → ${digits(change.b)}${unit} `,
    change.change !== "neutral" && badge(change.change, change.change === "better" ? "good" : "bad"));
}

async function compareView(params) {
  if (!params.a || !params.b) {
    return { title: "Compare", nodes: [card(null, empty("Choose two runs in the list of runs."), link(view("/runs"), "runs"))] };
  }
  const head = card(null, facts([["base", runLink(params.a)], ["compared with it", runLink(params.b)]]),
    el("p", null, link(view("/compare", { ...params, a: params.b, b: params.a }), "the other way round")),
    commandLine("rgpu compare " + (params.force ? "--force " : "") + params.a + " " + params.b));
  let data;
  try {
    data = await get("/compare", only(params, ["a", "b", "force"]));
  } catch (error) {
    const force = error.code === "unlike_runs" && link(view("/compare", { ...params, force: true }), "compare all the same");
    return { title: "Compare", nodes: [head, failureBox(error), force && el("p", null, force)] };
  }
  return {
    title: "Compare",
    nodes: [
      head,
      card("Verdict", el("p", null, verdictBadge(data.verdict)), el("p", { class: "lead" }, said(data.summary)),
        data.time && facts([["time", times(data.time)], ["speedup", speedup(data.time)], ["smallest effect that counts", percent(data.threshold * 100)]]),
        data.differences.length > 0 && [el("h3", null, "Conditions that differ"), grid("Differences", [
          { label: "what", always: true, cell: d => words(d.what) }, { label: "base", cell: d => d.a }, { label: "compared", cell: d => d.b }], data.differences)]),
      data.cases.length > 0 && card("Cases", grid("Cases", [{ label: "case", always: true, cell: row => row.name }, ...timeColumns], data.cases)),
      data.kernels.length > 0 && card("Kernels", grid("Kernels", [
        { label: "kernel", cls: "name", always: true, cell: row => kernelName(row.kernel) },
        ...timeColumns,
        { label: "what changed", cls: "text", cell: row => row.metrics.length ? el("ul", { class: "plain" }, row.metrics.slice(0, 6).map(metricText)) : null },
      ], data.kernels)),
      data.gaps.length > 0 && card("Not compared", el("ul", { class: "plain" }, data.gaps.map(gap => el("li", null, said(gap.text))))),
    ],
  };
}
