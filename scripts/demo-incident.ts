// npm run demo:incident: an incident from the first alarm to the report, with the real tools, on a database of its own
// that is removed afterwards. With --fast there are no pauses for reading.
import { chmodSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout } from "node:timers/promises";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { runIncident } from "./incident/run-incident.ts";

const READING_MS = 2_500;
const args = process.argv.slice(2);
if (args.some((arg) => arg !== "--fast")) {
  process.stderr.write("npm run demo:incident [-- --fast]\n");
  process.exit(2);
}

const folder = mkdtempSync(join(tmpdir(), "sagabox-incident-"));
chmodSync(folder, 0o755); // as root the server runs under another account, which has to get through
const printLine = (line: string): void => void process.stdout.write(`${colorLine(line)}\n`);
// Ctrl-C ends the story at its next pause, and everything it began with it; a second one ends the process.
const interrupt = new AbortController();
for (const signal of ["SIGINT", "SIGTERM", "SIGHUP"] as const)
  process.once(signal, () => interrupt.abort(new Error("Stopped.")));
const pause = (): Promise<void> =>
  setTimeout(args.includes("--fast") ? 0 : READING_MS, undefined, { signal: interrupt.signal });

printLine("Starting PostgreSQL …");
const server = await startEmbeddedPostgres({
  dataDir: join(folder, "data"),
  settings: { fsync: "off" },
  onNotice: () => undefined,
});
try {
  await runIncident({ url: server.url, say: printLine, pause });
} catch (error) {
  process.exitCode = interrupt.signal.aborted ? 130 : 1;
  const reason = interrupt.signal.aborted ? interrupt.signal.reason : error;
  process.stderr.write(`${reason instanceof Error ? reason.message : String(reason)}\n`);
}
await server.stop();
rmSync(folder, { recursive: true, force: true });

// Typed commands stand out from explanations and from output.
function colorLine(line: string): string {
  if (!process.stdout.isTTY || process.env["NO_COLOR"]) return line;
  if (line.startsWith("\n$ ")) return `\u001b[1;36m${line}\u001b[0m`;
  return line.startsWith("  ") ? line : `\u001b[1m${line}\u001b[0m`;
}
