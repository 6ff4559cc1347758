// Puts the page together, and minds the theme and the navigation.

const root = document.documentElement;
const wished = window.matchMedia("(prefers-color-scheme: dark)");
const toggle = document.getElementById("theme");
let asked = null;
function theme() {
  const dark = asked === null ? wished.matches : asked;
  root.dataset.theme = dark ? "dark" : "light";
  toggle.textContent = dark ? "☀ Light" : "☾ Dark";
  repaint.forEach(f => f());
}
toggle.addEventListener("click", () => { asked = root.dataset.theme !== "dark"; theme(); });
wished.addEventListener("change", theme);
theme();

const began = performance.now();
const first = page.launches.findIndex(l => l.detailed);
if (first >= 0) chosen = first;
for (const part of [summary, comparison, findings, cases, launches, timeline, roofline, stalls, hotspots, regions, operators, toolRules, metrics, sanitizer, code, ladder, about]) part();
const choice = picker();
if (choice) document.getElementById("launches").querySelector("h2").after(choice);

const links = [...nav.querySelectorAll("a")];
const sections = [...main.querySelectorAll("section")];
function mark() {
  const above = sections.filter(s => s.getBoundingClientRect().top < 150);
  const here = above.length ? above[above.length - 1] : sections[0];
  links.forEach(a => a.classList.toggle("here", a.hash === "#" + here.id));
}
window.addEventListener("scroll", mark, { passive: true });
mark();
root.dataset.ready = (performance.now() - began).toFixed(0);
