// The timeline: ranges and calls by thread, kernels and copies by stream, on a canvas that zooms.

/** Events of one row, which never overlap: {start, length, name, kind, more}. */
function lanes(trace) {
  const rows = new Map();
  const put = (order, title, kind, event) => {
    const key = order.join("/");
    if (!rows.has(key)) rows.set(key, { order, title, kind, events: [] });
    rows.get(key).events.push(event);
  };
  const end = trace.span_ns;
  // Tools number threads by process and system. Readers only need to tell them apart.
  const threads = [...new Set([...trace.ranges, ...trace.calls].map(e => e[3]))];
  // The thread with the most calls comes first, then the GPU, then all other threads.
  const calls = id => trace.calls.filter(c => c[3] === id).length;
  const most = new Map(threads.map(id => [id, calls(id)]));
  threads.sort((a, b) => most.get(b) - most.get(a));
  const rank = id => (id === threads[0] ? 0 : 2);
  const which = id => threads.length > 1 ? `, thread ${threads.indexOf(id) + 1}` : "";
  // Rows of one rank stand together.
  const of = number => (number === null || number === undefined ? [0, ""] : [number, `rank ${number}, `]);
  for (const [name, start, length, thread, depth, number] of trace.ranges) {
    const [at, whose] = of(number);
    put([at, rank(thread), threads.indexOf(thread), 0, depth], depth ? "" : `${whose}NVTX ranges${which(thread)}`, "range",
      { start, length: length === null ? end - start : length, name: trace.names[name], open: length === null });
  }
  for (const [name, start, length, thread, waits, number] of trace.calls) {
    const [at, whose] = of(number);
    put([at, rank(thread), threads.indexOf(thread), 1, 0], `${whose}CUDA calls${which(thread)}`, "call", { start, length, name: trace.names[name], waits });
  }
  for (const [kind, name, start, length, device, stream, size, launch, number] of trace.work) {
    const [at, whose] = of(number);
    const copy = kind === "copy" || kind === "set";
    put([at, 1, device, stream, copy ? 1 : 0], `${whose}GPU ${device}, stream ${stream}${copy ? ", copies" : ""}`, kind,
      { start, length, name: trace.names[name], size, launch });
  }
  return [...rows.values()].sort((a, b) => {
    for (let at = 0; at < 5; at++) if (a.order[at] !== b.order[at]) return a.order[at] - b.order[at];
    return 0;
  }).flatMap(stacked);
}

/** Overlapping work on one stream, and ranges that cross, get a row each, so that none hides another. */
function stacked(lane) {
  lane.events.sort((a, b) => a.start - b.start);
  const rows = [];
  for (const event of lane.events) {
    let row = rows.find(r => r.end <= event.start);
    if (!row) {
      if (rows.length >= 8) row = rows[7];
      else rows.push(row = { title: rows.length ? "" : lane.title, events: [], end: 0 });
    }
    row.events.push(event);
    row.end = Math.max(row.end, event.start + event.length);
  }
  return rows;
}

/** As much of a text as is at most `room` wide, with … for what is cut off; empty if that is next to nothing. */
function fitting(g, text, room) {
  if (g.measureText(text).width <= room) return text;
  let [fits, not] = [0, text.length];
  while (not - fits > 1) {
    const middle = (fits + not) >> 1;
    if (g.measureText(text.slice(0, middle) + "…").width <= room) fits = middle;
    else not = middle;
  }
  return fits < 3 ? "" : text.slice(0, fits) + "…";
}

/** More rows than this are shown only on request: compilers have many threads. */
const MAX_ROWS = 24;

function timeline() {
  const trace = page.trace;
  if (!trace || !(trace.work.length + trace.ranges.length + trace.calls.length)) {
    return absent.push(["Timeline", "no events were recorded (they come from nsys, the CUPTI collector or a torch trace)"]);
  }
  const every = lanes(trace);
  let rows = every.slice(0, MAX_ROWS);
  const names = new Map();
  const hue = event => {
    if (!names.has(event.name)) names.set(event.name, names.size);
    return names.get(event.name);
  };
  every.forEach(r => r.events.forEach(hue));
  const [ROW, AXIS] = [24, 24];
  const height = () => AXIS + rows.length * ROW + 6;
  const canvas = el("canvas", { tabindex: 0, role: "img", "aria-label":
    "Timeline. Arrow left and right move, plus and minus zoom, 0 shows all, comma and full stop go from event to event." });
  const told = el("p", { class: "picked dim", "aria-live": "polite" }, "Drag to move, Ctrl and wheel to zoom; click an event, or step through them with “,” and “.”.");
  const span = Math.max(1, trace.span_ns);
  let [from, to] = [0, span];
  let picked = null;
  const all = every.flatMap((r, row) => r.events.map(event => ({ event, row }))).sort((a, b) => a.event.start - b.event.start);
  const width = () => canvas.clientWidth || 900;
  // Wide enough for the titles of rows, but not most of a narrow screen.
  const gutter = () => Math.min(168, width() / 3);
  const X = t => gutter() + (t - from) / (to - from) * (width() - gutter() - 8);
  const T = x => from + (x - gutter()) / (width() - gutter() - 8) * (to - from);

  function draw() {
    const ratio = window.devicePixelRatio || 1;
    const w = width();
    canvas.width = w * ratio;
    canvas.height = height() * ratio;
    canvas.style.height = height() + "px";
    const g = canvas.getContext("2d");
    g.scale(ratio, ratio);
    const [ink, dim, line, card, soft, onAccent] = ["ink", "dim", "line", "card", "soft", "on-accent"].map(themed);
    const palette = Array.from({ length: 10 }, (_, at) => resolved(at));
    g.fillStyle = card;
    g.fillRect(0, 0, w, height());
    g.font = "12px system-ui, sans-serif";
    g.textBaseline = "middle";
    let drawn = 0;
    const labels = Math.max(2, Math.min(8, (w - gutter()) / 64));
    const { list, gap } = roundTicks(from, to, labels);
    let free = 0;
    for (const t of list) {
      g.fillStyle = line;
      g.fillRect(X(t), AXIS, 1, height());
      g.fillStyle = dim;
      const text = t === 0 ? "0" : axis(t, gap);
      const end = X(t) + 4 + g.measureText(text).width;
      if (X(t) + 4 < free || end > w) continue;
      g.fillText(text, X(t) + 4, AXIS / 2);
      free = end + 6;
    }
    rows.forEach((row, at) => {
      const y = AXIS + at * ROW;
      if (row.title) { g.fillStyle = line; g.fillRect(0, y, w, 1); }
      let edge = -1;
      for (const event of row.events) {
        if (event.start > to || event.start + event.length < from) continue;
        const x = Math.max(gutter(), X(event.start));
        const right = Math.min(w, X(event.start + event.length));
        const wide = Math.max(1.5, right - x);
        // Events that share a pixel are drawn once.
        if (wide <= 1.5 && x - edge < 1) continue;
        edge = x;
        g.fillStyle = palette[hue(event) % 10];
        g.globalAlpha = event.waits ? 0.45 : 1;
        g.fillRect(x, y + 3, wide, ROW - 6);
        g.globalAlpha = 1;
        drawn++;
        if (picked && picked.event === event) {
          g.strokeStyle = ink;
          g.lineWidth = 2;
          g.strokeRect(x, y + 2, wide, ROW - 4);
        }
        if (wide > 34) {
          g.fillStyle = event.waits ? ink : onAccent;
          g.fillText(fitting(g, short(event.name), wide - 9), x + 5, y + ROW / 2 + 0.5);
        }
      }
      g.fillStyle = row.title ? soft : card;
      g.fillRect(0, y + 1, gutter() - 6, ROW - 1);
      g.fillStyle = dim;
      g.fillText(row.title, 8, y + ROW / 2, gutter() - 18);
    });
    canvas.dataset.drawn = drawn;
  }

  const facts = event => {
    const parts = [duration(event.length) + (event.open ? " (never closed)" : ""), "at " + duration(event.start)];
    if (event.size) parts.push(`${bytes(event.size)}, ${rate(event.size / event.length * 1e9, "B/s")}`);
    if (event.waits) parts.push("waits for the GPU");
    return parts.join(", ");
  };
  const pick = hit => {
    picked = hit;
    told.replaceChildren(el("b", null, hit.event.name), unbroken(" " + facts(hit.event)));
    const { start, length } = hit.event;
    if (start < from || start + length > to) view(start - (to - from) / 3, to - from);
    if (page.launches[hit.event.launch] && page.launches[hit.event.launch].detailed) choose(hit.event.launch);
    draw();
  };
  const hit = (x, y) => {
    const row = rows[Math.floor((y - AXIS) / ROW)];
    if (!row || x < gutter()) return null;
    const slack = (to - from) / width() * 3;
    const t = T(x);
    let best = null;
    for (const event of row.events) {
      if (event.start - slack > t) break;
      if (event.start + event.length + slack >= t) best = event;
    }
    return best && { event: best, row: rows.indexOf(row) };
  };
  function view(start, length) {
    length = Math.max(20, Math.min(span, length));
    start = Math.max(0, Math.min(span - length, start));
    [from, to] = [start, start + length];
    draw();
  }
  const began = trace.work.length ? trace.work[0][2] : 0;
  const ended = trace.work.reduce((most, w) => Math.max(most, w[2] + w[3]), began + 1);
  const work = [began - 0.02 * (ended - began), 1.04 * (ended - began)];
  const shown = page.account && page.account.shown;
  const step = shown && shown[0] < span ? [shown[0] - 0.02 * shown[1], 1.04 * shown[1]] : null;
  const zoom = (factor, at = (from + to) / 2) => view(at - (at - from) * factor, (to - from) * factor);
  const move = share => view(from + share * (to - from), to - from);

  const tip = el("div", { class: "tip gone" });
  document.body.append(tip);
  let dragged = null;
  canvas.addEventListener("pointerdown", e => { dragged = { x: e.clientX, from, far: false }; canvas.setPointerCapture(e.pointerId); });
  canvas.addEventListener("pointerup", e => {
    const box = canvas.getBoundingClientRect();
    const found = dragged && !dragged.far && hit(e.clientX - box.left, e.clientY - box.top);
    dragged = null;
    if (found) pick(found);
  });
  canvas.addEventListener("pointermove", e => {
    const box = canvas.getBoundingClientRect();
    if (dragged) {
      const by = e.clientX - dragged.x;
      if (Math.abs(by) > 3) dragged.far = true;
      if (dragged.far) view(dragged.from - by / (width() - gutter() - 8) * (to - from), to - from);
    }
    const found = !dragged && hit(e.clientX - box.left, e.clientY - box.top);
    tip.classList.toggle("gone", !found);
    if (found) {
      tip.replaceChildren(el("b", null, found.event.name), unbroken(facts(found.event)));
      tip.style.left = Math.min(e.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px";
      tip.style.top = e.clientY + 16 + "px";
    }
  });
  canvas.addEventListener("pointerleave", () => tip.classList.add("gone"));
  canvas.addEventListener("wheel", e => {
    if (!e.ctrlKey && !e.metaKey) return;
    e.preventDefault();
    zoom(e.deltaY > 0 ? 1.25 : 0.8, T(e.clientX - canvas.getBoundingClientRect().left));
  }, { passive: false });
  canvas.addEventListener("keydown", e => {
    const next = by => {
      const at = picked ? all.findIndex(a => a.event === picked.event) : by > 0 ? -1 : 1;
      const found = all[Math.max(0, Math.min(all.length - 1, at + by))];
      if (found) pick(found);
    };
    const keys = { ArrowLeft: () => move(-0.2), ArrowRight: () => move(0.2), "+": () => zoom(0.5), "=": () => zoom(0.5),
      "-": () => zoom(2), 0: () => view(0, span), ",": () => next(-1), ".": () => next(1) };
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  });
  const button = (text, name, f) => el("button", { type: "button", "aria-label": name, title: name, on: { click: f } }, text);
  const more = el("button", { type: "button", on: { click: () => { rows = every; more.remove(); draw(); } } }, `All ${every.length} rows`);
  section("timeline", "Timeline", null,
    el("div", { class: "tools" }, button("−", "Zoom out", () => zoom(2)), button("+", "Zoom in", () => zoom(0.5)),
      button("←", "Move left", () => move(-0.3)), button("→", "Move right", () => move(0.3)), button("All", "Show all", () => view(0, span)),
      trace.work.length ? button("GPU work", "From the first to the last piece of GPU work", () => view(...work)) : null,
      step ? button("A step", "The step that the account is about", () => view(...step)) : null,
      el("span", { class: "count" }, `${plural(trace.work.length, "piece")} of GPU work, ${plural(trace.ranges.length, "range")}, ${plural(trace.calls.length, "call")}${trace.cut ? `; ${count(trace.cut)} more events left out` : ""}`)),
    el("div", { class: "lanes" }, canvas), every.length > MAX_ROWS ? more : null, told, waiting(gap => view(gap.start_ns - gap.duration_ns, 3 * gap.duration_ns)), copies());
  repaint.push(draw);
  new ResizeObserver(draw).observe(canvas);
  // Start-up is long and not interesting, so begin at the step that the account is about, or else at the
  // first GPU work.
  if (step) view(...step);
  else if (trace.work.length && work[1] < span / 2) view(...work);
  else draw();
}

const CAUSES = {
  copy: "a copy or a fill ran alone, or the host was in a blocking copy",
  synchronisation: "the host waited for the GPU, or the next launch was late because the host had waited",
  host_late: "the host had not called the next kernel yet",
  launch_latency: "the launch call was in progress",
  queued: "the launch call had returned before: the GPU's own delay, or a wait for another stream",
  unknown: "the trace has no call for the next kernel",
};

/** Each GPU's idle time by cause, and its longest gaps; a click shows one. */
function waiting(show) {
  if (!page.timeline) return null;
  return page.timeline.devices.map(d => {
    const most = Math.max(1, ...d.waiting.map(w => w.total_ns));
    const share = percent(100 * d.busy_ns / Math.max(1, d.span_ns));
    return [
      el("h3", null, `${d.rank === undefined ? "" : `Rank ${d.rank}, `}GPU ${d.device}: busy ${share} of ${duration(d.span_ns)} from its first to its last kernel`),
      d.waiting.length ? el("div", { class: "bars" }, d.waiting.map(w => [
        el("span", null, words(w.cause)), el("span", { class: "track" }, bar("fill", w.total_ns / most, 1)),
        el("span", { class: "num" }, duration(w.total_ns)), el("span", { class: "num dim extra" }, w.gaps ? plural(w.gaps, "gap") : ""),
      ])) : null,
      d.waiting.length ? el("p", { class: "note below" }, d.waiting.filter(w => CAUSES[w.cause]).map((w, at) => [at ? "; " : "", el("b", null, words(w.cause)), ": " + CAUSES[w.cause]]), ".") : null,
      d.gaps.length ? el("details", null, el("summary", null, "Longest times without a kernel, “at” from the start of the recording"), table([
        { label: "at", num: true, cell: g => el("button", { type: "button", on: { click: () => show(g) } }, duration(g.start_ns)), key: g => g.start_ns },
        { label: "length", num: true, cell: g => duration(g.duration_ns), key: g => g.duration_ns },
        { label: "cause", cell: g => words(g.cause), key: g => g.cause },
        { label: "after", cell: g => kernelName(g.after) }, { label: "before", cell: g => kernelName(g.before) },
        { label: "call", cell: g => g.call || "" },
      ], d.gaps, { label: "times without a kernel", limit: 20 })) : null,
    ];
  });
}

function copies() {
  if (!page.copies.length) return null;
  return el("details", null, el("summary", null, "Copies and fills" + (page.summed_over ? `, summed over ${page.summed_over}` : "")), table([
    { label: "kind", cell: c => c.kind }, { label: "count", num: true, cell: c => count(c.count), key: c => c.count },
    { label: "bytes", num: true, cell: c => bytes(c.bytes), key: c => c.bytes },
    { label: "time", num: true, cell: c => duration(c.total_ns), key: c => c.total_ns },
    { label: "rate", num: true, cell: c => rate(c.bytes / Math.max(1, c.total_ns) * 1e9, "B/s"), key: c => c.bytes / c.total_ns },
  ], page.copies, { label: "copies" }));
}
