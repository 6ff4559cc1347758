// Hosts: GPU, driver, use, software and what is wrong.

/** How healthy a host is. While runs are read, its facts may still come from one of them. */
const healthBadge = (host, reading) => host.failed_try ? badge("not reached", "bad")
  : badge({ ok: "healthy", warning: "warnings", issue: "issues", unknown: reading ? "being read" : "never asked" }[host.health.level], STATE_CLASS[host.health.level] ?? "");
const failedTry = host => host.failed_try && ["failed at ", fullMoment(host.failed_try.at), ": ", said(host.failed_try.text)];
const runningText = host => plural(host.running.length, "run") + (host.not_followed > 0 ? `, ${count(host.not_followed)} not followed` : "");

function gpuText(facts) {
  const by = new Map();
  facts.gpus.forEach(gpu => by.set(gpu.name, (by.get(gpu.name) || 0) + 1));
  return [...by].map(([name, n]) => (n > 1 ? n + " × " : "") + name).join(", ") || "no GPU";
}

function hostCard(host, reading) {
  const known = host.facts;
  return el("section", { "aria-label": "Host " + host.name },
    el("div", { class: "row head" }, el("h3", null, link(view("/hosts", { host: host.name }), host.name)), healthBadge(host, reading)),
    facts([
      ["GPU", known && gpuText(known)],
      ["driver", known && known.driver && known.driver + (known.cuda ? " · CUDA " + known.cuda : "")],
      ["address", el("code", null, host.address)],
      ["running", host.running.length ? runningText(host) : "nothing of this project"],
      ["waiting", host.waiting ? plural(host.waiting, "entry") : null],
      ["seen", host.asked && fullMoment(host.asked)],
      ["last try", failedTry(host)],
    ]),
    host.facts && healthList(host.health));
}

/** The software of a host by its names in the facts. */
function softwareTable(known, name) {
  const own = known.tools.filter(tool => !tool.name.startsWith("lib"));
  return grid("Software of " + name, [
    { label: "tool", cls: "nowrap", always: true, cell: tool => tool.name },
    { label: "version", cell: tool => tool.version },
    { label: "path", cls: "name", cell: tool => pathCode(tool.path) },
    { label: "problems", cls: "text", cell: tool => tool.problems.join("; ") },
  ], own);
}

function healthList(health) {
  const rows = [["issues", "issue", "bad"], ["warnings", "warning", "warn"], ["outdated", "outdated", "warn"]];
  const lines = rows.flatMap(([field, word, cls]) => health[field].map(text => el("li", null, badge(word, cls), " ", text)));
  if (health.missing.length) lines.push(el("li", null, badge("missing", "warn"), " ", health.missing.join(", ")));
  return lines.length > 0 && el("ul", { class: "health" }, lines);
}

async function hostsView(params) {
  const data = await get("/hosts");
  const shown = params.host ? data.hosts.filter(host => host.name === params.host) : data.hosts;
  const hostSection = host => {
    const known = host.facts;
    return card(host.name + (host.default ? " (default)" : ""),
      el("div", { class: "row" }, healthBadge(host, data.reading),
        actionButton("Check", host.name, { do: "check_host", remote: host.name }, "The host is asked what it has. A rented host may be started for that."),
        link(view("/runs", { remote: host.name }), "runs on " + host.name)),
      facts([
        ["address", el("code", null, host.address)],
        ["seen", host.asked && fullMoment(host.asked)],
        ["last try", failedTry(host)],
        ["system", known && `${known.agent.os} · ${known.agent.arch} · kernel ${known.agent.kernel}`],
        ["processors", known && `${known.agent.cpus} · ${bytes(known.agent.memory_bytes)} memory`],
        ["driver", known && (known.driver || "none")],
        ["CUDA of the driver", known && known.cuda],
        ["GPU counters", known && known.counters_admin_only !== undefined && (known.counters_admin_only ? "for administrators only" : "for all users")],
        ["running", host.running.length > 0 && [runningText(host), ": ", host.running.map(id => [runLink(id), " "])]],
        ["waiting entries", host.waiting || null],
      ]),
      el("h3", null, "Health"),
      healthList(host.health) || el("p", null, known ? "No problems at the last check." : host.failed_try ? "Nothing is known: the host could not be reached." : data.reading ? "The runs are being read; one of them may have the host's facts." : "Nothing is known: the host was never asked."),
      known && known.gpus.length > 0 && [el("h3", null, "GPUs"), grid("GPUs of " + host.name, [
        { label: "index", num: true, always: true, cell: gpu => gpu.index },
        { label: "name", cell: gpu => gpu.name },
        { label: "architecture", cell: gpu => "sm_" + gpu.sm },
        { label: "memory", num: true, cell: gpu => bytes(gpu.memory_bytes) },
        { label: "SM clock", num: true, cell: gpu => gpu.max_sm_mhz && gpu.max_sm_mhz + " MHz" },
        { label: "power limit", num: true, cell: gpu => gpu.power_limit_w && Math.round(gpu.power_limit_w) + " W" },
        { label: "MIG", cell: gpu => gpu.mig ? "on" : null },
      ], known.gpus)],
      known && [el("h3", null, "Software"), softwareTable(known, host.name)]);
  };
  return {
    title: params.host ? "Host " + params.host : "Hosts",
    nodes: [
      params.host && el("p", null, link(view("/hosts"), "all hosts")),
      shown.length ? shown.map(hostSection) : empty("there is no host `" + params.host + "` in your settings"),
    ],
  };
}
