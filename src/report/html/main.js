// Assembles the page; handles theme and navigation.

const began = performance.now();
chosen = firstChosen();
for (const part of [summary, comparison, findings, kernelVerdicts, cases, launches, timeline, roofline, stalls, series, hotspots, regions, operators, toolRules, metrics, sanitizer, code, ladder, about]) part();
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
document.documentElement.dataset.ready = (performance.now() - began).toFixed(0);
