// Hot spots of the selected launch: source lines and instructions with their stall reasons.

const file = path => path.split("/").pop();
const worst = counts => Object.entries(counts.stalls || {}).filter(([reason]) => reason !== "selected").sort((a, b) => b[1] - a[1])[0];

function hotspots() {
  const launches = page.hotspots || [];
  if (!launches.length) {
    return absent.push(["Hot spots", "there are no values per instruction (ncu's section SourceCounters; `--set full` has it)"]);
  }
  const box = el("div");
  let wished = "lines";
  const tab = (id, text) => el("button", { type: "button", on: { click: () => { wished = id; draw(); } } }, text);
  const [lines, instructions] = [tab("lines", "Source lines"), tab("instructions", "Instructions")];
  section("hotspots", "Hot spots", "Warp samples show where warps were at each sampling point: many samples mean much time.", box);

  function draw() {
    const launch = current();
    const spots = launches.find(l => launch && l.launch === launch.id) || (page.launches.length < 2 ? launches[0] : null);
    if (!spots) {
      const leftOut = launch && (page.hotspots_left_out || []).includes(launch.id);
      return box.replaceChildren(el("p", { class: "dim" }, leftOut ? "The values per instruction of this launch are not in this page; they are in the JSON." : "This launch has no values per instruction."));
    }
    const view = spots.lines.length ? wished : "instructions";
    lines.disabled = !spots.lines.length;
    lines.setAttribute("aria-pressed", String(view === "lines"));
    instructions.setAttribute("aria-pressed", String(view === "instructions"));
    const total = spots.samples || sum(spots.instructions.map(i => i.samples || 0));
    const heat = row => {
      const node = el("span", null, row.samples === undefined ? "" : percent(100 * row.samples / Math.max(1, total)));
      return node;
    };
    const most = Math.max(1, ...(view === "lines" ? spots.lines : spots.instructions).map(r => r.samples || 0));
    const shared = [
      { label: "samples", num: true, cell: r => r.samples === undefined ? "" : count(r.samples), key: r => r.samples || 0 },
      { label: "share", num: true, cls: "hot", cell: r => [bar(null, (r.samples || 0) / most), heat(r)], key: r => r.samples || 0 },
    ];
    const waits = { label: "waits for", cell: r => { const w = worst(r); return w ? el("span", { class: "whole", title: stallTitle(w[0]) }, `${w[0]} ${(100 * w[1] / Math.max(1, r.samples || w[1])).toFixed(0)} %`) : ""; }, key: r => (worst(r) || [""])[0] };
    const counted = [
      { label: "executed", num: true, cell: r => r.executed === undefined ? "" : count(r.executed), key: r => r.executed },
      { label: "threads", num: true, cell: r => r.thread_executed === undefined || !r.executed ? "" : (r.thread_executed / r.executed).toFixed(1), key: r => r.thread_executed / r.executed },
    ];
    const at = a => a ? `${file(a.file)}:${a.line}` : "";
    const here = r => r.at && r.at.length ? r.at[r.at.length - 1] : null;
    const list = view === "lines"
      ? table([{ label: "line", cell: r => el("code", { title: r.at.file, class: "whole" }, at(r.at)), key: r => r.at.file + String(r.at.line).padStart(7) },
        { label: "source", cls: "code", cell: r => r.text }, ...shared, waits, ...counted,
        { label: "instructions", num: true, cell: r => count(r.instructions), key: r => r.instructions }],
      spots.lines, { label: "source lines", search: r => `${r.at.file}:${r.at.line} ${r.text || ""}`, tools: [lines, instructions], sort: { label: "samples", down: true }, stack: true })
      : table([{ label: "offset", num: true, cell: r => el("code", null, "0x" + r.offset.toString(16).padStart(4, "0")), key: r => r.offset },
        { label: "instruction", cls: "code", cell: r => r.sass }, ...shared, waits, ...counted,
        { label: "line", cell: r => here(r) ? el("code", { class: "whole", title: r.at.map(a => `${a.file}:${a.line}`).join(" › ") }, at(here(r))) : "" }],
      spots.instructions, { label: "instructions", search: r => `${r.sass || ""} ${here(r) ? at(here(r)) : ""}`, tools: [lines, instructions], limit: 200, sort: { label: "samples", down: true }, stack: true });
    const facts = [`${plural(total, "sample")} over ${plural(spots.instructions.length, "instruction")}`];
    if (!spots.lines.length) facts.push("no source lines: the code was compiled without `-lineinfo`, or the report has no cubin");
    else if (spots.lines.every(l => l.text === undefined)) facts.push("the report does not contain the source (`ncu --import-source yes` adds it)");
    if (spots.instructions.every(i => i.sass === undefined)) facts.push("no instruction texts: there was no disassembler");
    const reasons = (view === "lines" ? spots.lines : spots.instructions).map(worst).filter(Boolean).map(w => w[0]);
    box.replaceChildren(...[list, el("p", { class: "note below" }, said(facts.join("; ") + ".")), stallMeanings(reasons)].filter(Boolean));
    box.dataset.drawn = view === "lines" ? spots.lines.length : spots.instructions.length;
  }
  onLaunch(draw);
}
