// One run: what it is, what it does at the moment with its output, and its report.

const ATTACH_NOTE = "It follows the run and fetches its results.";
const CANCEL_NOTE = "It stops the run on its host.";
/** Up to so many logs of a run without a report are open from the start. */
const MAX_OPEN_LOGS = 2;
/** On a phone a page inside the page would scroll against it. */
const hasRoomForFrame = () => !matchMedia("(max-width: 640px)").matches;

async function runView(params, id) {
  const data = await get("/runs/" + encodeURIComponent(id));
  const { run, record } = data;
  const active = isActive(run);
  const parent = run.parent;
  const host = data.env && data.env.host;
  const hasReport = run.result && run.result !== "fan_out" && !run.problem;
  const live = el("div");
  const report = el("div");
  const nodes = [
    card(null,
      el("div", { class: "row head" }, el("div", { class: "row" }, runState(run), checkBadge(run.checked),
        run.verdict && badge(words(run.verdict), verdictClass(run.verdict))),
        el("div", { class: "row" },
          active && !data.followed_by && actionButton("Attach", "to " + run.id, { do: "attach", run: run.id }, ATTACH_NOTE),
          active && actionButton("Cancel", run.id, { do: "cancel_run", run: run.id }, CANCEL_NOTE),
          run.result === "suite" && suiteLink(run.id, "the suite's cases"),
          partsLink(run),
          run.kernel && link(view("/runs", { kernel: run.kernel }), "all runs of " + run.kernel))),
      run.text && el("p", { class: "lead" }, said(run.text)),
      run.problem && problem(run.problem, true),
      facts([
        ["run", el("code", null, run.id)],
        [run.is_cpu_reference ? "CPU reference" : "time", run.median_ns !== undefined && duration(run.median_ns) + (run.ci95_ns ? ` (${range(run.ci95_ns)})` : "") + (run.is_cpu_reference ? ", not the time of the kernel" : "")],
        ["GPU", run.gpu], ["ranks", run.ranks], ["rung", run.rung === "none" ? null : run.rung],
        ["where", remoteLinks(run.remote)],
        ["started", fullMoment(run.started)], ["took", !active && run.seconds ? seconds(run.seconds) : null],
        ["cost", run.cost_usd !== undefined ? "$" + run.cost_usd.toFixed(2) : null],
        ["command", record.argv.length > 0 && codeLine(shellWords(["rgpu", ...record.argv.slice(1)]))],
        ["note", run.note],
        ["labels", run.labels && labelLinks(run.labels)],
        ["part of", parent && [parent.suite && suiteLink(parent.suite, "suite " + parent.suite), " ",
          parent.queue !== undefined && entryLink(parent.queue, "queue entry " + parent.queue), " ",
          parent.loop && loopLink(parent.loop, "loop " + parent.loop)]],
        ["followed by", active && (data.followed_by ? data.followed_by + " on this machine, which fetches the results" : "no process on this machine, so the page shows the last state received")],
      ])),
    // A cancelled run often has no more to say than its state.
    data.failure && !(data.failure.error.what === run.state_text && !data.failure.error.cause && !(data.failure.error.hints || []).length)
      && failureBox({ message: data.failure.error.what, cause: data.failure.error.cause, hints: data.failure.error.hints }),
    data.remotes && remotesCard(data.remotes),
    data.ranks && ranksCard(data.ranks),
    live, report,
    run.bound && card("Bound", boundTable([{ run: run.id, kernel: run.kernel, gpu: run.gpu || "", started: run.started, bound: run.bound }])),
    // What a run prints while it goes on is above.
    data.logs.length > 0 && (!active || exported) && card("Logs", data.logs.map(log => logDetails(run.id, log, !hasReport && data.logs.length <= MAX_OPEN_LOGS))),
    host && card(null, el("details", null, el("summary", null, "Software of the host"), softwareTable(host, host.remote))),
  ];
  return {
    title: run.title || run.id,
    nodes,
    // A report or an output that is there is not drawn again.
    key: JSON.stringify([run.id, run.result, run.state, data.followed_by]),
    mounted: () => {
      if (hasReport) report.append(reportCard(run));
      if (active && !exported) return followRun(run.id, live);
    },
  };
}

/** The results of a run on several remotes, each with its own run. */
function remotesCard(rows) {
  return card("Remotes", grid("Remotes", [
    { label: "remote", always: true, cell: row => remoteLinks(row.remote) },
    { label: "run", cls: "name", cell: row => row.run && runLink(row.run) },
    { label: "state", cell: row => row.state ? stateBadge(row.state) : null },
    { label: "GPU", cell: row => row.device },
    { label: "time", num: true, cell: row => row.median_ns !== undefined ? [duration(row.median_ns), row.clock === "cpu_reference" && el("span", { class: "sub" }, "CPU reference")] : null },
    { label: "against the base", cell: row => row.against_base && [verdictBadge(row.against_base.verdict), el("span", { class: "sub" }, factor(row.against_base.speedup))] },
    { label: "failure", cls: "text", cell: row => row.failure && toolMessage(row.failure) },
  ], rows));
}

function reportCard(run) {
  const folder = "runs/" + encodeURIComponent(run.id);
  const src = exported ? folder + "/report.html" : address("/" + folder + "/report", { key });
  const status = el("span", { role: "status" }, " · being made …");
  const frame = hasRoomForFrame() && el("iframe", { class: "report", src, title: "Report of " + run.id, sandbox: "allow-scripts allow-popups", on: { load: () => status.remove() } });
  return card("Report", el("p", { class: "note" }, el("a", { href: src, class: "link", target: "_blank", rel: "noopener" }, "open the report in its own tab"), frame && status), frame);
}

/** A log that is asked for when it is opened. */
function logDetails(id, log, isOpen) {
  const body = el("div");
  return el("details", { open: isOpen, on: { toggle: async event => {
    if (!event.target.open || body.childNodes.length) return;
    try {
      const text = await get(`/runs/${encodeURIComponent(id)}/log/${encodeURIComponent(log.name)}`);
      const box = logBox(log.name, terminalText(text.text));
      fill(body, null, [text.cut && el("p", { class: "note" }, `Only the end is shown, of ${bytes(text.bytes)}.`), box]);
      if (isOpen || text.cut) box.scrollTop = box.scrollHeight;
    } catch (error) {
      body.append(failureBox(error));
    }
  } } }, el("summary", { "data-focus": "log-" + log.name }, log.name + " (" + bytes(log.bytes) + ")"), body);
}

/** Follows a run. Returns a function that stops it. */
function followRun(id, box) {
  const phase = el("p", { class: "note", role: "status" });
  const steps = el("ul", { class: "plain" });
  const outputs = new Map();
  const logs = el("div");
  box.append(card("Now", phase, steps, logs));
  const showNews = event => {
    const news = strict(JSON.parse(event.data));
    phase.textContent = unbroken(news.phase || stateText(news.state));
    for (const line of news.events) {
      const text = eventText(line);
      if (text) steps.append(el("li", null, text));
      while (steps.childNodes.length > 12) steps.firstChild.remove();
    }
    for (const piece of news.output) {
      if (!outputs.has(piece.log)) {
        const log = growingLog("Output of " + piece.log);
        outputs.set(piece.log, log);
        logs.append(el("h3", null, piece.log), log.box);
      }
      outputs.get(piece.log).add(piece.text);
    }
  };
  const end = event => {
    showNews(event);
    stop();
    refreshSoon();
  };
  const stop = listen(`/runs/${encodeURIComponent(id)}/live`, { run: showNews, end });
  return stop;
}

/** What each event of a run says; `null` where the step's own line says it. The fields come from the host. */
const EVENT_TEXTS = {
  started: () => "the job has started",
  queued: event => `waits for the GPU at position ${event.position}, held by ${event.holder}`,
  gpu_locked: event => `has GPU ${event.index} (${event.name}) for itself`,
  gpu_released: () => "the GPU is free for others",
  step_started: event => event.title,
  step_skipped: event => `step ${event.step} is skipped, since ${event.needs} failed`,
  rung_started: event => event.rung === event.step ? null : `tries ${event.rung}`,
  rung_ended: event => event.ok ? null : `${event.rung} did not work (${words(event.code)})${event.message ? ": " + event.message : ""}`,
  step_ended: event => event.code ? `step ${event.step} failed: ${words(event.code)}` : null,
  artifact: event => `${event.path} is made (${bytes(event.size)})`,
  warning: event => "warning: " + event.text,
  output: () => null,
  output_dropped: event => `the output of step ${event.step} has reached its limit; the rest is dropped`,
  ended: () => "the job has ended",
  link_lost: event => "the link is lost: " + event.title,
  link_back: () => "the link is back",
};

/** A line of text about an event; an agent may be newer and have others. */
function eventText(event) {
  const kind = Object.hasOwn(event, "event") ? String(event.event) : "";
  if (!Object.hasOwn(EVENT_TEXTS, kind)) return words(kind) || null;
  const field = (fields, name) => Object.hasOwn(fields, name) ? fields[name] : "";
  return EVENT_TEXTS[kind](new Proxy(event, { get: field })) || null;
}
