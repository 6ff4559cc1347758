// Parts of views: links, states, times, spark lines, tables, plots and logs.

const view = (path, params) => "#" + address(path, params);
const link = (href, ...children) => el("a", { href, class: "link" }, ...children);
/** A link to a view of one thing; only its text where the export has no details of it. */
const detailLink = (path, document, text) => exported && !exported[document]
  ? el("span", { title: "the export does not have its details" }, text) : link(view(path), text);
const runLink = (id, text) => detailLink("/run/" + encodeURIComponent(id), "/runs/" + id, text || id);
const suiteLink = (id, text) => detailLink("/suites/" + encodeURIComponent(id), "/suites/" + id, text || id);
const entryLink = (id, text) => detailLink("/queue/" + id, "/queue/" + id, text);
const loopLink = (id, text) => detailLink("/loops/" + encodeURIComponent(id), "/loops/" + id, text || id);
/** Links to the remotes of a run, which may have several; those of a suite have spaces between them. */
const remoteLinks = remote => (remote || "local").split(/[ ,]+/).map((name, at) => [at > 0 && ", ", link(view("/hosts", { host: name }), name)]);
/** A link to the runs of which a suite or a run on several remotes consists. */
const partsLink = run => run.result === "suite" ? link(view("/runs", { parent: "suite:" + run.id }), "all runs of this suite")
  : run.remote.includes(",") ? link(view("/runs", { q: run.id }), "all runs of this command") : null;

const stateText = state => words(state);
const STATE_CLASS = {
  running: "warn running", detached: "warn", done: "good", failed: "bad", cancelled: "", never_submitted: "bad",
  waiting: "", ok: "good", timeout: "bad", skipped: "warn", lost: "bad", pruned: "", issue: "bad", warning: "warn", unfinished: "warn",
  errors_found: "warn",
};
const badge = (text, cls) => el("span", { class: "badge " + (cls || "") }, text);
const stateBadge = state => badge(stateText(state), STATE_CLASS[state.replaceAll(" ", "_")]);
/** The state of a run or suite. What is no state of a run, such as an exit status, went wrong. */
const runState = run => badge(run.state_text === "errors found" ? plural(run.errors_found, "error") + " found" : run.state_text,
  STATE_CLASS[run.state_text.replaceAll(" ", "_")] ?? "bad");
const isActive = run => run.state === "running" || run.state === "detached";
const verdictClass = verdict => ({ FASTER: "good", SLOWER: "bad", AMBIGUOUS: "warn" })[verdict] || "";
const checkBadge = checked => checked && checked !== "unchecked"
  ? badge(checked, checked === "right" ? "good" : "bad") : null;

/** The reader's time zone at a moment, such as `UTC+2`. */
function zone(date) {
  const minutes = -date.getTimezoneOffset();
  const [hours, rest] = [Math.floor(Math.abs(minutes) / 60), Math.abs(minutes) % 60];
  return "UTC" + (minutes === 0 ? "" : (minutes < 0 ? "−" : "+") + hours + (rest ? ":" + String(rest).padStart(2, "0") : ""));
}

/** A moment in the reader's time zone; the tooltip has it as it was written. */
function moment(text, withZone, withSeconds) {
  const date = new Date(text);
  if (Number.isNaN(date.getTime())) return text;
  const pad = n => String(n).padStart(2, "0");
  const day = `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const clock = `${pad(date.getHours())}:${pad(date.getMinutes())}${withSeconds ? ":" + pad(date.getSeconds()) : ""}`;
  return el("time", { datetime: text, title: `${clock} ${zone(date)}, written as ${text}` }, `${day} ${clock}${withZone ? " " + zone(date) : ""}`);
}
/** A moment where no table's column would be too narrow for its zone. */
const fullMoment = text => moment(text, true);
const seconds = s => s < 0.001 ? "under 1 ms" : s < 59.5 ? duration(s * 1e9) : s < 3600 ? Math.floor(Math.round(s) / 60) + " min " + Math.round(s) % 60 + " s" : (s / 3600).toFixed(1) + " h";
const range = ci => ci ? duration(ci[0]) + " – " + duration(ci[1]) : null;

/** The last times as a line; the newest is the dot. */
function spark(times) {
  if (!times || times.length < 2) return null;
  const [low, high] = [Math.min(...times), Math.max(...times)];
  const room = Math.max(high - low, high * 0.02) || 1;
  const at = (x, n) => [2 + 104 * n / (times.length - 1), 19 - 16 * (x - low) / room];
  const points = times.map((x, n) => at(x, n).map(v => v.toFixed(1)).join(",")).join(" ");
  const [cx, cy] = at(times[times.length - 1], times.length - 1);
  const text = `${times.length} times from ${duration(low)} to ${duration(high)}, now ${duration(times[times.length - 1])}`;
  return svg("svg", { class: "spark", viewBox: "0 0 110 22", role: "img", "aria-label": text },
    svg("title", null, text), svg("polyline", { points }), svg("circle", { cx, cy, r: 2.4 }));
}

/** A plot of times over the dates at which they were measured, oldest first: `{value, at, interval, title, change}`. */
function timePlot(points, label) {
  const [width, height, left, bottom] = [560, 160, 76, 22];
  const all = points.flatMap(p => p.interval ? [...p.interval, p.value] : [p.value]);
  const [least, most] = [Math.min(...all), Math.max(...all)];
  // Times that are hardly different are not drawn as if they were.
  const room = Math.max((most - least) * 0.1, most * 0.01);
  const [low, high] = [Math.max(0, least - room), most + room];
  const dates = points.map(p => Date.parse(p.at));
  const [first, last] = [dates[0], dates[dates.length - 1]];
  const x = n => left + (width - left - 12) * (last > first ? (dates[n] - first) / (last - first) : points.length === 1 ? 0.5 : n / (points.length - 1));
  const pad = n => String(n).padStart(2, "0");
  const day = date => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
  const isOneDay = day(new Date(first)) === day(new Date(last));
  const when = ms => day(new Date(ms)) + (isOneDay ? ` ${pad(new Date(ms).getHours())}:${pad(new Date(ms).getMinutes())}` : "");
  const y = value => 8 + (height - bottom - 14) * (1 - (value - low) / (high - low || 1));
  const grid = [0, 0.5, 1].map(part => low + (high - low) * part);
  const band = points.every(p => p.interval) && points.length > 1
    ? points.map((p, n) => `${x(n)},${y(p.interval[1])}`).concat(points.map((p, n) => `${x(n)},${y(p.interval[0])}`).reverse()).join(" ") : null;
  return el("div", { class: "plot-box" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    grid.map(value => [svg("line", { class: "grid", x1: left, x2: width - 12, y1: y(value), y2: y(value) }),
      // A fifth of the distance, so that rounding does not make equal distances look unequal.
      svg("text", { x: left - 8, y: y(value) + 4, "text-anchor": "end" }, axis(value, (high - low) / 10))]),
    band && svg("polygon", { class: "band", points: band }),
    svg("polyline", { class: "line", points: points.map((p, n) => `${x(n)},${y(p.value)}`).join(" ") }),
    points.map((p, n) => svg("circle", { class: p.change ? "dot change" : "dot", cx: x(n), cy: y(p.value), r: p.change ? 5 : 3 }, svg("title", null, p.title))),
    points.length === 1 ? svg("text", { x: x(0), y: height - 6, "text-anchor": "middle" }, when(first))
      : [svg("text", { x: left, y: height - 6 }, when(first)), svg("text", { x: width - 12, y: height - 6, "text-anchor": "end" }, when(last))]));
}

/** A table. `columns`: {label, cell(row), num, cls}; a column without content is left out. */
function grid(label, columns, rows) {
  const empty = content => content === "" || content === undefined || content === null;
  const cells = rows.map(row => columns.map(column => column.cell(row)));
  const shown = columns.map((column, at) => ({ column, at })).filter(({ column, at }) => column.always || cells.some(row => !empty(row[at])));
  const cls = column => [column.num && "num", column.cls].filter(Boolean).join(" ") || null;
  // On a phone rows are blocks; the roles keep it a table for screen readers.
  return el("div", { class: "scroll", role: "region", "aria-label": label + ", table", tabindex: 0 }, el("table", { role: "table" },
    el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, shown.map(({ column }) => el("th", { scope: "col", role: "columnheader", class: cls(column) }, column.label)))),
    el("tbody", { role: "rowgroup" }, cells.map(row => el("tr", { role: "row" }, shown.map(({ column, at }) => {
      const cell = el("td", { role: "cell", class: cls(column), "data-label": column.label });
      if (!empty(row[at])) cell.append(el("div", null, row[at]));
      return cell;
    }))))));
}

/** A card; without an id it is no landmark. */
const card = (title, ...children) => el("section", title ? { "aria-label": title } : null, title && el("h2", null, title), ...children);
const empty = text => el("p", { class: "empty" }, said(text));
const facts = pairs => el("dl", { class: "facts" }, pairs.filter(([, value]) => value !== undefined && value !== null && value !== false && value !== "")
  .map(([name, value]) => [el("dt", null, name), fill(el("dd"), null, [value])]));
const problem = (text, bad) => el("p", { class: bad ? "problem bad" : "problem", role: "status" }, said(text));

// The sequences with which a program colours its output or moves the cursor.
const ESCAPES = /\u001b(?:\[[0-?]*[ -/]*[@-~]|\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[@-Z\\-_])/g;
/** What a terminal would show of a program's output: no colours, and the last state of a progress line. */
const terminalText = text => text.replace(ESCAPES, "").split("\n").map(line => {
  const shown = line.replace(/\r+$/, "");
  return shown.slice(shown.lastIndexOf("\r") + 1).replace(/[\u0000-\u0008\u000b-\u001f\u007f]/g, "");
}).join("\n");
const logBox = (label, text, attributes) => el("pre", { class: "log", tabindex: 0, role: "region", "aria-label": label, ...attributes }, text);
const isAtEnd = box => box.scrollTop + box.clientHeight > box.scrollHeight - 20;

/** A box for output that grows, which follows its end while the reader is there. */
function growingLog(label) {
  const box = logBox(label, "");
  // The last line may go on with the next piece.
  let rest = "";
  const restNode = document.createTextNode("");
  box.append(restNode);
  const add = piece => {
    const follows = isAtEnd(box);
    const text = rest + piece;
    const end = text.lastIndexOf("\n") + 1;
    if (end > 0) restNode.before(terminalText(text.slice(0, end)));
    rest = text.slice(end);
    rest = rest.slice(rest.lastIndexOf("\r", rest.length - 2) + 1);
    restNode.data = terminalText(rest);
    while (box.childNodes.length > 400) box.firstChild.remove();
    if (follows) box.scrollTop = box.scrollHeight;
  };
  return { box, add };
}

/** The words of a command line, none of which breaks at its dashes. */
const commandWords = text => text.split(" ").map((word, at) => [at > 0 && " ", word.includes("-") ? el("span", { class: "word" }, word) : word]);
/** A path, which breaks after its slashes before it breaks elsewhere. */
const pathCode = path => el("code", null, path.split("/").map((part, at) => at > 0 ? ["/", el("wbr"), part] : part));
const codeLine = text => el("code", null, commandWords(text));

/** A message of a tool or compiler: several lines stay as they are, in their columns. */
const toolMessage = text => text.includes("\n")
  ? logBox("Message", terminalText(text))
  : el("span", null, said(text));

/** Why something is not shown. The cause is a text or a node. */
function failureBox(error) {
  const hints = (error.hints || []).map(hint => el("li", null, said(hint)));
  return el("div", { class: "problem bad", role: "alert" }, el("strong", null, said(error.message)), error.cause && el("div", null, error.cause instanceof Node ? error.cause : toolMessage(String(error.cause).trimEnd())),
    hints.length > 0 && el("ul", { class: "plain" }, hints));
}

/** A command as a shell would read it: words that a shell would take apart are quoted. */
const shellWords = command => command.map(word => /^[\w@%+=:,./-]+$/.test(word) ? word : "'" + word.replaceAll("'", "'\\''") + "'").join(" ");

/** The command line that does the same, to copy. */
function commandLine(text) {
  const button = el("button", { type: "button", on: { click: async () => {
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      button.textContent = "Select and copy";
    }
  } } }, "Copy");
  return el("div", { class: "command" }, fill(codeLine(text), { tabindex: 0 }, []), button);
}

/** A patch, with its lines coloured by their first character. */
function patchView(text, iteration) {
  const kind = line => line.startsWith("@@") ? "hunk" : /^\+(?!\+\+)/.test(line) ? "add" : /^-(?!--)/.test(line) ? "del" : "";
  return logBox("Patch of iteration " + iteration,
    text.split("\n").slice(0, 4000).map(line => el("span", { class: "code " + kind(line) }, line + "\n")));
}
