// The queue and the loops.

/** How long a running entry has printed nothing; `null` if that is not long. */
const silence = entry => entry.state === "running" && entry.silent_s >= page.min_shown_silence_s ? "silent for " + seconds(entry.silent_s) : null;

async function queueView() {
  let data;
  try {
    data = await get("/queue");
  } catch (error) {
    if (error.status !== 404) throw error;
    return { title: "Queue", nodes: [card(null, empty("There is no queue: `rgpu queue add -- COMMAND` makes one."))] };
  }
  const order = { running: 0, waiting: 1 };
  const entries = [...data.entries].sort((a, b) => (order[a.state] ?? 2) - (order[b.state] ?? 2)
    || (a.state === "waiting" ? b.priority - a.priority || a.id - b.id : b.id - a.id));
  return {
    title: "Queue",
    mounted: () => refreshWhile(data.entries.some(entry => entry.state === "running")),
    nodes: [
      card(null, el("div", { class: "row head" },
        el("p", { class: "note", role: "status" }, data.runner ? `process ${data.runner.pid} runs the queue` : "nothing runs the queue", data.paused && " · paused"),
        el("div", { class: "row" },
          !data.runner && actionButton("Run the queue", "", { do: "run_queue" }),
          data.paused ? actionButton("Resume", "the queue", { do: "resume_queue" }) : actionButton("Pause", "the queue", { do: "pause_queue" }, "No entry is started until the queue is resumed; what runs goes on."))),
      entries.length ? grid("Entries", [
        { label: "entry", always: true, cell: entry => [link(view("/queue/" + entry.id), entry.id + " " + entry.name), entry.name !== shellWords(entry.command) && el("span", { class: "sub" }, shellWords(entry.command))] },
        { label: "state", cell: entry => [stateBadge(entry.state), [entry.reason, silence(entry)].filter(Boolean).map(why => el("span", { class: "sub" }, why))] },
        { label: "needs", cell: entry => [entry.remote, entry.gpu].filter(Boolean).join(", ") },
        { label: "after", cell: entry => entry.after && entry.after.map(dependency => "entry " + dependency.entry).join(", ") },
        { label: "priority", num: true, cell: entry => entry.priority || null },
        { label: "time", num: true, cell: entry => entry.seconds !== undefined ? seconds(entry.seconds) : null },
        { label: "action", cell: entry => entryAction(entry) },
      ], entries) : empty("the queue is empty")),
    ],
  };
}

const entryAction = entry => entry.state === "running" || entry.state === "waiting"
  ? actionButton("Cancel", "entry " + entry.id, { do: "cancel_entry", entry: entry.id })
  : actionButton("Requeue", "entry " + entry.id, { do: "requeue", entry: entry.id });

async function entryView(params, id) {
  const data = await get("/queue/" + encodeURIComponent(id));
  const entry = data.entry;
  return {
    title: `Entry ${entry.id} ${entry.name}`,
    mounted: () => refreshWhile(entry.state === "running"),
    nodes: [
      card(null, el("div", { class: "row head" }, stateBadge(entry.state), entryAction(entry)),
        facts([["command", el("code", null, shellWords(entry.command))], ["folder", el("code", null, entry.cwd)], ["reason", entry.reason], ["output", silence(entry)], ["attempt", entry.attempt || null],
          ["time", entry.seconds !== undefined ? seconds(entry.seconds) : null], ["needs", [entry.remote, entry.gpu].filter(Boolean).join(", ")],
          ["exit status", entry.rc], ["added", fullMoment(entry.added)],
          ["runs", data.runs && data.runs.map(run => [runLink(run.id), " "])]])),
      data.output !== undefined && card("Output", el("pre", { class: "log", tabindex: 0, role: "region", "aria-label": "Output of the last attempt" }, data.output || "no output yet")),
      card("What happened", grid("Events", [
        { label: "when", cls: "nowrap", always: true, cell: event => moment(event.at) }, { label: "state", cell: event => badge(stateText(event.to), (STATE_CLASS[event.to] || "").replace("running", "")) },
        { label: "attempt", num: true, cell: event => event.attempt || null }, { label: "why", cls: "text", cell: event => event.reason }], data.events)),
    ],
  };
}

const loopState = state => badge(words(state.toLowerCase()), state === "STOPPED" ? "" : "warn running");
const dryRunBadge = () => el("span", { class: "badge", title: "the loop makes up both answers and measures nothing" }, "dry-run");

const loopTable = loops => grid("Loops", [
  { label: "loop", always: true, cell: line => [link(view("/loops/" + encodeURIComponent(line.id)), line.kernel_path), el("span", { class: "sub" }, line.id)] },
  { label: "state", cell: line => [loopState(line.state), line.mode === "dry-run" && [" ", dryRunBadge()], line.stopped && el("span", { class: "sub" }, line.stopped)] },
  { label: "iteration", num: true, cell: line => line.iteration + " of " + line.max_iterations },
  { label: "kept", num: true, cell: line => line.kept },
  { label: "best so far", num: true, cell: line => line.speedup !== undefined ? digits(line.speedup) + " × the start" : null },
  { label: "started", cls: "nowrap", cell: line => moment(line.started) },
], loops);

async function loopsView() {
  const data = await get("/loops");
  return { title: "Loops", nodes: [card(null, data.loops.length ? loopTable(data.loops) : empty("no loops yet: `rgpu loop start loop.toml`"))] };
}

/** What a loop is to reach, and whether it did. */
function targetText(target) {
  if (target.threshold === undefined) return "none";
  const aim = target.metric === "speedup" ? `at least ${digits(target.threshold)} times as fast as the start` : "at most " + duration(target.threshold * 1e3);
  return aim + (target.reached ? ", reached" : ", not reached");
}

const LOOP_MODES = {
  manual: "manual: the loop waits for files that others write", command: "command: the loop starts the worker and the reviewer",
  "dry-run": "dry-run: the loop makes up both answers and measures nothing",
};

const OUTCOME_CLASS = { kept: "good", wrong: "bad", slower: "warn", refused: "bad", worker_failed: "bad", not_measured: "bad" };

async function loopView(params, id) {
  const data = await get("/loops/" + encodeURIComponent(id));
  const time = state => state && state.time ? duration(state.time.gmean_us * 1e3) : null;
  const patches = iteration => {
    const body = el("div");
    return el("details", { on: { toggle: async event => {
      if (!event.target.open || body.childNodes.length) return;
      try {
        body.append(patchView((await get(`/loops/${encodeURIComponent(id)}/iterations/${iteration}/patch`)).text, iteration));
      } catch (error) {
        body.append(failureBox(error));
      }
    } } }, el("summary", { "data-focus": "change-" + iteration }, "change"), body);
  };
  return {
    title: "Loop " + data.id,
    nodes: [
      card(null, el("div", { class: "row head" }, el("div", { class: "row" }, loopState(data.state), data.mode === "dry-run" && dryRunBadge()),
        data.state !== "STOPPED" && actionButton("Stop", "the loop", { do: "stop_loop", id: data.id }, "It ends what runs, and measures the best against the start.")),
        facts([["kernel", el("code", null, data.kernel_path)], ["mode", LOOP_MODES[data.mode] || data.mode], ["target", targetText(data.target)], ["iteration", data.iteration + " of " + data.max_iterations],
          ["time of the start", time(data.start)], ["best time", time(data.best)], ["kept changes", data.kept],
          ["iterations without progress", data.no_progress || null], ["failure", data.failure && toolMessage(data.failure)], ["stopped", data.stop && data.stop.text],
          ["process", data.pid], ["started", fullMoment(data.started)]])),
      card("Iterations", data.iterations.length ? grid("Iterations", [
        { label: "iteration", num: true, always: true, cell: line => line.iteration },
        { label: "outcome", cell: line => badge(words(line.outcome), OUTCOME_CLASS[line.outcome]) },
        { label: "why", cls: "text", cell: line => [toolMessage(line.reason), line.claim && line.claim.note && el("span", { class: "sub" }, "worker: " + line.claim.note)] },
        { label: "reviewer", cls: "text", cell: line => line.verdict && [badge(words(line.verdict.verdict.toLowerCase())), el("span", { class: "sub" }, line.verdict.reason)] },
        { label: "files", cls: "text", cell: line => line.changed.join(", ") },
        { label: "patch", cls: "text", cell: line => line.changed.length ? patches(line.iteration) : null },
      ], data.iterations) : empty("no iteration has ended")),
    ],
  };
}
