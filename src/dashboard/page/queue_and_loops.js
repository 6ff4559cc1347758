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
          data.paused ? actionButton("Resume", "the queue", { do: "resume_queue" }) : actionButton("Pause", "the queue", { do: "pause_queue" }, "No further entry starts until the queue is resumed. A running entry is not stopped."))),
      entries.length ? grid("Entries", [
        { label: "entry", always: true, cell: entry => [entryLink(entry.id, entry.id + " " + entry.name), entry.name !== shellWords(entry.command) && el("span", { class: "sub" }, commandWords(shellWords(entry.command)))] },
        { label: "state", cell: entry => [stateBadge(entry.state), [entry.reason, silence(entry)].filter(Boolean).map(why => el("span", { class: "sub" }, why))] },
        { label: "needs", cell: entry => [entry.remote, entry.gpu].filter(Boolean).join(", ") },
        { label: "after", cls: "nowrap", cell: entry => entry.after && entry.after.map(dependency => "entry " + dependency.entry).join(", ") },
        { label: "tags", cell: entry => entry.tags && entry.tags.join(", ") },
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
        facts([["command", codeLine(shellWords(entry.command))], ["folder", el("code", null, entry.cwd)], ["reason", entry.reason], ["output", silence(entry)], ["attempt", entry.attempt || null], ["retries left", entry.retries_left || null], ["time limit", entry.timeout_s !== undefined ? seconds(entry.timeout_s) : null], ["tags", entry.tags && entry.tags.join(", ")],
          ["time", entry.seconds !== undefined ? seconds(entry.seconds) : null], ["needs", [entry.remote, entry.gpu].filter(Boolean).join(", ")],
          // The reason of a failure is its exit status.
          ["exit status", entry.reason === "exit status " + entry.rc ? null : entry.rc], ["added", fullMoment(entry.added)],
          ["runs", data.runs && data.runs.map((run, at) => [at > 0 && ", ", runLink(run.id)])]])),
      data.output !== undefined && card("Output", logBox("Output of the last attempt", terminalText(data.output) || (entry.state === "running" ? "no output yet" : "no output"), entry.state === "running" ? { "data-follow": "end" } : null)),
      card("What happened", grid("Events", [
        { label: "when", cls: "nowrap", always: true, cell: event => moment(event.at, false, true) }, { label: "state", cell: event => badge(stateText(event.to), (STATE_CLASS[event.to] || "").replace("running", "")) },
        { label: "attempt", num: true, cell: event => event.attempt || null }, { label: "why", cls: "text", cell: event => event.reason }], data.events)),
    ],
  };
}

const loopState = line => line.state === "STOPPED" ? badge("stopped") : [badge("running", "warn running"), " ", el("span", { class: "dim" }, line.phase_text)];
const dryRunBadge = () => el("span", { class: "badge", title: "the answers of worker and reviewer are made up, and nothing is measured" }, "dry-run");

const loopTable = loops => grid("Loops", [
  { label: "loop", always: true, cell: line => [loopLink(line.id, line.kernel_path), el("span", { class: "sub" }, line.id)] },
  { label: "state", cell: line => [loopState(line), line.mode === "dry-run" && [" ", dryRunBadge()], line.stopped && el("span", { class: "sub" }, said(line.stopped))] },
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
  "dry-run": "dry-run: the answers of worker and reviewer are made up, and nothing is measured",
};

const OUTCOME_CLASS = { kept: "good", wrong: "bad", slower: "warn", refused: "bad", worker_failed: "bad", not_measured: "bad" };

/** The best time after each iteration, from the start on. */
function bestTimes(data) {
  let best = data.start && data.start.time;
  if (!best) return [];
  const point = (iteration, isNew) => ({ iteration, us: best.gmean_us, isNew });
  return [point(0, true), ...data.iterations.map(line => {
    const second = line.outcome === "kept" && line.confirmation;
    if (second) best = second.new;
    return point(line.iteration, Boolean(second));
  })];
}

/** The best time by iteration as a step line. */
function bestPlot(points) {
  const [width, height, left, bottom] = [560, 160, 76, 22];
  const high = Math.max(...points.map(p => p.us)) * 1.05;
  const x = at => left + (width - left - 12) * at / Math.max(1, points[points.length - 1].iteration);
  const y = us => 8 + (height - bottom - 14) * (1 - us / high);
  const line = points.flatMap((p, at) => at ? [`${x(p.iteration)},${y(points[at - 1].us)}`, `${x(p.iteration)},${y(p.us)}`] : [`${x(p.iteration)},${y(p.us)}`]);
  return el("div", { class: "plot-box" }, svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": "Best time after each iteration" },
    [0, high / 2, high].map(us => [svg("line", { class: "grid", x1: left, x2: width - 12, y1: y(us), y2: y(us) }),
      svg("text", { x: left - 8, y: y(us) + 4, "text-anchor": "end" }, us === 0 ? "0" : duration(us * 1e3))]),
    svg("polyline", { class: "line", points: line.join(" ") }),
    points.filter(p => p.isNew).map(p => svg("circle", { class: "dot", cx: x(p.iteration), cy: y(p.us), r: 3 }, svg("title", null, `${p.iteration ? "iteration " + p.iteration : "the start"}: ${duration(p.us * 1e3)}`))),
    svg("text", { x: left, y: height - 6 }, "the start"),
    svg("text", { x: width - 12, y: height - 6, "text-anchor": "end" }, "iteration " + points[points.length - 1].iteration)));
}

/** A comparison that the loop made: the time of the base and of the other, and what came of it. */
const comparedTimes = comparison => comparison && [verdictBadge(comparison.verdict), " ", el("span", { class: "sub" },
  `${duration(comparison.base.gmean_us * 1e3)} → ${duration(comparison.new.gmean_us * 1e3)}, ${factor(comparison.speedup)}`)];

/** Whether the reason of an outcome is only what a comparison said, which has a column of its own. */
const isSummary = line => [line.comparison, line.confirmation].some(comparison => comparison && comparison.summary === line.reason);

/** What the worker says that it did and measured; rgpu does not use it. */
const claimText = claim => [claim.note && "worker: " + claim.note,
  claim.metric_value !== undefined && `worker claims ${claim.metric_name || "a value"} ${digits(claim.metric_value)}`, ...claim.errors.map(text => "worker: " + text)].filter(Boolean);

async function loopView(params, id) {
  const data = await get("/loops/" + encodeURIComponent(id));
  const time = state => state && state.time ? duration(state.time.gmean_us * 1e3) : null;
  const patch = iteration => {
    const body = el("div");
    return el("details", { on: { toggle: async event => {
      if (!event.target.open || body.childNodes.length) return;
      try {
        body.append(patchView((await get(`/loops/${encodeURIComponent(id)}/iterations/${iteration}/patch`)).text, iteration));
      } catch (error) {
        body.append(failureBox(error));
      }
    } } }, el("summary", { "data-focus": "change-" + iteration }, "iteration " + iteration), body);
  };
  const isStopped = data.state === "STOPPED";
  const best = bestTimes(data);
  const speedup = time(data.start) && time(data.best) ? factor(data.start.time.gmean_us / data.best.time.gmean_us) + (data.best.iteration ? ` the start, by iteration ${data.best.iteration}` : "") : null;
  const changed = data.iterations.filter(line => line.changed.length > 0);
  return {
    title: "Loop " + data.id,
    nodes: [
      card(null, el("div", { class: "row head" }, el("div", { class: "row" }, loopState(data), data.mode === "dry-run" && dryRunBadge()),
        el("div", { class: "row" }, link(view("/runs", { parent: "loop:" + data.id }), "its runs"),
          !isStopped && actionButton("Stop", "the loop", { do: "stop_loop", id: data.id }, "It stops what is running, and compares the best version with the start."))),
        facts([["kernel", el("code", null, data.kernel_path)], ["mode", LOOP_MODES[data.mode] || data.mode],
          ["waits for", data.awaited && el("code", null, data.awaited.file)], ["prompt", data.awaited && el("code", null, data.awaited.prompt)],
          ["target", targetText(data.target)], ["iteration", data.iteration + " of " + data.max_iterations],
          ["time of the start", time(data.start)], ["best time", time(data.best)], ["best against the start", speedup], ["kept changes", data.kept],
          ["at the end", comparedTimes(data.final_comparison)],
          ["iterations without progress", data.no_progress || null], ["failure", data.failure && toolMessage(data.failure)], ["stopped", data.stop && said(data.stop.text)],
          ["process", data.pid || (!isStopped && said("none: `rgpu loop resume` continues it"))], ["started", fullMoment(data.started)]])),
      best.length > 1 && card("Best so far", bestPlot(best)),
      card("Iterations", data.iterations.length ? [grid("Iterations", [
        { label: "iteration", num: true, always: true, cell: line => line.iteration },
        { label: "outcome", cell: line => badge(words(line.outcome), OUTCOME_CLASS[line.outcome]) },
        { label: "against the best", cell: line => comparedTimes(line.comparison) },
        { label: "confirmation", cell: line => comparedTimes(line.confirmation) },
        { label: "why", cls: "text", cell: line => [!isSummary(line) && toolMessage(line.reason), line.claim && claimText(line.claim).map(text => el("span", { class: "sub" }, text))] },
        { label: "reviewer", cls: "text", cell: line => line.verdict && [badge(words(line.verdict.verdict.toLowerCase())), el("span", { class: "sub" }, line.verdict.reason)] },
        { label: "files", cls: "text", cell: line => line.changed.join(", ") },
      ], data.iterations), best.length > 0 && el("p", { class: "note" }, "Each comparison is of the best so far → the change; a change that is faster is compared again to confirm it. Times are geometric means over the loop's sizes.")] : empty("no iteration has ended")),
      changed.length > 0 && card("Changes", changed.map(line => patch(line.iteration))),
    ],
  };
}
