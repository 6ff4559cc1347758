// Which view is shown, by the address; and what changes while it is.

const VIEWS = [
  { path: "/", label: "Overview", load: overviewView },
  { path: "/hosts", label: "Hosts", load: hostsView },
  { path: "/runs", label: "Runs", load: runsView, loadOne: runView, pathOfOne: "/run/" },
  { path: "/compare", label: "Compare", load: compareView },
  { path: "/suites", label: "Suites", load: suitesView, loadOne: suiteView },
  { path: "/history", label: "History", load: historyView },
  { path: "/queue", label: "Queue", load: queueView, loadOne: entryView },
  { path: "/loops", label: "Loops", load: loopsView, loadOne: loopView },
  { path: "/model", label: "Model", load: modelView },
];

document.getElementById("project").textContent = page.project;
const liveText = document.getElementById("live");
const heading = el("h1", { class: "view" });
const content = el("div");
main.replaceChildren(heading, content);
nav.append(...VIEWS.filter(entry => !exported || entry.path !== "/compare").map(entry => el("a", { href: view(entry.path) }, entry.label)));

/** A part of the address as text; as it stands if it is not well-formed. */
function decoded(text) {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

/** Marks the tab of the view that is shown, and brings it into sight where the tabs do not fit. */
function markCurrent(tab) {
  tab.setAttribute("aria-current", "page");
  nav.scrollLeft = tab.offsetLeft - nav.offsetLeft - (nav.clientWidth - tab.offsetWidth) / 2;
}

/** The entry of VIEWS that the address names, and a function that loads its content. */
function viewOfAddress() {
  const [path, query] = (location.hash.slice(1) || "/").split("?");
  const params = Object.fromEntries(new URLSearchParams(query || ""));
  if (path.startsWith("/runs/")) return { entry: VIEWS[2], load: () => runView(params, decoded(path.slice(6))) };
  const prefix = entry => entry.pathOfOne || entry.path + "/";
  const single = VIEWS.find(entry => entry.loadOne && path.startsWith(prefix(entry)));
  if (single) {
    const id = decoded(path.slice(prefix(single).length));
    return { entry: single, load: () => single.loadOne(params, id) };
  }
  const entry = VIEWS.find(other => other.path === path);
  if (entry) return { entry, load: () => entry.load(params) };
  return { entry: { path: null }, load: () => ({ title: "No such view", nodes: [
    card(null, empty("The address " + path + " has no view."), link(view("/"), "Overview"))] }) };
}

// Each call of show() has a number, so that an answer that comes late is dropped.
let showNumber = 0;
let wasDrawnBefore = false;
let isLoading = false;
let changedWhileLoading = false;
let drawnKey = null;
let stopFollowing = null;
let refreshTimer = null;

/**
 * Shows the view of the address. What has the focus keeps it. A view whose key is the drawn one is not drawn again.
 */
async function show(isNew) {
  const number = ++showNumber;
  isLoading = true;
  changedWhileLoading = false;
  const { entry, load } = viewOfAddress();
  nav.querySelectorAll("a").forEach(a => a.getAttribute("href") === view(entry.path) ? markCurrent(a) : a.removeAttribute("aria-current"));
  let loaded;
  try {
    loaded = await load();
  } catch (error) {
    loaded = { title: entry.label, nodes: [failureBox(error)] };
  }
  if (number !== showNumber) return;
  isLoading = false;
  if (changedWhileLoading) refreshSoon();
  if (!isNew && loaded.key && loaded.key === drawnKey) return;
  drawnKey = loaded.key || null;
  if (stopFollowing) stopFollowing();
  stopFollowing = null;
  const restore = isNew ? null : rememberInput();
  heading.textContent = loaded.title;
  document.title = loaded.title + " · rgpu";
  content.replaceChildren(...[loaded.nodes].flat(Infinity).filter(node => node instanceof Node));
  content.querySelectorAll("[data-follow]").forEach(node => { node.scrollTop = node.scrollHeight; });
  if (loaded.mounted) stopFollowing = loaded.mounted() || null;
  if (restore) restore();
  else if (wasDrawnBefore) {
    main.focus({ preventScroll: true });
    window.scrollTo(0, 0);
  }
  wasDrawnBefore = true;
  document.documentElement.dataset.ready = performance.now().toFixed(0);
}

/** What tells an element of the view from others, so that its successor is found after a refresh. */
const keyOf = node => node.dataset.focus || node.getAttribute("href") || node.getAttribute("aria-label") || node.textContent;
const withKey = key => [...content.querySelectorAll("a, button, input, select, summary, [tabindex]")].filter(node => keyOf(node) === key);

/** Where an element of the view is; `null` for what is not in it. */
function placeOf(node) {
  if (!node || node === content || !content.contains(node)) return null;
  const key = keyOf(node);
  return { key, at: withKey(key).indexOf(node) };
}
const nodeAt = place => place && withKey(place.key)[place.at];

/** Whether a field has what the user typed or chose, and the address does not have yet. */
function hasOwnInput(field) {
  if (field.type === "checkbox") return false;
  const drawn = field.tagName === "SELECT" ? ([...field.options].find(option => option.defaultSelected) || field.options[0] || {}).value : field.defaultValue;
  return field.value !== drawn;
}

/** Remembers focus, typed text, opened parts and scroll positions. Returns a function that restores them. */
function rememberInput() {
  const focus = placeOf(document.activeElement);
  const caret = focus && document.activeElement.selectionStart;
  const open = [...content.querySelectorAll("details[open] > summary")].map(placeOf);
  const fields = [...content.querySelectorAll("input, select")].filter(hasOwnInput).map(field => ({ place: placeOf(field), value: field.value }));
  const isMoved = node => node.dataset.follow ? !isAtEnd(node) : node.scrollLeft || node.scrollTop;
  const scrolled = [...content.querySelectorAll("[role=region]")].filter(isMoved)
    .map(node => ({ place: placeOf(node), left: node.scrollLeft, top: node.scrollTop }));
  return () => {
    for (const place of open) {
      const summary = nodeAt(place);
      if (summary) summary.parentNode.open = true;
    }
    for (const { place, value } of fields) {
      const field = nodeAt(place);
      if (field) field.value = value;
    }
    for (const { place, left, top } of scrolled) {
      const node = nodeAt(place);
      if (node) [node.scrollLeft, node.scrollTop] = [left, top];
    }
    if (!focus) return;
    const focused = nodeAt(focus) || main;
    focused.focus({ preventScroll: true });
    if (caret !== null && caret !== undefined && focused.setSelectionRange) focused.setSelectionRange(caret, caret);
  };
}

/** Shows the view again after a moment, for what changes without a change of a file. Returns a function that stops it. */
function refreshWhile(isActive) {
  if (exported || !isActive) return null;
  const again = setTimeout(refreshSoon, 2000);
  return () => clearTimeout(again);
}

/** Shows the view again. If it is being loaded, it is loaded once more after that. */
function refreshSoon() {
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(() => {
    if (isLoading) changedWhileLoading = true;
    else show(false);
  }, 250);
}

let pathBefore = location.hash.split("?")[0];
window.addEventListener("hashchange", () => {
  // The same view with other filters keeps the focus and the scroll position.
  const path = location.hash.split("?")[0];
  const isSameView = path === pathBefore;
  pathBefore = path;
  drawnKey = null;
  const dialog = document.querySelector("dialog[open]");
  if (dialog && !isSameView) dialog.close();
  show(!isSameView);
});

document.addEventListener("keydown", event => {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && event.target.type !== "checkbox";
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
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
  liveText.replaceChildren("exported ", fullMoment(page.exported));
} else {
  let isFirst = true;
  let stopListening = null;
  const handlers = { changed: () => {
    liveText.textContent = page.read_only ? "live, read-only" : "live";
    liveText.title = "what changes appears here by itself" + (page.read_only ? "; nothing can be started from this page" : "");
    if (!isFirst) refreshSoon();
    isFirst = false;
  } };
  const connect = () => { stopListening = listen("/live", handlers, onError); };
  const onError = isRefused => {
    liveText.textContent = "not connected: trying again";
    if (!isRefused) return;
    // The browser does not try again; an ordinary request tells why.
    stopListening();
    get("/hosts").then(() => setTimeout(connect, 3000), error => {
      if (error.status === 401) liveText.textContent = RESTARTED;
      else if (error.status !== 403) setTimeout(connect, 3000);
    });
  };
  connect();
}
show(true);
