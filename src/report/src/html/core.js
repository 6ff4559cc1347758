// Building blocks of the page: elements, formatted numbers, sections.
// Foreign text only becomes text nodes or attribute values; no markup is parsed.
const page = JSON.parse(document.getElementById("data").textContent);
const main = document.querySelector("main");
const nav = document.querySelector("nav");
const absent = [];

/** A text in which no line ends between a number and its unit. */
const unbroken = text => text.replace(/(\d) (?=(?:%|×|°C|W|min|h|[nµm]?s|[kMGTP]?i?B(?:\/s)?|[kMG]?Hz|[kMGTP]?FLOP(?:\/s)?)(?![\p{L}\d]))/gu, "$1\u00a0");
/** Code may be copied, so its spaces stay as they are. */
const isCode = node => node.tagName === "CODE" || node.tagName === "PRE" || node.classList.contains("code");

function fill(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "on") for (const [event, f] of Object.entries(value)) node.addEventListener(event, f);
    else node.setAttribute(name, value === true ? "" : value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false) continue;
    node.append(typeof child === "string" && !isCode(node) ? unbroken(child) : child);
  }
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) =>
  fill(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);

/** A card with a heading and an entry in the navigation. */
function section(id, title, note, ...children) {
  const node = el("section", { id, "aria-labelledby": id + "-title" },
    el("h2", { id: id + "-title" }, title), note && el("p", { class: "note" }, note), ...children);
  main.append(node);
  nav.append(el("a", { href: "#" + id }, title));
  return node;
}

function digits(x) {
  const a = Math.abs(x);
  if (a >= 99.95 || a === 0) return x.toFixed(0);
  if (a >= 9.995) return x.toFixed(1);
  if (a >= 0.0995) return x.toFixed(2);
  return x.toPrecision(2);
}
function scaled(x, units) {
  const [scale, unit] = units.find(([s]) => Math.abs(x) >= s * 0.9995) || units[units.length - 1];
  const value = x / scale;
  return (scale === 1 && Number.isInteger(value) ? String(value) : digits(value)) + (unit ? " " + unit : "");
}
const duration = ns => scaled(ns, [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);
/** A time on an axis, with enough digits to distinguish labels `step` apart. */
function axis(ns, step) {
  const [scale, unit] = [[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]].find(([s]) => Math.abs(ns) >= s) || [1, "ns"];
  return (ns / scale).toFixed(Math.max(0, Math.ceil(-Math.log10(step / scale) - 1e-9))) + " " + unit;
}
/** Round values from `low` to `high`, about `most` of them: multiples of 1, 2 or 5 times a power of ten. */
function roundTicks(low, high, most) {
  if (!(high > low)) return { list: [low], gap: 1 };
  const power = 10 ** Math.floor(Math.log10((high - low) / most));
  const gap = [1, 2, 5].map(m => m * power).find(gap => (high - low) / gap <= most) || 10 * power;
  const list = [];
  for (let n = Math.ceil(low / gap); n * gap <= high; n++) list.push(n * gap);
  return { list, gap };
}
const bytes = n => scaled(n, [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"], [1, "B"]]);
const si = (x, unit) => {
  const text = scaled(x, [[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);
  return text.includes(" ") ? text + unit : text + " " + unit;
};
const rate = (x, unit) => si(x, unit === "byte/s" ? "B/s" : unit);
const percent = x => (Math.abs(x) < 9.995 ? x.toFixed(2) : x.toFixed(0)) + " %";
/** Units of ncu that are things to count. */
const countedUnits = ["block", "cycle", "sector", "thread", "warp"];
/** A number with the unit of evidence: times, shares and counts each in one form. */
const measured = (x, unit) => unit === "ns" ? duration(x) : unit.startsWith("%") ? (Number.isInteger(x) ? x + " %" : Math.abs(x) < 9.995 ? percent(x) : digits(x) + " %") + unit.slice(1) : si(x, x !== 1 && countedUnits.includes(unit) ? unit + "s" : unit).trim();
const count = n => Number(n).toLocaleString("en-US").replace(/,/g, "\u202f");
const words = id => String(id).replace(/_/g, " ").replace(/\bgpu\b/g, "GPU");
const sum = list => list.reduce((a, b) => a + b, 0);
const plural = (n, one) => count(n) + " " + (n === 1 ? one : /[^aeiou]y$/.test(one) ? one.slice(0, -1) + "ies" : /(s|x|ch|sh)$/.test(one) ? one + "es" : one + "s");

/** Short names of kernels and words of metrics; tooltips have the full names. */
const names = new Map(page.names || []);
/** A sentence of ours; text in backticks is shown as code, a name by its short form. A text with an odd number of them stays as it is. */
const said = text => {
  const parts = text.split("`");
  return parts.length % 2 ? parts.map((part, at) => at % 2 === 0 ? part : names.has(part) ? kernelName(part) : el("code", { class: part.length < 24 && "whole" }, part)) : text;
};
/** A sentence with a long list of names in it: what precedes the list, which opens. */
const saidShort = text => {
  const parts = text.split("`");
  return parts.length % 2 && parts.length > 13 ? el("details", null, el("summary", null, parts[0] || `${(parts.length - 1) / 2} names`), said(text)) : said(text);
};

/** A kernel's short name; the tooltip has the full one. */
function short(name) {
  if (names.has(name)) return names.get(name);
  const cut = name.indexOf("(");
  const text = (cut > 0 ? name.slice(0, cut) : name).replace(/^void /, "");
  return text.length > 72 ? text.slice(0, 71) + "…" : text;
}
const kernelName = name => el("span", { title: name, class: "mono" }, breakable(short(name)));
/** A long name that may break after `_`, `::` and `,`, and before a capital. */
const breakable = name => name.split(/(?<=_|::|,)|(?<=[a-z])(?=[A-Z])/).flatMap((part, at) => at ? [el("wbr"), part] : part);
/** The name of a range; XLA's arguments are cut to the one that names the module, operation or pass. */
function rangeName(part) {
  const [, kind, list] = /^(TSL@\w+):#(.*)#$/.exec(part) || [];
  const value = ["hlo_op=", "name=", "hlo_module=", "module="].map(key => list && list.split(",").find(word => word.startsWith(key))).find(Boolean);
  return value ? `${kind}:${value.slice(value.indexOf("=") + 1)}` : part;
}
const color = at => `var(--c${at % 10})`;
const resolved = at => getComputedStyle(document.documentElement).getPropertyValue("--c" + (at % 10)).trim();
const themed = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

/** The functions that are called when the theme changes, because canvases store colours, not variables. */
const repaint = [];

/** A bar of `share` (0 to 1) as an element; its width is set through the object model, since the
    page's policy allows no style attributes. */
function bar(cls, share, at) {
  const node = el("i", { class: cls });
  node.style.width = Math.max(0, Math.min(1, share)) * 100 + "%";
  if (at !== undefined) node.style.background = color(at);
  return node;
}

/** A number with its label, and `share` of something (0 to 1) as a meter. */
function tile(label, value, extra, share) {
  return el("div", { class: "tile" }, el("div", { class: "k" }, label), el("div", { class: "v" }, value),
    extra && el("div", { class: "s" }, extra), share !== undefined && el("div", { class: "meter" }, bar(null, share)));
}
