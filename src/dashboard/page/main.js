// Which view is shown, by the address; and what changes while it is.

const VIEWS = [
  { path: "/", label: "Overview", make: overviewView },
  { path: "/hosts", label: "Hosts", make: hostsView },
  { path: "/runs", label: "Runs", make: runsView, one: runView, onePath: "/run/" },
  { path: "/compare", label: "Compare", make: compareView },
  { path: "/suites", label: "Suites", make: suitesView, one: suiteView },
  { path: "/history", label: "History", make: historyView },
  { path: "/queue", label: "Queue", make: queueView, one: entryView },
  { path: "/loops", label: "Loops", make: loopsView, one: loopView },
  { path: "/model", label: "Model", make: modelView },
];

document.getElementById("project").textContent = page.project;
const liveText = document.getElementById("live");
const heading = el("h1", { class: "view" });
const content = el("div");
main.replaceChildren(heading, content);
nav.append(...VIEWS.filter(one => !exported || one.path !== "/compare").map(one => el("a", { href: view(one.path) }, one.label)));

/** A part of the address as text; as it stands if it is not well-formed. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** The view of the address, its parameters, and what is chosen. */
function chosen() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const params = Object.fromEntries(new URLSearchParams(query || ""));
  const prefix = one => one.onePath || one.path + "/";
  const single = VIEWS.find(one => one.one && path.startsWith(prefix(one)));
  if (single) {
    const id = decoded(path.slice(prefix(single).length));
    return { one: single, params, make: () => single.one(params, id) };
  }
  const one = VIEWS.find(other => other.path === path) || VIEWS[0];
  return { one, params, make: () => one.make(params) };
}

let turn = 0;
let loading = false;
let changed = false;
let kept = null;
let stopLive = null;
let timer = null;

/** Shows the view of the address. What has the focus keeps it; a view that says so is not drawn again. */
async function show(isNew) {
  const mine = ++turn;
  loading = true;
  changed = false;
  const { one, make } = chosen();
  nav.querySelectorAll("a").forEach(a => a.getAttribute("href") === view(one.path) ? a.setAttribute("aria-current", "page") : a.removeAttribute("aria-current"));
  let made;
  try {
    made = await make();
  } catch (error) {
    made = { title: one.label, nodes: [failureBox(error)] };
  }
  if (mine !== turn) return;
  loading = false;
  if (changed) refreshSoon();
  if (document.querySelector("dialog[open]") && !isNew) return;
  if (!isNew && made.keep && made.keep === kept) return;
  kept = made.keep || null;
  if (stopLive) stopLive();
  stopLive = null;
  const focus = document.activeElement && document.activeElement.dataset ? document.activeElement.dataset.focus : null;
  const caret = focus && document.activeElement.selectionStart;
  const open = isNew ? [] : [...content.querySelectorAll("details[open] > summary")].map(node => node.textContent);
  heading.textContent = made.title;
  document.title = made.title + " · rgpu";
  content.replaceChildren(...[made.nodes].flat(Infinity).filter(node => node instanceof Node));
  if (made.mounted) stopLive = made.mounted() || null;
  content.querySelectorAll("details > summary").forEach(node => { if (open.includes(node.textContent)) node.parentNode.open = true; });
  const again = focus && [...content.querySelectorAll("[data-focus]")].find(node => node.dataset.focus === focus);
  if (again) {
    again.focus({ preventScroll: true });
    if (caret !== null && caret !== undefined && again.setSelectionRange) again.setSelectionRange(caret, caret);
  } else if (isNew && turn > 1) {
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  document.documentElement.dataset.ready = performance.now().toFixed(0);
}

/** Shows the view again. If it is being loaded, it is loaded once more after that. */
function refreshSoon() {
  clearTimeout(timer);
  timer = setTimeout(() => {
    if (loading) changed = true;
    else show(false);
  }, 250);
}

let before = location.hash.split("?")[0];
window.addEventListener("hashchange", () => {
  // The same view with other filters keeps the focus and the place.
  const path = location.hash.split("?")[0];
  const same = path === before;
  before = path;
  kept = null;
  show(!same);
});

document.addEventListener("keydown", event => {
  const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (typing || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
  if (event.key === "/") {
    const search = content.querySelector("input[type=search]");
    if (search) {
      event.preventDefault();
      search.focus();
    }
  }
  const number = Number(event.key);
  const links = [...nav.querySelectorAll("a")];
  if (number >= 1 && number <= links.length) location.hash = links[number - 1].getAttribute("href");
});

if (exported) {
  liveText.textContent = "exported";
} else {
  let first = true;
  let stop = null;
  const takers = { changed: () => {
    liveText.textContent = "live";
    if (!first) refreshSoon();
    first = false;
  } };
  const connect = () => { stop = listen("/live", takers, failed); };
  const failed = isRefused => {
    liveText.textContent = "not connected: trying again";
    if (!isRefused) return;
    // The browser does not try again; an ordinary request tells why.
    stop();
    get("/hosts").then(() => setTimeout(connect, 3000), error => {
      if (error.status === 401) liveText.textContent = RESTARTED;
      else if (error.status !== 403) setTimeout(connect, 3000);
    });
  };
  connect();
}
show(true);
