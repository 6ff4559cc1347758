// Assembles the page.

const began = performance.now();
for (const part of [summary, comparison, account, findings, kernelVerdicts, stages, cases, samples, launches, ranks, timeline, memoryUse, roofline, memoryChart, stalls, series, hotspots, regions, operators, toolRules, metrics, sanitizer, code, ladder, about]) part();
const choice = picker();
if (choice) document.getElementById("launches").querySelector("h2").after(choice);
