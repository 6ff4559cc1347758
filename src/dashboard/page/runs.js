// The list of runs: searched, filtered, paged; with a kernel chosen, its times.

const PAGE = 50;
/** More plots are folded, so that the list is not far below. */
const MAX_PLOTS = 4;
const FILTERS = ["state", "command", "remote", "gpu", "verdict", "reason"];

async function runsView(params) {
  const query = { ...only(params, ["q", "kernel", "label", "parent", "offset", ...FILTERS]), limit: PAGE };
  const data = await get("/runs", query);
  const offset = Number(params.offset || 0);
  const changeAddress = changes => { location.hash = view("/runs", { ...params, offset: "", ...changes }); };
  const typed = name => event => {
    clearTimeout(typed.timer);
    typed.timer = setTimeout(() => changeAddress({ [name]: event.target.value }), 180);
  };
  const select = name => {
    const options = Object.entries(data.facets[name]);
    if (options.length === 0 && !params[name]) return null;
    return el("label", null, words(name), el("select", { "data-focus": "filter-" + name, on: { change: event => changeAddress({ [name]: event.target.value }) } },
      el("option", { value: "" }, "all"),
      options.map(([value, n]) => el("option", { value, selected: params[name] === value }, `${words(value)} (${count(n)})`))));
  };
  const text = (name, label, placeholder) => el("label", null, label, el("input", {
    type: "search", "data-focus": "filter-" + name, value: params[name] || "", placeholder, on: { input: typed(name) } }));
  const search = text("q", "search", "kernel, GPU, note …");
  search.title = "the key / goes here";
  const choice = compareChoice(params);
  const columns = [
    { label: "compare", cell: run => run.result === "profile" && !exported ? choice.box(run) : null },
    { ...runColumns.what, cell: run => [runColumns.what.cell(run), run.labels && el("span", { class: "sub" }, "labels ", labelLinks(run.labels))] },
    ...["state", "time", "trend", "verdict", "where", "started"].map(name => runColumns[name]),
  ];
  const plots = (data.times || []).map(({ series, points }) => card(series, timePlot(points.map(point => ({
    value: point.median_ns, at: point.started, interval: point.ci95_ns, title: `${point.run} · ${duration(point.median_ns)} · ${point.started}` })), "Times of " + series + ", oldest first")));
  const folded = plots.slice(MAX_PLOTS);
  // The address may be of a page that the list no longer has.
  const isPastEnd = data.runs.length === 0 && data.found > 0;
  const [first, last] = data.runs.length ? [offset + 1, offset + data.runs.length] : [0, 0];
  const whyNone = isPastEnd ? "the list ends before this page" : data.total ? "no run matches" : data.reading ? "no run has been read yet" : NO_RUNS;
  return {
    title: params.kernel ? "Kernel " + params.kernel : "Runs",
    nodes: [
      data.reading && problem("The runs are being read for the first time; more appear here."),
      data.unreadable > 0 && unreadableBox(data.unreadable, data.unreadable_folders),
      el("form", { class: "filters", role: "search", on: { submit: event => event.preventDefault() } },
        search, text("kernel", "kernel", "part of its name"), text("label", "label", "NAME=VALUE"), FILTERS.map(select),
        params.parent && el("span", { class: "dim" }, "part of " + params.parent.replace(":", " ")),
        ["q", "kernel", "label", "parent", ...FILTERS].some(name => params[name]) && link(view("/runs"), "clear all")),
      startForm(),
      plots.length > 0 && el("div", { class: "plots" }, plots.slice(0, MAX_PLOTS)),
      folded.length > 0 && el("details", null, el("summary", { "data-focus": "more-plots" }, count(folded.length) + " more plots of times"), el("div", { class: "plots" }, folded)),
      card(null, el("div", { class: "row head" },
        el("p", { class: "note", role: "status", id: "found" }, (data.found === 0 ? "0 of 0" : `${count(first)} to ${count(last)} of ${count(data.found)}`) + (data.found !== data.total ? ` (${count(data.total)} in all)` : "")),
        exported || data.found === 0 ? null : choice.compareLink),
        data.runs.length ? grid("Runs", columns, data.runs) : empty(whyNone),
        el("div", { class: "more" },
          offset > 0 && link(view("/runs", { ...params, offset: Math.max(0, Math.min(offset, data.found) - PAGE) || "" }), "← newer"),
          !isPastEnd && last < data.found && link(view("/runs", { ...params, offset: offset + PAGE }), "older →"))),
    ],
  };
}

const labelLinks = labels => Object.entries(labels).map(([name, value], at) => [at > 0 && ", ", link(view("/runs", { label: name + "=" + value }), name + "=" + value)]);

/** The folders that the list lacks, with the reasons. */
function unreadableBox(total, folders) {
  const more = total - folders.length;
  return el("div", { class: "problem", role: "status" }, plural(total, "folder") + " left out:",
    el("ul", { class: "plain" }, folders.map(folder => el("li", null, el("code", null, folder.id), ": ", said(folder.problem))),
      more > 0 && el("li", null, count(more) + " more")));
}

/** Two runs to compare, in any order; the choice stays in the address. */
function compareChoice(params) {
  const picked = (params.pick || "").split(" ").filter(Boolean);
  const compareLink = el("span", { class: "note" }, picked.length === 2
    ? link(view("/compare", { pick: picked.join(" ") }), "Compare the two")
    : picked.length === 1 ? "tick one more run to compare" : "tick two runs to compare");
  const box = run => el("input", {
    type: "checkbox", "aria-label": "Compare " + run.id, "data-focus": "pick-" + run.id, checked: picked.includes(run.id),
    disabled: picked.length === 2 && !picked.includes(run.id), title: picked.length === 2 && !picked.includes(run.id) ? "two runs are ticked: untick one first" : null,
    on: { change: event => {
      const others = picked.filter(id => id !== run.id);
      const next = event.target.checked ? [...others, run.id] : others;
      location.hash = view("/runs", { ...params, pick: next.join(" ") });
    } } });
  return { compareLink, box };
}
