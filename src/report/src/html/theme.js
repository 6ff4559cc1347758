// Light and dark theme: the system's, until the user chooses one.

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
