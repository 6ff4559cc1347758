// The overview, and lists of runs.

const runColumns = {
  what: { label: "run", cls: "run", always: true, cell: run => [runLink(run.id, run.title || run.id), el("span", { class: "sub" }, run.id, run.note && " · " + run.note)] },
  state: { label: "state", cell: run => [runState(run), run.reason && words(run.reason) !== run.state_text && el("span", { class: "sub" }, words(run.reason))] },
  time: { label: "time", num: true, cell: run => run.median_ns !== undefined ? [duration(run.median_ns), el("span", { class: "sub" }, run.is_cpu_reference ? "CPU reference" : run.ci95_ns && range(run.ci95_ns))] : null },
  trend: { label: "trend", cell: run => spark(run.trend) },
  verdict: { label: "verdict", cls: "text", cell: run => run.problem ? el("span", { class: "sub" }, badge("cannot be read", "warn"), " ", said(run.problem))
    : run.suite ? suiteCounts(run.suite)
    : run.verdict || run.text || run.checked ? [run.verdict && badge(words(run.verdict), verdictClass(run.verdict)), " ", checkBadge(run.checked),
      run.text && el("span", { class: "sub" }, said(run.text))] : null },
  where: { label: "where", cls: "place", cell: run => [remoteLinks(run.remote), (run.gpu || run.ranks) && el("span", { class: "sub" }, [run.gpu, run.ranks && plural(run.ranks, "rank")].filter(Boolean).join(" · "))] },
  started: { label: "started", cls: "nowrap", cell: run => [moment(run.started), !isActive(run) && run.seconds > 0 && el("span", { class: "sub" }, "took " + seconds(run.seconds))] },
};

const NO_RUNS = "no runs yet: `rgpu profile --kernel KERNEL` makes one";

/** What the queue does, and how its entries ended that did not end ok. */
const queueText = queue => [`${queue.running} running`, ...["failed", "timeout", "lost", "skipped", "cancelled"].filter(state => queue[state] > 0).map(state => `${queue[state]} ${state}`), queue.paused && "paused"].filter(Boolean).join(" · ");

const suiteCounts = counts => el("span", null, badge(`${counts.ok} of ${counts.cases} ok`, counts.ok === counts.cases ? "good" : ""), " ",
  counts.no_gpu > 0 && el("span", { class: "badge warn", title: "the host had no GPU, so nothing was timed" }, counts.no_gpu + " no GPU, not timed"), counts.no_gpu > 0 && " ",
  counts.failed > 0 && badge(counts.failed + " failed", "bad"), counts.failed > 0 && " ",
  counts.slower > 0 && badge(counts.slower + " slower", "bad"), counts.slower > 0 && " ",
  counts.faster > 0 && badge(counts.faster + " faster", "good"));

/** How many hosts have issues, and how many could not be reached. */
function hostsText(hosts) {
  const lost = hosts.filter(host => host.failed_try).length;
  const issues = hosts.filter(host => !host.failed_try && host.health.level === "issue").length;
  return plural(issues, "host") + " with issues" + (lost > 0 ? ` · ${count(lost)} not reached` : "");
}

async function overviewView() {
  const data = await get("/overview");
  const columns = ["what", "state", "time", "trend", "verdict", "where", "started"].map(name => runColumns[name]);
  const queue = data.queue;
  return {
    title: "Overview",
    mounted: () => refreshWhile(data.running.length > 0),
    nodes: [
      data.problems.map(text => problem(text)),
      data.reading && problem("The runs are being read for the first time; more appear here."),
      el("div", { class: "tiles" },
        tile("runs", link(view("/runs"), data.reading && data.total === 0 ? "being read" : count(data.total)), count(data.running.length) + " not ended"),
        tile("hosts", link(view("/hosts"), count(data.hosts.length)), hostsText(data.hosts)),
        tile("queue", link(view("/queue"), queue ? count(queue.waiting) + " waiting" : "none"), queue && queueText(queue)),
        tile("loops", link(view("/loops"), count(data.loops.length)), plural(data.loops.filter(line => line.state !== "STOPPED").length, "loop") + " not stopped")),
      el("h2", { class: "gap" }, "Hosts"),
      el("div", { class: "cards" }, data.hosts.map(host => hostCard(host, data.reading))),
      data.running.length > 0 && card("Not ended", grid("Runs that have not ended", [runColumns.what,
        { label: "phase", cls: "text", cell: run => [run.phase || runState(run), run.output && logBox("Output of " + run.id, terminalText(run.output))] }, runColumns.where, runColumns.started,
        !page.read_only && { label: "action", cell: run => [!run.followed_by && actionButton("Attach", "to " + run.id, { do: "attach", run: run.id }, ATTACH_NOTE), " ", actionButton("Cancel", run.id, { do: "cancel_run", run: run.id }, CANCEL_NOTE)] }].filter(Boolean), data.running),
        data.running.some(run => !run.followed_by) && el("p", { class: "note" }, "Not followed: no process on this machine follows the run, so the phase is the last one received. ", el("code", null, "rgpu runs attach RUN"), " follows it again and fetches its results.")),
      card("Last runs", data.recent.length ? grid("Last runs", columns, data.recent) : empty(data.reading ? "no run has been read yet" : NO_RUNS)),
      data.suites.length > 0 && card("Last suites", suiteTable(data.suites)),
      data.loops.length > 0 && card("Last loops", loopTable(data.loops.slice(0, 6))),
    ],
  };
}

/** The form that starts a profile. */
function startForm() {
  if (page.read_only) return null;
  const field = (label, input) => el("label", null, label, input);
  const kernel = el("input", { type: "text", required: true, "aria-label": "Kernel", placeholder: "vecadd", "data-focus": "profile-kernel" });
  const mode = el("select", { "data-focus": "profile-mode" }, el("option", { value: "" }, "the kernel's own, else ncu"), page.modes.map(name => el("option", null, name)));
  const remote = el("input", { type: "text", placeholder: page.default_remote ? page.default_remote + " (default)" : "name of a remote", "data-focus": "profile-remote" });
  return el("details", null, el("summary", null, "Profile a kernel"), el("form", { class: "filters", on: { submit: event => {
    event.preventDefault();
    openActionDialog("Profile a kernel", { do: "profile", kernel: kernel.value.trim(), mode: mode.value, remote: remote.value.trim() },
      "It may use a GPU host that costs money.");
  } } }, field("kernel", kernel), field("mode", mode), field("remote", remote), el("button", { type: "submit" }, "Start…")));
}
