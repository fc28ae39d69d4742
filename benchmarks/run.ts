import { parseArguments, USAGE } from "./harness/arguments.ts";
import type { Bench } from "./harness/bench.ts";
import { table } from "./harness/report.ts";
import type { Result } from "./harness/result.ts";
import { startServer } from "./harness/server.ts";
import { suites } from "./suites.ts";
import { stopBrokers } from "./transports/broker.ts";

const given = parseArguments(process.argv.slice(2), Object.keys(suites));
if (given === undefined) {
  console.error(USAGE);
  process.exit(2);
}

const startedMs = performance.now();
const printLine = (line: string): void => {
  console.error(`${((performance.now() - startedMs) / 1000).toFixed(0).padStart(4)} s  ${line}`);
};

const server = await startServer();
const stop = async (): Promise<void> => {
  await Promise.allSettled([server.stop(), stopBrokers()]);
};
// The server must not outlive this process, even if its parent is killed.
for (const end of ["SIGINT", "SIGTERM", "disconnect"] as const) {
  process.once(end, () => void stop().finally(() => process.exit(130)));
}
process.channel?.unref();
const leftOut: { readonly what: string; readonly reason: string }[] = [];
const leaveOut = (what: string, reason: string): void => {
  leftOut.push({ what, reason });
  printLine(`${what} is left out: ${reason}`);
};
const bench: Bench = { server, rounds: given.rounds, quick: given.quick, say: printLine, leaveOut };
const results: Result[] = [];
try {
  for (const suite of given.suite === "all" ? Object.keys(suites) : [given.suite]) {
    for (const [title, measure] of Object.entries(suites[suite] ?? {})) {
      if (given.only !== undefined && !new RegExp(`\\b${given.only}\\b`).test(title)) continue;
      printLine(`${suite}: ${title}`);
      results.push(...(await measure(bench)));
    }
  }
} catch (error) {
  console.error(error); // before the server goes: clients that are still connected would report errors as well
  await stop();
  process.exit(2);
}
await stop();

if (given.json) console.log(JSON.stringify({ suite: given.suite, rounds: given.rounds, results, leftOut }));
else console.log(table(results, leftOut));
process.exitCode = results.every((one) => one.ok) ? 0 : 1;
