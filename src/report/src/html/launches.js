// The selected launch, the lists of launches and kernels, and the stall reasons.

let chosen = Math.max(0, page.launches.findIndex(l => l.id === page.first_launch));
const watchers = [];
const current = () => page.launches[chosen];
/** Draws now and whenever another launch is selected. */
function onLaunch(f) { watchers.push(f); f(current()); }
function choose(at) { chosen = at; watchers.forEach(f => f(current())); }
/** Draws into `box` as `onLaunch`, and again when its width changes; `f` gets the width too. */
function onLaunchAndWidth(box, f) {
  let width;
  const draw = () => { width = box.clientWidth; f(current(), width || 1100); };
  onLaunch(draw);
  new ResizeObserver(() => { if (box.clientWidth !== width) draw(); }).observe(box);
}

function label(launch) {
  const time = launch.duration_ns === undefined ? "" : `, ${duration(launch.duration_ns)}`;
  return `#${launch.id} ${short(launch.kernel)}${time}`;
}

/** A select box shared by all sections about one launch; absent if there is only one launch. */
function picker() {
  const list = page.launches.filter(l => l.detailed);
  if (list.length < 2) return null;
  const select = el("select", { "aria-label": "Launch", on: { change: e => choose(Number(e.target.value)) } },
    list.map(l => el("option", { value: page.launches.indexOf(l) }, label(l))));
  onLaunch(() => { select.value = String(chosen); });
  return el("div", { class: "picker" }, el("span", null, "Launch"), select);
}

const region = path => path.map(p => p.replace(/::/g, "\\::")).join("::");

function launches() {
  const list = page.launches;
  if (list.length && list.some(l => l.detailed)) {
    const pct = id => ({ num: true, cell: l => { const x = number(l, id); return x === undefined ? "" : x.toFixed(1); }, key: l => number(l, id) });
    section("launches", "Launches", list.length > 1 ? "Select a row to see its roofline, stalls, hot spots and metrics." : null,
      table([
        { label: "#", num: true, cell: l => l.id, key: l => l.id },
        { label: "kernel", cell: l => kernelName(l.kernel), key: l => l.kernel, cls: "name" },
        { label: "duration", num: true, cell: l => l.duration_ns === undefined ? "" : duration(l.duration_ns), key: l => l.duration_ns },
        { label: "grid × block", cell: l => l.grid ? `${l.grid.join("·")} × ${l.block.join("·")}` : "" },
        { label: "regs", num: true, cell: l => l.registers, key: l => l.registers },
        { label: "SM %", ...pct("sm__throughput.avg.pct_of_peak_sustained_elapsed") },
        { label: "mem %", ...pct("gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed") },
        { label: "bound by", cell: l => l.classification ? words(l.classification.primary) : "" },
        { label: "region", cls: "name", cell: l => l.region.length ? el("span", { class: "mono", title: region(l.region) }, breakable(region(l.region.map(rangeName)))) : "", key: l => region(l.region) },
      ], list, { label: "launches", stack: true, search: list.length > 12 ? l => l.kernel + " " + region(l.region) : null, pick: (line, l) => {
        if (list.length < 2) return;
        const at = list.indexOf(l);
        line.className = "pick" + (at === chosen ? " on" : "");
        line.tabIndex = 0;
        line.setAttribute("aria-label", "Select launch " + label(l));
        line.addEventListener("click", () => choose(at));
        line.addEventListener("keydown", e => { if (e.key === "Enter" || e.key === " ") { e.preventDefault(); choose(at); } });
        watchers.push(() => line.classList.toggle("on", at === chosen));
      } }));
  }
  if (page.kernels.length && !list.some(l => l.detailed)) {
    const work = k => k.total_ns - (k.set_up_ns || 0);
    const total = sum(page.kernels.map(work));
    const setUp = sum(page.kernels.map(k => k.set_up_ns || 0));
    section("kernels", "Kernels", `${plural(page.kernels.length, "kernel")}, ${duration(total)} on ${page.summed_over ? `the GPUs, summed over ${page.summed_over}` : "the GPU"}${setUp ? `, apart from ${duration(setUp)} of set-up: ${SET_UP}. Shares leave it out` : ""}.`, table([
      { label: "kernel", cell: k => kernelName(k.kernel), key: k => k.kernel, cls: "name" },
      { label: "share", num: true, cell: k => percent(100 * work(k) / Math.max(1, total)), key: work },
      { label: "total", num: true, cell: k => duration(k.total_ns), key: k => k.total_ns },
      ...(setUp ? [{ label: "set-up", num: true, cell: k => k.set_up_ns ? duration(k.set_up_ns) : "", key: k => k.set_up_ns || 0 }] : []),
      { label: "launches", num: true, cell: k => count(k.launches), key: k => k.launches },
      { label: "mean", num: true, cell: k => duration(k.total_ns / Math.max(1, k.launches)), key: k => k.total_ns / k.launches },
      { label: "min", num: true, cell: k => duration(k.min_ns), key: k => k.min_ns },
      { label: "max", num: true, cell: k => duration(k.max_ns), key: k => k.max_ns },
    ], page.kernels, { label: "kernels", stack: true, search: page.kernels.length > 12 ? k => k.kernel : null }));
  }
}

/** What is counted as set-up. */
const SET_UP = "a compiler's benchmarks, launches in ranges such as “init” or “warmup”, and random numbers before the work";

const stallMeaning = reason => (page.stall_meanings || {})[reason];
/** The tooltip of a stall reason. */
const stallTitle = reason => stallMeaning(reason) ? `${reason}: a warp ${stallMeaning(reason).replaceAll("`", "")}` : null;
/** What stall reasons mean, for those who have no pointer. */
function stallMeanings(reasons) {
  const known = [...new Set(reasons)].filter(stallMeaning);
  return known.length > 0 && el("details", { class: "note below" }, el("summary", null, "What the reasons say of a warp"),
    el("dl", { class: "facts" }, known.map(reason => [el("dt", { class: "mono" }, reason), el("dd", null, said(stallMeaning(reason)))])));
}

function stalls() {
  if (!page.launches.some(l => l.stalls.length)) {
    return absent.push(["Stalls", "no warp states were collected (ncu's sections WarpStateStats and SourceCounters)"]);
  }
  const box = el("div");
  section("stalls", "Why warps waited", "", box);
  onLaunch(launch => {
    const list = launch.stalls.filter(s => (s.percent || 0) >= 0.05 || s.samples);
    const samples = sum(list.map(s => s.samples || 0));
    const share = s => s.percent === undefined ? (samples ? 100 * (s.samples || 0) / samples : 0) : s.percent;
    const counted = list.some(s => s.percent !== undefined);
    const base = counted ? "Share of a warp's time between two of its instructions, from exact counters, and the number of samples with that reason."
      : "Share of the samples of waiting warps, and their number: this launch has no counters of warp states.";
    box.replaceChildren(...(list.length ? [el("p", { class: "note" }, base), el("div", { class: "bars" }, list.map((s, at) => [
      el("span", { class: "mono", title: stallTitle(s.reason) }, s.reason),
      el("span", { class: "track" }, bar("fill", share(s) / 100, s.reason === "selected" ? 2 : at < 3 ? 1 : 9)),
      el("span", { class: "num" }, percent(share(s))),
      el("span", { class: "num dim extra" }, s.samples === undefined ? "" : plural(s.samples, "sample")),
    ])), stallMeanings(list.map(s => s.reason))].filter(Boolean) : [el("p", { class: "dim" }, "No warp states were collected for this launch.")]));
    box.dataset.drawn = list.length;
  });
}
