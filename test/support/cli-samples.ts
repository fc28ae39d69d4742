import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { onTestFinished } from "vitest";
import { cliInProcess } from "./cli-in-process.ts";
import { runCli } from "./run-cli.ts";

/** How one way to call a command is tried. `<letter>` and the like are filled in by whoever tries it. */
export interface CliSample {
  readonly argv: readonly string[];
  /** It never asks the database. */
  readonly withoutDatabase?: true;
  /** It is there to make, or to look at, what is missing in an empty database. */
  readonly makesSchema?: true;
  /** It loads an application, which reads the environment of its process: it needs one of its own. */
  readonly ownProcess?: true;
  /** It prints no data: not tried with --json. */
  readonly silent?: true;
  /** It has a test of its own for what it prints. */
  readonly slow?: true;
  /** Who may only look may do it. */
  readonly viewer?: true;
  /** Nothing in the house is as it wants it: it says so, and fails. */
  readonly inVain?: true;
}

const why = ["--actor", "ann", "--reason", "ticket 7"];
const window = ["--from", "2026-11-16T08:00:00Z", "--to", "2026-11-16T09:00:00Z"];
const sure = ["--yes", ...why];

/** At least one for every action of every command; a test fails for one without. In an order in which all can be done. */
export const cliSamples: Readonly<Record<string, readonly CliSample[]>> = {
  dev: [{ argv: [], makesSchema: true, silent: true }],
  worker: [{ argv: ["--app", "<saga-app>", "--port", "0"], ownProcess: true, silent: true }],
  migrate: [
    { argv: ["status"], makesSchema: true },
    { argv: ["up"], makesSchema: true },
    { argv: ["sql"], withoutDatabase: true },
  ],
  status: [
    { argv: [], viewer: true },
    { argv: ["--check"], viewer: true },
  ],
  outbox: [
    { argv: ["list"], viewer: true },
    { argv: ["list", "--state", "scheduled"], viewer: true },
    { argv: ["stats"], viewer: true },
    { argv: ["show", "<message>"], viewer: true },
    { argv: ["retry-now", "<message-waiting>", ...why] },
    { argv: ["archive", "--keep", "30d", "--dry-run"] },
    { argv: ["archive", "--keep", "30d", ...sure] },
  ],
  inbox: [
    { argv: ["stats"], viewer: true },
    { argv: ["list"], viewer: true },
    { argv: ["show", "<message>"], viewer: true },
    { argv: ["cleanup", "--keep", "30d", "--dry-run"] },
    { argv: ["cleanup", "--keep", "30d", ...sure] },
    { argv: ["retire", "<consumer-gone>", "--dry-run"], viewer: true },
    { argv: ["retire", "<consumer-gone>", ...sure] },
  ],
  republish: [{ argv: [...window, "--dry-run"], viewer: true }, { argv: [...window, ...sure] }],
  dlq: [
    { argv: ["groups"] },
    { argv: ["list", "--letters"] },
    { argv: ["show", "<letter>"] },
    { argv: ["replay", "<letter-replayed>", ...sure] },
    { argv: ["replay", "--all", "--dry-run"] },
    { argv: ["replay", "--group", "<group>", ...sure] },
    { argv: ["edit", "<letter-edited>", "--data-file", "<edited-file>", "--dry-run"] },
    { argv: ["edit", "<letter-edited>", "--data-file", "<edited-file>", ...sure] },
    { argv: ["bury", "<message-buried>", "--outbox", ...sure] },
    { argv: ["discard", "<letter-discarded>", ...sure] },
    { argv: ["discard", "--all", "--dry-run"] },
    { argv: ["discard", "--all", ...sure] },
    { argv: ["list", "--closed"] },
  ],
  saga: [
    { argv: ["list"] },
    { argv: ["stuck"] },
    { argv: ["show", "<saga-retried>"] },
    { argv: ["history", "<saga-retried>"] },
    { argv: ["diagram", "<saga-retried>"] },
    { argv: ["diagram", "order", "--app", "<saga-app>"], withoutDatabase: true },
    { argv: ["check", "--app", "<saga-app>"] },
    { argv: ["retry", "<saga-retried>", ...why] },
    { argv: ["skip", "<saga-skipped>", "--step", "ship", ...sure] },
    { argv: ["settle", "<saga-settled>", "--step", "ship", "--result", '"by hand"', ...sure] },
    { argv: ["compensate", "<saga-compensated>", ...sure] },
    { argv: ["cancel", "<saga-cancelled>", ...sure] },
    {
      argv: ["signal", "<saga-signalled>", "--event", "approvals.given"].concat(
        ["--data-file", "<signal-file>", "--app", "<saga-app>"],
        why,
      ),
    },
  ],
  explain: [{ argv: ["<message>"], viewer: true }],
  verify: [{ argv: [] }],
  doctor: [{ argv: [], makesSchema: true }],
  tune: [{ argv: ["--yes", "--seconds", "1"], makesSchema: true, slow: true }],
  roles: [{ argv: ["sql"], withoutDatabase: true }],
  audit: [{ argv: ["list"] }, { argv: ["seal"] }, { argv: ["verify"] }],
  erase: [{ argv: ["<subject-erased>", "--dry-run", ...why] }, { argv: ["<subject-erased>", ...sure] }],
  privacy: [
    { argv: ["status"] },
    { argv: ["export", "<subject>", ...why] },
    { argv: ["hold", "<subject>", ...why] },
    { argv: ["release", "<subject>", ...why] },
    { argv: ["rewrap", ...why] },
    { argv: ["erasures"] },
    { argv: ["reapply", "<erasures-file>", ...why] },
    { argv: ["end-saga", "<saga-retried>", ...why], inVain: true },
  ],
  topology: [{ argv: ["--app", "<topology-app>"], withoutDatabase: true }],
  completion: ["bash", "zsh", "fish"].map((shell) => ({
    argv: [shell],
    withoutDatabase: true,
    silent: true,
  })),
};

export type Fill = Readonly<Record<string, string>>;

export const sampleKeyRing = ["first", "index"]
  .map((name) => `${name} ${randomBytes(32).toString("base64")}`)
  .join("\n");

/** What the samples name besides rows of the database. */
export function sampleFiles(): Fill {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-cli-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  return {
    "saga-app": fileURLToPath(new URL("./saga-service.ts", import.meta.url)),
    "topology-app": fileURLToPath(new URL("./topology-service.ts", import.meta.url)),
    "edited-file": file("edited.json", '{"n":1,"cause":7}'),
    "signal-file": file("signal.json", '{"id":"signalled"}'),
    "erasures-file": file("erasures.ndjson", ""),
  };
}

/** Ids that nobody has. */
function keepPlaceholder(name: string): string {
  if (name.startsWith("letter")) return "1";
  return name === "group" ? "3f9a0c21b7de" : "0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11";
}

export interface CliOutput {
  readonly line: string;
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export async function runSample(
  name: string,
  sample: CliSample,
  { url, fill, more = [] }: { readonly url: string; readonly fill: Fill; readonly more?: readonly string[] },
): Promise<CliOutput> {
  const wanted = [name, ...sample.argv, ...more];
  const argv = wanted.map((word) =>
    word.replace(/^<([a-z-]+)>$/, (_, found: string) => fill[found] ?? keepPlaceholder(found)),
  );
  const env = { DATABASE_URL: url, SAGABOX_KEY_RING: sampleKeyRing, USER: "ann" };
  const told = sample.ownProcess === true ? await runCli(argv, { env }) : await cliInProcess(argv, env);
  return { line: `sagabox ${wanted.join(" ")}`, ...told };
}
