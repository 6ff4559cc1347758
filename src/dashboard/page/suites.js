// Suites: their cases as a matrix, the history of times, and predictions beside measurements.

const suiteTable = suites => grid("Suites", [
  { label: "suite", always: true, cell: line => [suiteLink(line.id, line.title || line.id), el("span", { class: "sub" }, line.id)] },
  // A suite that is done is judged by its cases.
  { label: "state", cell: line => line.state_text === "done" ? null : runState(line) },
  { label: "cases", cell: line => suiteCounts(line.counts) },
  { label: "started", cls: "nowrap", cell: line => moment(line.started) },
  { label: "took", num: true, cell: line => line.seconds > 0 ? seconds(line.seconds) : null },
], suites);

async function suitesView() {
  const data = await get("/suites");
  return {
    title: "Suites",
    nodes: [
      el("p", null, link(view("/history"), "history of all cases")),
      card(null, data.suites.length ? suiteTable(data.suites) : empty("no suites yet: `rgpu bench run` makes one")),
    ],
  };
}

/** Named sizes in the order in which the targets have them, then sizes that are numbers, by their value. */
function inOrder(sizes) {
  const isNumber = size => /^(?:[^=,;]*=)?-?\d/.test(size);
  const byValue = (a, b) => a.localeCompare(b, "en", { numeric: true });
  return [...sizes.filter(size => !isNumber(size)), ...sizes.filter(isNumber).sort(byValue)];
}

/** A row for each target, a column for each size: the times, coloured by their verdict. */
function suiteMatrix(rows, hasEnded) {
  const remotes = new Set(rows.map(row => row.remote));
  // Axes that are sizes are columns; the others are rows. The name of a case has them in the order of the file.
  const place = (row, axis) => row.case.replace("[", ",").indexOf("," + axis);
  const axes = (row, time) => Object.entries(row.axes || {}).map(([name, value]) => name + "=" + value)
    .filter(axis => !time.sizes.split(/[,;]/).includes(axis)).sort((a, b) => place(row, a) - place(row, b));
  const lineOf = (row, time) => [row.target, ...axes(row, time), time.side !== "kernel" && time.side, remotes.size > 1 && row.remote].filter(Boolean).join(" · ");
  const cells = rows.flatMap(row => (row.times || []).map(time => ({ time, line: lineOf(row, time), size: time.size || time.sizes || "default" })));
  const sizes = inOrder([...new Set(cells.map(cell => cell.size))]);
  const lines = [...new Set(cells.map(cell => cell.line))];
  if (lines.length === 0) {
    return empty(!hasEnded ? "no case has been timed yet" : rows.some(ranWithoutGpu) ? "no case was timed: a time needs a host with a GPU" : "no case was timed");
  }
  const of = (line, size) => cells.find(cell => cell.line === line && cell.size === size);
  return grid("Matrix of cases and sizes", [
    { label: "case", cls: "name", always: true, cell: line => line },
    ...sizes.map(size => ({ label: size, num: true, cell: line => {
      const found = of(line, size);
      if (!found) return null;
      const against = found.time.against;
      return [duration(found.time.median_ns), against && el("span", { class: "sub", title: (against.why || "").replaceAll("`", "") || null }, badge(against.verdict, verdictClass(against.verdict)))];
    } })),
  ], lines);
}

/** Whether a case ended well on a host without a GPU. */
const ranWithoutGpu = row => row.state === "no_gpu";

/** The state of a case, and below it why it is so. */
function caseState(row, hasEnded) {
  if (hasEnded && row.state === "running") return [badge("interrupted", "warn")];
  if (ranWithoutGpu(row)) return [badge("no GPU", "warn"), el("span", { class: "sub" }, "not timed")];
  const why = row.reason ? words(row.reason) : row.state === "ok" && !(row.times || []).length ? "not timed" : null;
  return [badge(words(row.state), STATE_CLASS[row.state]), why && el("span", { class: "sub" }, why)];
}

async function suiteView(params, id) {
  const [data, { suites }] = await Promise.all([get("/suites/" + encodeURIComponent(id)), get("/suites")]);
  // The suite's own document does not know that its command was killed, or that cases failed.
  const line = suites.find(suite => suite.id === id) || { state_text: words(data.state) };
  const hasEnded = line.state_text !== "running";
  const left = data.rows.filter(row => !["ok", "no_gpu", "failed"].includes(row.state)).length;
  const failed = data.rows.filter(row => row.state === "failed");
  return {
    title: "Suite " + data.id,
    nodes: [
      card(null, el("div", { class: "row head" }, el("div", { class: "row" }, runState(line), data.clean && el("span", { class: "badge good", title: "the last attempt of every case is ok" }, "clean")), el("div", { class: "row" }, runLink(data.id, "the suite's run"), link(view("/runs", { parent: "suite:" + data.id }), "all its runs"))),
        data.rows.some(ranWithoutGpu) && problem("Cases without a GPU: nothing ran on one, so there are no times of a GPU. `--remote NAME` names a host that has one."),
        line.state_text === "unfinished" && problem(`${count(left)} of ${plural(data.rows.length, "case")} did not run to the end: \`rgpu bench resume ${data.id}\` continues it.`),
        facts([["started", fullMoment(data.started)], ["took", hasEnded && data.seconds > 0 && seconds(data.seconds)], ["file", data.file],
          ["commit", data.commit && data.commit.slice(0, 12) + (data.dirty ? ", with changes" : "")]])),
      card("Times", suiteMatrix(data.rows, hasEnded)),
      card("Cases", grid("Cases", [
        { label: "case", cls: "name", always: true, cell: row => [row.run ? runLink(row.run, row.case) : row.case, " ", link(view("/history", { case: row.case }), "history")] },
        { label: "state", cell: row => caseState(row, hasEnded) },
        { label: "remote", cell: row => row.remote },
        { label: "pair", cell: row => row.pair && [verdictBadge(row.pair.verdict), row.pair.speedup !== null && el("span", { class: "sub", title: (row.pair.sizes || []).map(one => `${one.size}: ${factor(one.speedup)}`).join("\n") || null },
          factor(row.pair.speedup), (row.pair.sizes || []).length > 1 && ` mean of ${row.pair.sizes.length} sizes`)] },
        { label: "took", num: true, cell: row => row.seconds ? seconds(row.seconds) : null },
        { label: "to run this case alone", cls: "text", cell: row => codeLine(row.again) },
      ], data.rows)),
      failed.length > 0 && card("Failures", el("ul", { class: "plain" }, failed.map(row => el("li", null, el("strong", null, row.case), ": ", row.failure ? toolMessage(row.failure) : words(row.reason || "failed"))))),
    ],
  };
}

async function historyView(params) {
  const data = await get("/history", only(params, ["case", "gpu"]));
  // Short kernels are judged by their times in CUDA graphs.
  const judged = (series, point) => series.in_graphs ? point.graph_ns : point.median_ns;
  const name = key => [key.case, key.side === "kernel" ? "" : key.side, key.case.endsWith(`[${key.sizes}]`) ? "" : key.sizes, key.gpu, key.toolkit].filter(Boolean).join(" · ");
  const search = el("input", { type: "search", value: params.case || "", placeholder: "memory:*", "data-focus": "case", title: "the key / goes here",
    on: { change: event => { location.hash = view("/history", { ...params, case: event.target.value }); } } });
  return {
    title: "History",
    nodes: [
      !exported && el("form", { class: "filters", on: { submit: event => event.preventDefault() } }, el("label", null, "case, with * and ?", search)),
      data.series.length === 0 && card(null, empty(params.case || params.gpu ? "no times of cases that fit: `*` stands for any characters" : "no times of suites yet: `rgpu bench run` on a host with a GPU makes some, and `rgpu runs reindex` reads those of run folders that were copied here")),
      !exported && data.series.length > 0 && el("p", { class: "note" }, said("Times of run folders that were copied here appear after `rgpu runs reindex`.")),
      el("div", { class: "plots" }, data.series.slice(0, 60).map(series => card(name(series.key),
        timePlot(series.points.map((point, at) => ({
          value: judged(series, point), at: point.started, interval: series.in_graphs ? null : point.ci95_ns, change: series.changes.some(change => change.at === at),
          title: `${point.started} · ${point.run} · ${duration(judged(series, point))} · ${point.commit.slice(0, 9)}` })), "History of " + name(series.key)),
        series.in_graphs && el("p", { class: "note" }, "times in a CUDA graph"),
        series.changes.length > 0 && el("ul", { class: "plain" }, series.changes.map(change => el("li", null,
          "changed at ", runLink(series.points[change.at].run), `: ${duration(change.before)} to ${duration(change.after)} (${((change.after / change.before - 1) * 100).toFixed(1)} %)`)))))),
      data.series.length > 60 && problem(`The first 60 of ${data.series.length} series are drawn: choose cases.`),
    ],
  };
}

/** Measured times beside the least that the GPU allows. */
function boundTable(rows) {
  const lines = rows.flatMap(row => row.bound.map(share => ({ row, share })));
  return grid("Predictions beside measurements", [
    { label: "kernel", cls: "name", always: true, cell: ({ row }) => row.run ? runLink(row.run, row.kernel) : row.kernel },
    { label: "case", cell: ({ share }) => share.case },
    { label: "GPU", cls: "nowrap", cell: ({ row, share }) => row.gpu || share.gpu },
    { label: "bound", num: true, cell: ({ share }) => duration(share.bound_ns) },
    { label: "measured", num: true, cell: ({ share }) => share.percent > 0 ? duration(share.bound_ns * 100 / share.percent) : null },
    { label: "of the bound", num: true, cell: ({ share }) => [percent(share.percent), el("div", { class: "meter" }, bar(null, share.percent / 100))] },
    { label: "limit", cell: ({ share }) => share.unit || words(share.limit) },
    { label: "measured at", cls: "nowrap", cell: ({ row }) => moment(row.started) },
  ], lines);
}

async function modelView() {
  const data = await get("/model");
  return { title: "Model", nodes: [
    el("p", { class: "note" }, "The newest run of each kernel and GPU, beside the least time that the GPU's memory and units allow. ", el("code", null, "rgpu model"), " predicts more. Above 100 %, the data came from a cache, or the kernel's ", el("code", null, "[work]"), " is wrong."),
    card(null, data.rows.length ? boundTable(data.rows) : empty("nothing to compare yet: it takes a run on a GPU that `rgpu model hw list` names, of a kernel whose kernel.toml has `[work]`")),
  ] };
}
