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
const seen = new IntersectionObserver(list => {
  for (const entry of list) {
    if (entry.isIntersecting) links.forEach(a => a.classList.toggle("here", a.hash === "#" + entry.target.id));
  }
}, { rootMargin: "-20% 0px -70% 0px" });
main.querySelectorAll("section").forEach(s => seen.observe(s));
root.dataset.ready = (performance.now() - began).toFixed(0);
