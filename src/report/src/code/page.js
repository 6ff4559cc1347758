// Source, PTX and SASS of one kernel at a time, linked line by line.

const kinds = ["source", "ptx", "sass"];
const titles = { source: "Source", ptx: "PTX", sass: "SASS" };
const panes = {};
const shownColumns = { source: true, ptx: true, sass: true };
const emptyColumns = { source: false, ptx: false, sass: false };
const switches = {};
const base = path => path.split(/[\\/]/).pop();
let kernel = null, joins = null, pinned = null, hits = [], hit = -1, controls = false;

for (const kind of kinds) {
  const rows = el("div", { class: "rows", tabindex: "0", role: "region", "aria-label": titles[kind], id: kind });
  const note = el("span");
  const pane = el("div", { class: "pane" }, el("h2", null, titles[kind], note), rows);
  panes[kind] = { pane, rows, note, nodes: [] };
  main.append(pane);
}

/** The class of an instruction by its opcode: memory, matrix, branch, synchronisation. */
function work(name) {
  if (/^(LD|ST|ATOM|RED|UTMA|UBLK|CCTL|LDGSTS|SULD|SUST|TEX|TLD)/.test(name)) return "m";
  if (/^(HMMA|IMMA|DMMA|QMMA|OMMA|BMMA|.GMMA|UTC|WARPGROUP)/.test(name)) return "x";
  if (/^(BRA|BRX|JM|CALL|RET|EXIT|BSSY|BSYNC|BREAK|WARPSYNC|KILL)/.test(name)) return "b";
  if (/^(BAR|UBAR|SYNCS|DEPBAR|MEMBAR|FENCE|ERRBAR|ARRIVES|NANOSLEEP)/.test(name)) return "y";
  return "";
}

function heatCell(n, most) {
  return el("span", { class: "ht" }, n ? bar(null, n / most) : null, el("span", null, n ? count(n) : ""));
}

function tint(node, at) {
  if (at !== undefined) node.style.borderLeftColor = color(at);
}

/** The links between the rows of the three columns, by row index. */
function join() {
  const source = [], at = new Map();
  kernel.files.forEach((file, number) => {
    source.push({ head: file.name, from: file.from });
    let last = 0;
    for (const [line, text] of file.lines) {
      if (last && line > last + 1) source.push({ gap: true });
      last = line;
      at.set(number + ":" + line, source.length);
      source.push({ line, text, n: 0 });
    }
  });
  const ptx = kernel.ptx.lines.map((text, i) => ({ text, line: kernel.ptx.first + i, n: 0 }));
  const own = kernel.lines.map(line => line.s ? at.get(line.s[line.s.length - 1].join(":")) : undefined);
  const outer = kernel.lines.map(line => (line.s || []).slice(0, -1).map(s => at.get(s.join(":"))));
  const low = kernel.lines.map(line => line.p && ptx[line.p - kernel.ptx.first] ? line.p - kernel.ptx.first : undefined);
  const back = { source: new Map(), via: new Map(), ptx: new Map() };
  const add = (map, key, i) => { if (key !== undefined) map.has(key) ? map.get(key).push(i) : map.set(key, [i]); };
  kernel.lines.forEach((line, i) => {
    add(back.source, own[i], i);
    outer[i].forEach(row => add(back.via, row, i));
    add(back.ptx, low[i], i);
    if (own[i] !== undefined) source[own[i]].n += line.n || 0;
    if (low[i] !== undefined) ptx[low[i]].n += line.n || 0;
  });
  const order = new Map([...back.source.keys()].sort((a, b) => a - b).map((row, i) => [row, i]));
  const tints = kernel.lines.map((_, i) => order.get(own[i]));
  return { source, ptx, own, outer, low, back, order, tints };
}

/** The rows linked to one row: `on` has the same code, `via` the calls it was inlined through. */
function partners(kind, row) {
  const on = { source: new Set(), ptx: new Set(), sass: new Set() };
  const via = { source: new Set(), ptx: new Set(), sass: new Set() };
  const put = (set, i) => {
    set.sass.add(i);
    if (joins.low[i] !== undefined) set.ptx.add(joins.low[i]);
  };
  const code = kind === "sass" ? [row] : joins.back[kind].get(row) || [];
  code.forEach(i => {
    put(on, i);
    if (joins.own[i] !== undefined) on.source.add(joins.own[i]);
    joins.outer[i].forEach(r => via.source.add(r));
  });
  if (kind === "source") (joins.back.via.get(row) || []).forEach(i => put(via, i));
  on[kind].add(row);
  return { on, via };
}

function light(kind, row) {
  for (const k of kinds) panes[k].nodes.forEach(node => node && node.classList.remove("on", "via", "pin"));
  if (kind === null) return;
  const { on, via } = partners(kind, row);
  for (const k of kinds) {
    via[k].forEach(r => panes[k].nodes[r] && panes[k].nodes[r].classList.add("via"));
    on[k].forEach(r => panes[k].nodes[r] && panes[k].nodes[r].classList.add("on"));
  }
  return { on, via };
}

function pin(kind, row, still) {
  pinned = [kind, row];
  const { on, via } = light(kind, row);
  const node = panes[kind].nodes[row];
  if (node) node.classList.add("pin");
  for (const k of kinds) {
    if (k === kind) { if (still && node) node.scrollIntoView({ block: "nearest" }); continue; }
    const rows = on[k].size ? on[k] : via[k];
    if (rows.size) {
      const first = panes[k].nodes[Math.min(...rows)];
      const box = panes[k].rows;
      box.scrollTop = Math.max(0, first.offsetTop - box.offsetTop - box.clientHeight / 3);
    }
  }
}

function unpin() { pinned = null; light(null); }

function rowNode(kind, at, joined, cls, children) {
  const node = el("div", { class: ["row", joined && "j", cls].filter(Boolean).join(" ") }, ...children);
  node.dataset.at = at;
  panes[kind].nodes[at] = node;
  return node;
}

function draw() {
  joins = join();
  pinned = null;
  const hot = kernel.samples !== null;
  const most = rows => Math.max(1, ...rows.map(r => r.n || 0));
  for (const kind of kinds) { panes[kind].nodes = []; panes[kind].rows.className = "rows" + (hot ? " ht" : ""); }

  const inSource = el("div", { class: "in" }), mostSource = most(joins.source);
  joins.source.forEach((line, at) => {
    if (line.head !== undefined) return inSource.append(el("div", { class: "row name", title: line.head }, base(line.head), line.from ? el("span", { class: "from" }, ` recorded as ${line.head}, read from ${line.from}`) : ""));
    if (line.gap) return inSource.append(el("div", { class: "row gap" }, "⋯"));
    const joined = joins.back.source.has(at) || joins.back.via.has(at);
    const text = line.text === null ? el("span", { class: "tx dim" }, "(text not available)") : el("span", { class: "tx code" }, line.text);
    const node = rowNode("source", at, joined, "", [el("span", { class: "no" }, String(line.line)), heatCell(line.n, mostSource), text]);
    tint(node, joins.order.get(at));
    inSource.append(node);
  });
  const files = kernel.files.length;
  panes.source.note.textContent = files ? plural(files, "file") : "";
  panes.source.rows.replaceChildren(inSource);

  const inPtx = el("div", { class: "in" }), mostPtx = most(joins.ptx);
  joins.ptx.forEach((line, at) => {
    const code = joins.back.ptx.get(at);
    const node = rowNode("ptx", at, Boolean(code), "", [el("span", { class: "no" }, String(line.line)), heatCell(line.n, mostPtx), el("span", { class: "tx code" }, line.text)]);
    if (code) tint(node, joins.tints[code[0]]);
    inPtx.append(node);
  });
  panes.ptx.note.textContent = joins.ptx.length && !kernel.ptx.joined ? "from the same file; not linked to the SASS (compile with -lineinfo to link them)" : "";
  panes.ptx.rows.replaceChildren(inPtx);

  const inSass = el("div", { class: "in" }), mostSass = most(kernel.lines);
  const starts = new Set(kernel.starts), heads = new Set(kernel.heads);
  const lives = kernel.lines.map(l => l.l || 0), mostLive = Math.max(0, ...lives);
  kernel.lines.forEach((line, at) => {
    if (line.f) inSass.append(el("div", { class: "row name" }, line.f));
    const cut = line.t.startsWith("@") ? line.t.indexOf(" ") : -1;
    const guard = cut > 0 ? line.t.slice(0, cut + 1) : "", rest = line.t.slice(guard.length);
    const end = rest.search(/[ ]|$/), name = rest.slice(0, end);
    const node = rowNode("sass", at, true, starts.has(line.o) ? "start" : "", [
      el("span", { class: "of" }, line.o.toString(16).padStart(4, "0")),
      heatCell(line.n, mostSass),
      el("span", { class: "ct" }, line.c),
      el("span", { class: "lv" + (mostLive && line.l === mostLive ? " most" : ""), title: "live general registers" }, line.l === undefined ? "" : String(line.l)),
      el("span", { class: "lp", title: "a loop begins here" }, heads.has(line.o) ? "↻ " : "  "),
      el("span", { class: "tx code" }, el("span", { class: "gd" }, guard.padStart(guard ? 6 : 0)), el("span", { class: "op " + work(name) }, name), rest.slice(end)),
      line.w && line.n ? el("span", { class: "wt" }, line.w.replace(/_/g, " ")) : null,
    ]);
    tint(node, joins.tints[at]);
    inSass.append(node);
  });
  panes.sass.note.textContent = (kernel.tool || "") + (kernel.lines.some(l => /, |\[/.test(l.t)) ? "" : ", without operands");
  panes.sass.rows.replaceChildren(kernel.lines.length ? inSass : el("p", { class: "none" }, "No instructions."));
  panes.sass.rows.classList.toggle("lv", mostLive > 0);
  panes.sass.rows.classList.toggle("ct", controls);
  emptyColumns.source = !files;
  emptyColumns.ptx = !joins.ptx.length;
  kinds.forEach(arrange);
  tell(mostLive);
  search();
  document.documentElement.dataset.rows = kernel.lines.length;
}

/** An empty column leaves its space to the others. */
function arrange(kind) {
  panes[kind].pane.classList.toggle("gone", emptyColumns[kind] || !shownColumns[kind]);
  switches[kind].disabled = emptyColumns[kind];
}

function tell(mostLive) {
  const missing = [emptyColumns.source && "source lines", emptyColumns.ptx && "PTX"].filter(Boolean).join(" and no ");
  const fact = (value, text) => value === null || value === undefined ? [] : [el("b", null, count(value)), " " + text];
  const parts = [fact(kernel.lines.length, "instructions"), fact(kernel.registers, "registers"),
    kernel.registers !== null && mostLive ? fact(mostLive, "live at most") : [],
    kernel.spills ? kernel.spills[0] + kernel.spills[1] ? [el("span", { class: "badge bad" }, `spills ${bytes(kernel.spills[0])} out, ${bytes(kernel.spills[1])} in`)] : ["no spills"] : [],
    kernel.shared ? [el("b", null, bytes(kernel.shared)), " shared memory"] : [],
    kernel.samples !== null ? fact(kernel.samples, "warp samples") : [],
    kernel.problem ? [el("span", { class: "badge warn", title: kernel.problem }, "nvdisasm failed")] : [],
    missing ? [`no ${missing}: compile with -lineinfo to keep them`] : [],
    [el("code", null, kernel.place ? `${kernel.path} ${kernel.place}` : kernel.path)],
    page.left_out ? [`${plural(page.left_out, "more kernel")} left out: -k chooses`] : []].filter(p => p.length);
  document.getElementById("facts").replaceChildren(...parts.flatMap((p, i) => i ? [" · ", ...p] : p));
}

const box = el("input", { type: "search", placeholder: "Search  ( / )", "aria-label": "Search all columns" });
const found = el("span", { class: "count", role: "status" });
function search() {
  const wanted = box.value.trim().toLowerCase();
  hits.forEach(([, , node]) => node.classList.remove("hit", "now"));
  hits = []; hit = -1;
  if (wanted) for (const kind of kinds) if (shownColumns[kind] && !emptyColumns[kind]) panes[kind].nodes.forEach((node, at) => {
    if (node && node.querySelector(".tx").textContent.toLowerCase().includes(wanted)) { node.classList.add("hit"); hits.push([kind, at, node]); }
  });
  found.textContent = wanted ? `${count(hits.length)} found` : "";
}
function next(step) {
  if (!hits.length) return;
  if (hit >= 0) hits[hit][2].classList.remove("now");
  hit = (hit + step + hits.length) % hits.length;
  const [kind, at, node] = hits[hit];
  node.classList.add("now");
  pin(kind, at, true);
  found.textContent = `${count(hit + 1)} of ${count(hits.length)}`;
}
box.addEventListener("input", search);
box.addEventListener("keydown", e => { if (e.key === "Enter") { e.preventDefault(); next(e.shiftKey ? -1 : 1); } });

const at = node => { const row = node.closest && node.closest(".row.j"); return row ? Number(row.dataset.at) : null; };
for (const kind of kinds) {
  const rows = panes[kind].rows;
  rows.addEventListener("mouseover", e => { const row = at(e.target); if (!pinned && row !== null) light(kind, row); });
  rows.addEventListener("mouseleave", () => { if (!pinned) light(null); });
  rows.addEventListener("click", e => {
    const row = at(e.target);
    if (row === null || (pinned && pinned[0] === kind && pinned[1] === row)) unpin(); else pin(kind, row);
  });
  rows.addEventListener("keydown", e => {
    const step = e.key === "ArrowDown" ? 1 : e.key === "ArrowUp" ? -1 : 0;
    if (!step) return;
    e.preventDefault();
    let row = pinned && pinned[0] === kind ? pinned[1] + step : step > 0 ? 0 : panes[kind].nodes.length - 1;
    while (row >= 0 && row < panes[kind].nodes.length && !(panes[kind].nodes[row] && panes[kind].nodes[row].classList.contains("j"))) row += step;
    if (panes[kind].nodes[row]) pin(kind, row, true);
  });
}
document.addEventListener("keydown", e => {
  if (e.key === "Escape") { box.value = ""; search(); unpin(); }
  if (e.key === "/" && document.activeElement !== box) { e.preventDefault(); box.focus(); }
});

const press = (text, on, act) => {
  const node = el("button", { type: "button", "aria-pressed": String(on) }, text);
  node.addEventListener("click", () => { const now = node.getAttribute("aria-pressed") !== "true"; node.setAttribute("aria-pressed", String(now)); act(now); });
  return node;
};
document.getElementById("tools").append(box, found,
  ...kinds.map(kind => switches[kind] = press(titles[kind], true, on => { shownColumns[kind] = on; arrange(kind); search(); })),
  press("Control codes", false, on => { controls = on; panes.sass.rows.classList.toggle("ct", on); }));

const label = k => `${short(k.name)} (${k.arch})` + (k.samples ? ` · ${count(k.samples)} samples` : "");
if (page.kernels.length > 1) {
  const select = el("select", { "aria-label": "Kernel" }, page.kernels.map((k, i) => el("option", { value: String(i), title: k.name }, label(k))));
  select.addEventListener("change", () => { kernel = page.kernels[Number(select.value)]; draw(); });
  document.getElementById("pick").append(select);
} else if (page.kernels.length) {
  document.getElementById("pick").append(el("b", { title: page.kernels[0].name }, label(page.kernels[0])));
}
kernel = page.kernels[0];
const began = performance.now();
if (kernel) draw();
