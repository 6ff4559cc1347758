// The ranks of a run: how each spent its time, and for which one the others wait.

const MAX_RANKS = 64;

const LATE_CAUSES = {
  compute: "it computed longer", copy: "it was copying", host: "its host launched the next kernel late",
  communication: "it was in another collective", unknown: "its trace does not show it",
};

/** Which rank the others wait for, how long, and why. */
function stragglerText(straggler) {
  return el("p", { class: "lead" }, "The others wait for ", el("strong", null, "rank " + straggler.rank),
    `: after start-up it came last to ${plural(straggler.times_last, "collective")}, ${duration(straggler.late_ns)} late in total. Why: `,
    LATE_CAUSES[straggler.cause] || words(straggler.cause), straggler.region && [" in ", el("code", null, straggler.region)],
    straggler.kernel && [", most of it in ", kernelName(straggler.kernel)], ".");
}

/** The table of ranks. Of very many it has the first, and every straggler. */
function ranksCard(ranks) {
  const stragglers = new Map(ranks.stragglers.map(straggler => [straggler.rank, straggler]));
  // Most ranks are late now and then; the others wait for the one that is late by most.
  const isWorst = rank => ranks.stragglers.length > 0 && ranks.stragglers[0].rank === rank;
  const rows = ranks.ranks.filter((time, at) => at < MAX_RANKS || stragglers.has(time.rank));
  const share = (ns, all) => percent(100 * ns / Math.max(1, all));
  return card("Ranks",
    ranks.stragglers.length > 0 && stragglerText(ranks.stragglers[0]),
    grid("Ranks", [
      { label: "rank", num: true, always: true, cell: time => time.rank },
      { label: "judged", cell: time => isWorst(time.rank) ? badge("straggler", "warn") : null },
      { label: "GPU", cls: "nowrap", cell: time => [time.host, time.gpu !== undefined && "GPU " + time.gpu].filter(Boolean).join(" ") },
      { label: "span", num: true, cell: time => duration(time.span_ns) },
      { label: "compute", num: true, cell: time => share(time.compute_ns, time.span_ns) },
      { label: "exposed", num: true, cell: time => share(time.exposed_ns, time.span_ns) },
      { label: "overlap", num: true, cell: time => time.communication_ns ? share(time.overlapped_ns, time.communication_ns) : null },
      { label: "copies", num: true, cell: time => time.copy_ns ? share(time.copy_ns, time.span_ns) : null },
      { label: "idle", num: true, cell: time => share(time.idle_ns, time.span_ns) },
      { label: "waited", num: true, cell: time => duration(time.waited_ns) },
      { label: "came last", num: true, cell: time => ranks.collectives.length ? count(stragglers.has(time.rank) ? stragglers.get(time.rank).times_last : 0) : null },
      { label: "late", num: true, cell: time => stragglers.has(time.rank) ? duration(stragglers.get(time.rank).late_ns) : null },
    ], rows),
    el("p", { class: "note" }, "Shares are of the rank's own span, from its first to its last event, with start-up; the report's headline leaves out start-up. Compute, exposed communication, copies and idle add up to the span. Overlap is the share of communication beside which kernels computed. Came last and late are of the collectives after start-up.",
      rows.length < ranks.ranks.length && ` ${count(rows.length)} of ${count(ranks.ranks.length)} ranks are shown; the report has all.`));
}
