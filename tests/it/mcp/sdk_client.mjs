// Calls every tool of `rgpu mcp` with the official SDK, which checks results against their schemas, also
// those of failures.

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [rgpu, calls, modules] = process.argv.slice(2);
const require = createRequire(`${modules}/`);
const { Client } = require("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = require("@modelcontextprotocol/sdk/client/stdio.js");
const { right, wrong } = JSON.parse(readFileSync(calls, "utf8"));

const client = new Client({ name: "test", version: "1" });
await client.connect(new StdioClientTransport({ command: rgpu, args: ["mcp"], env: process.env }));
const tools = (await client.listTools()).tools.map((tool) => tool.name);
const call = (name, words) => client.callTool({ name, arguments: words });
for (const [name, words] of right) {
  let result = await call(name, words);
  while (result.structuredContent.state === "running") {
    result = await call("runs", { action: "wait", run: result.structuredContent.run });
  }
  if (result.isError) throw new Error(`${name}: ${JSON.stringify(result)}`);
}
for (const [name, words] of wrong) {
  const result = await call(name, words);
  if (!result.isError || !result.structuredContent.error.code) throw new Error(`${name} did not fail`);
}
const called = new Set(right.map(([name]) => name));
const missed = tools.filter((name) => !called.has(name));
if (missed.length) throw new Error(`not called: ${missed}`);
console.log(`${tools.length} tools called`);
await client.close();
