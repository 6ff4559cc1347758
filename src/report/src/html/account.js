// The picture of a step: a bar of its parts with their names in or below it, and a thinner bar of what
// runs beside them.

const [BAR, DOWN_BAR, HIDDEN_BAR, LABEL_ROW] = [76, 48, 18, 20];

/** The colours of parts by label: one of the palette for each that the GPU does, grey for the host and for waits. */
function partColors(parts) {
  const ofGpu = [...new Set(parts.filter(part => part.gpu).map(part => part.label))];
  return new Map(parts.map(part => [part.label, color(part.gpu ? ofGpu.indexOf(part.label) % 9 : 9)]));
}

/** The width of a text in the picture's font, in pixels; `strong` texts are wider. */
function textWidth(text, strong) {
  const g = textWidth.g || (textWidth.g = document.createElement("canvas").getContext("2d"));
  g.font = (strong ? "600 " : "") + "13px system-ui, sans-serif";
  return g.measureText(text).width;
}

/** Segments of `width` pixels: {part, x, wide}. Shares of more than the whole are drawn in proportion. */
function segments(parts, share, width) {
  const scale = width / Math.max(1, sum(parts.map(share)));
  let x = 0;
  return parts.map(part => {
    const wide = share(part) * scale;
    x += wide;
    return { part, x: x - wide, wide };
  }).filter(s => s.wide > 0);
}

/** Rows of labels below a bar, each at the left or the right of a line from its segment: {x, row, label}. The
    further a label is on that side, the lower it is wherever it would cross the line of another. So lines
    and texts never meet, if all labels have room on their side. */
function labelRows(list, width, toLeft) {
  const placed = [];
  const away = one => toLeft ? one.x : -one.x;
  for (const one of [...list].sort((a, b) => away(a) - away(b))) {
    const above = placed.filter(other => away(other) > away(one) - one.room - 10);
    placed.push({ ...one, row: above.length ? 1 + Math.max(...above.map(other => other.row)) : 0 });
  }
  return { toLeft, rows: placed, fits: placed.every(one => toLeft ? one.x >= one.room : one.x + one.room <= width) };
}

/** The words of a label as lines of at most `room` pixels; null if they need more than `most` lines. */
function labelLines(label, room, most) {
  const lines = [];
  for (const word of label.split(" ")) {
    const longer = lines.length ? lines[lines.length - 1] + " " + word : word;
    if (lines.length && textWidth(longer, true) <= room) lines[lines.length - 1] = longer;
    else if (textWidth(word, true) <= room) lines.push(word);
    else return null;
  }
  return lines.length <= most ? lines : null;
}

/** The rectangle of a part; the tooltip has all its numbers. */
const partBox = (part, fill, words, box) => svg("rect", { class: "part", ...box, rx: 2, fill, stroke: fill },
  svg("title", null, [`${part.label} ${words}`, part.time, part.count && `count ${part.count}`, part.largest].filter(Boolean).join(", ")));

/** A bar at `y`, and the labels of segments that are too narrow for their own; returns its nodes and their end. */
function acrossBar(parts, colors, share, text, width, y, height) {
  const nodes = [], narrow = [];
  for (const { part, x, wide } of segments(parts, share, width)) {
    const words = text(part);
    nodes.push(partBox(part, colors.get(part.label), words, { x: (x + 0.75).toFixed(2), y, width: Math.max(0.75, wide - 1.5).toFixed(2), height }));
    const room = wide - 14;
    const lines = height > 40 && textWidth(words) <= room ? labelLines(part.label, room, 3) : null;
    if (lines) {
      const first = y + (height - (lines.length + 1) * 17) / 2 + 13;
      lines.forEach((line, row) => nodes.push(svg("text", { class: "strong", x: (x + 8).toFixed(2), y: first + row * 17 }, line)));
      nodes.push(svg("text", { class: "ink", x: (x + 8).toFixed(2), y: first + lines.length * 17 }, words));
    } else {
      const label = `${part.label} ${words}`;
      narrow.push({ x: x + wide / 2, room: textWidth(label) + 8, label });
    }
  }
  const below = y + height;
  const sides = [true, false].map(toLeft => labelRows(narrow, width, toLeft));
  const { toLeft, rows } = sides.find(side => side.fits) || sides[0];
  for (const { x, row, label, room } of rows) {
    const middle = below + 8 + row * LABEL_ROW + LABEL_ROW / 2;
    nodes.push(svg("path", { class: "lead", d: `M${x.toFixed(1)} ${below}V${middle}h${toLeft ? -4 : 4}` }));
    const at = toLeft ? Math.max(x - 7, room - 7) : Math.min(x + 7, width - room + 7);
    nodes.push(svg("text", { class: "ink", x: at.toFixed(1), y: middle + 4, "text-anchor": toLeft ? "end" : "start" }, label));
  }
  const deepest = Math.max(-1, ...rows.map(one => one.row));
  return { nodes, end: below + (deepest < 0 ? 0 : 12 + (deepest + 1) * LABEL_ROW) };
}

/** The same from top to bottom, with all labels at the right: for narrow screens. */
function downBar(parts, colors, share, text, y, thick, long) {
  const nodes = [];
  let last = -Infinity;
  for (const { part, x, wide } of segments(parts, share, long)) {
    const middle = y + x + wide / 2;
    const words = text(part);
    const label = Math.max(middle, last + LABEL_ROW, y + 7);
    nodes.push(partBox(part, colors.get(part.label), words, { x: 1, y: (y + x + 0.75).toFixed(2), width: thick, height: Math.max(0.75, wide - 1.5).toFixed(2) }));
    nodes.push(svg("path", { class: "lead", d: `M${thick + 2} ${middle.toFixed(1)}h5L${thick + 15} ${label.toFixed(1)}h4` }));
    nodes.push(svg("text", { x: thick + 23, y: (label + 4.5).toFixed(1) }, svg("tspan", { class: "strong" }, part.label), svg("tspan", { class: "ink" }, ` ${words}`)));
    last = label;
  }
  return { nodes, end: Math.max(y + long, last + LABEL_ROW / 2) };
}

/** The picture of parts in `width` pixels. */
function stepPicture({ whole, parts, hidden }, width) {
  const isNarrow = width < 640;
  const colors = partColors([...parts, ...hidden]);
  const nodes = isNarrow ? [svg("text", { class: "strong", x: 0, y: 13 }, whole)]
    : [svg("path", { class: "axis measure", d: `M0.5 26v-7h${width - 1}v7` }), svg("text", { class: "strong", x: width / 2, y: 13, "text-anchor": "middle" }, whole)];
  const draw = (list, share, text, y, isThin) => isNarrow
    ? downBar(list, colors, share, text, y, isThin ? HIDDEN_BAR : DOWN_BAR, isThin ? 120 : 320) : acrossBar(list, colors, share, text, width, y, isThin ? HIDDEN_BAR : BAR);
  const top = draw(parts, part => part.share, part => part.percent, isNarrow ? 24 : 30, false);
  nodes.push(...top.nodes);
  let end = top.end;
  if (hidden.length) {
    nodes.push(svg("text", { class: "ink", x: 0, y: end + 26 }, "Hidden beside it:"));
    const bar = draw(hidden, part => part.share, part => part.time, end + 36, true);
    nodes.push(...bar.nodes);
    end = bar.end;
  }
  const told = parts.map(part => `${part.label} ${part.percent}`).join(", ") + (hidden.length ? `; hidden: ${hidden.map(part => `${part.label} ${part.time}`).join(", ")}` : "");
  const height = Math.ceil(end + 4);
  return svg("svg", { class: "plot step", role: "img", viewBox: `0 0 ${width} ${height}`, "aria-label": `${whole}: ${told}` }, nodes);
}

/** The picture in a box that draws it again when its width changes. */
function stepBox(of) {
  const box = el("div", { class: "step" });
  let drawn = 0;
  const draw = () => {
    const width = Math.floor(box.clientWidth);
    if (width < 40 || width === drawn) return;
    drawn = width;
    box.replaceChildren(stepPicture(of, width));
  };
  new ResizeObserver(draw).observe(box);
  requestAnimationFrame(draw);
  return box;
}

function partTable(parts) {
  return table([
    { label: "cause", cls: "name", cell: part => part.label },
    { label: "share", num: true, cell: part => part.percent },
    { label: "time", num: true, cell: part => part.time },
    { label: "count", num: true, cell: part => part.count },
    { label: "hidden", num: true, cell: part => part.hidden || "" },
    { label: "most of it", cls: "text", cell: part => part.largest },
  ], parts, { stack: true });
}

function account() {
  const told = page.account;
  if (!told) return;
  section("account", told.title, told.lead, stepBox(told),
    told.notes.map(note => el("p", { class: "note below" }, said(note))),
    el("details", null, el("summary", null, "As a table"), partTable(told.parts)),
    told.program && el("details", null, el("summary", null, "The whole program, start-up included"), stepBox(told.program), partTable(told.program.parts)));
}
