// Two runs compared by `rgpu compare`.

const times = time => [duration(time.a.median_ns), " → ", duration(time.b.median_ns)];
const factor = x => x.toFixed(3) + "\u00a0×";
const speedup = time => factor(time.speedup) + (time.ci95 ? ` (${time.ci95.map(x => x.toFixed(3)).join(" – ")})` : "");
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

/** The ids of the base and of the run compared with it. Of two picked runs the older one is the base. */
async function comparedRuns(params) {
  if (params.a && params.b) return [params.a, params.b];
  const picked = (params.pick || "").split(" ").filter(Boolean);
  if (picked.length !== 2) return null;
  const details = await Promise.all(picked.map(id => get("/runs/" + encodeURIComponent(id))));
  return details.map(detail => detail.run).sort((one, other) => Date.parse(one.started) - Date.parse(other.started)).map(run => run.id);
}

async function compareView(params) {
  const compared = await comparedRuns(params);
  if (!compared) {
    return { title: "Compare", nodes: [card(null, el("p", { class: "empty" }, "Tick two runs in the ", link(view("/runs"), "list of runs"), "."))] };
  }
  const [a, b] = compared;
  const force = params.force ? true : "";
  const sides = [["base", runLink(a)], ["compared run", runLink(b)]];
  const command = card(null, el("p", { class: "note" }, "The same in a terminal, in the project's folder:"),
    commandLine(shellWords(["rgpu", "compare", ...(force ? ["--force"] : []), a, b])),
    el("p", null, link(view("/compare", { a: b, b: a, force }), "compare the other way round")));
  let data;
  try {
    data = await get("/compare", { a, b, force });
  } catch (error) {
    const isUnlike = error.code === "unlike_runs";
    const anyway = isUnlike && link(view("/compare", { a, b, force: true }), "compare anyway");
    if (isUnlike && error.cause) error.cause = el("ul", { class: "plain" }, error.cause.split("\n").map(line => el("li", null, said(line.replace(/^[^:]*/, words)))));
    return { title: "Compare", nodes: [card(null, facts(sides)), failureBox(error), anyway && el("p", null, anyway), command] };
  }
  return {
    title: "Compare",
    nodes: [
      card("Verdict", el("p", null, verdictBadge(data.verdict)), el("p", { class: "lead" }, said(data.summary)),
        facts([...sides, ...(data.time ? [["time", times(data.time)], ["speedup", speedup(data.time)], ["smallest effect that counts", percent(data.threshold * 100)]] : [])]),
        data.differences.length > 0 && [el("h3", null, "Conditions that differ"), grid("Differences", [
          { label: "what", always: true, cell: d => words(d.what) }, { label: "base", cell: d => d.a }, { label: "compared run", cell: d => d.b }], data.differences)]),
      data.cases.length > 0 && card("Cases", grid("Cases", [{ label: "case", always: true, cell: row => row.name }, ...timeColumns], data.cases)),
      data.kernels.length > 0 && card("Kernels", grid("Kernels", [
        { label: "kernel", cls: "name", always: true, cell: row => kernelName(row.kernel) },
        // Under the tool each kernel was timed too seldom for a verdict.
        ...timeColumns.filter(column => column.label !== "verdict").map(column => ({ ...column, label: column.label + " under the tool" })),
        { label: "what changed", cls: "text", cell: row => row.metrics.length ? el("ul", { class: "plain" }, row.metrics.slice(0, 6).map(metricText)) : null },
      ], data.kernels)),
      data.gaps.length > 0 && card("Not compared", el("ul", { class: "plain" }, data.gaps.map(gap => el("li", null, said(gap.text))))),
      command,
    ],
  };
}
