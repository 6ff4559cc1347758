// Asks the server, or the answers that an export brings along.

const BASE = "/api/v1";
const exported = page.answers || null;
const fieldNames = new Set(page.fields);
const KEY = "x-rgpu-key";

/** The key that the link left in this browser: other servers of this machine get the cookie, but not this. */
const key = (() => {
  if (exported) return "";
  try {
    return localStorage.getItem(KEY) || "";
  } catch {
    return "";
  }
})();

/** A document whose unknown fields cannot be read: page and server never name a field differently. */
function strict(value) {
  if (value === null || typeof value !== "object") return value;
  return new Proxy(value, {
    get(target, key) {
      const known = typeof key === "symbol" || key in target || fieldNames.has(key) || key === "then" || key === "toJSON";
      if (!known) throw new Error("the API has no field `" + key + "`");
      return strict(target[key]);
    },
  });
}

class ApiError extends Error {
  constructor(status, error) {
    super(error.what);
    this.status = status;
    this.cause = error.cause;
    this.hints = error.hints || [];
    this.code = error.code;
  }
}

const address = (path, params) => {
  const query = new URLSearchParams(Object.entries(params || {}).filter(([, value]) => value !== "" && value !== undefined));
  const text = query.toString();
  return path + (text ? "?" + text : "");
};

const RESTARTED = "the dashboard was restarted";

async function read(response) {
  const body = await response.json().catch(() => null);
  if (response.ok && body) return strict(body);
  if (response.status === 401) throw new ApiError(401, { what: RESTARTED, hints: ["open the link that `rgpu dashboard` printed; it works once"] });
  if (body && body.error) throw new ApiError(response.status, body.error);
  throw new ApiError(response.status, { what: "the server answered with status " + response.status });
}

/** The parameters of an address that the API knows; the address may have more, such as runs to compare. */
const only = (params, names) => Object.fromEntries(names.filter(name => params[name]).map(name => [name, params[name]]));

/** The document at a path of the API. */
async function get(path, params) {
  if (exported) return strict(answer(path, params || {}));
  let response;
  try {
    response = await fetch(BASE + address(path, params), { cache: "no-store", headers: { [KEY]: key } });
  } catch {
    throw new ApiError(0, { what: "the server does not answer", hints: ["is `rgpu dashboard` still running?"] });
  }
  return read(response);
}

/** Sends an action; a preview only returns its command line. */
const act = (action, isPreview) => fetch(BASE + "/actions", {
  method: "POST",
  headers: { "content-type": "application/json", [KEY]: key },
  body: JSON.stringify({ action, show_only: isPreview }),
}).then(read);

/**
 * Calls the handler of each message of a stream, by its name, while the tab is shown: a browser opens only six
 * connections to a server. After a cut it continues with the next message. Returns a function that stops it.
 */
function listen(path, handlers, onError) {
  let source = null;
  let last = "";
  const open = () => {
    source = new EventSource(BASE + address(path, { key, last }));
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, event => {
        last = event.lastEventId;
        handle(event);
      });
    }
    const opened = source;
    if (onError) opened.addEventListener("error", () => onError(opened.readyState === EventSource.CLOSED));
  };
  const close = () => {
    if (source) source.close();
    source = null;
  };
  const openOrClose = () => {
    if (document.hidden) close();
    else if (!source || source.readyState === EventSource.CLOSED) open();
  };
  document.addEventListener("visibilitychange", openOrClose);
  openOrClose();
  return () => {
    document.removeEventListener("visibilitychange", openOrClose);
    close();
  };
}

/** An answer of an export; the list of runs is filtered here. */
function answer(path, params) {
  const known = exported[path];
  if (!known) throw new ApiError(404, { what: "this export does not have it", hints: ["`rgpu dashboard export --reports N` includes more runs"] });
  if (path !== "/runs") return known;
  const need = String(params.q || "").toLowerCase().split(/\s+/).filter(Boolean);
  const [parentKind, ...parentId] = String(params.parent || "").split(":");
  const parentOf = run => ["suite", "queue", "loop"].includes(parentKind) ? (run.parent || {})[parentKind] : undefined;
  const runs = known.runs.filter(run => {
    const same = ["state_text", "command", "remote", "gpu", "verdict", "reason"];
    const label = String(params.label || "").split("=");
    const own = run.labels || {};
    return need.every(word => run.search_text.includes(word))
      && same.every(name => run[name] === (params[name === "state_text" ? "state" : name] || run[name]))
      && (!params.parent || String(parentOf(run) ?? "") === parentId.join(":"))
      && (!params.kernel || run.kernel.includes(params.kernel))
      && (!params.label || (label.length === 1 ? label[0] in own : own[label[0]] === label.slice(1).join("=")));
  });
  const offset = Number(params.offset || 0);
  return { ...known, found: runs.length, offset, times: params.kernel ? timeSeries(runs) : [], runs: runs.slice(offset, offset + Number(params.limit || 50)) };
}

/** The series of times of the runs of an export, as the server makes them. */
function timeSeries(runs) {
  const times = new Map();
  for (const run of runs.filter(one => one.series)) {
    const point = { run: run.id, started: run.started, median_ns: run.median_ns, ci95_ns: run.ci95_ns };
    times.set(run.series, [point, ...(times.get(run.series) || [])]);
  }
  return [...times].filter(([, points]) => points.length > 1).map(([series, points]) => ({ series, points }));
}
