import { fileURLToPath } from "node:url";

/** How one way to call a command is tried where the database is not what it needs. */
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
  /** Nothing is there under that id in a fresh database; with --json it is not tried. */
  readonly findsNothing?: true;
}

const app = fileURLToPath(new URL("./saga-app.ts", import.meta.url));
const topologyApp = fileURLToPath(new URL("./topology-app.ts", import.meta.url));
const why = ["--actor", "ann", "--reason", "ticket 7"];
const window = ["--from", "2026-11-16T08:00:00Z", "--to", "2026-11-16T09:00:00Z"];

/** At least one for every command there is; a test fails for a command without. */
export const cliSamples: Readonly<Record<string, readonly CliSample[]>> = {
  dev: [{ argv: [], makesSchema: true, silent: true }],
  worker: [{ argv: ["--app", app, "--port", "0"], ownProcess: true, silent: true }],
  migrate: [
    { argv: ["status"], makesSchema: true },
    { argv: ["up"], makesSchema: true },
    { argv: ["sql"], withoutDatabase: true },
  ],
  status: [{ argv: [] }, { argv: ["--check"] }],
  outbox: [
    { argv: ["list"] },
    { argv: ["list", "--state", "scheduled"] },
    { argv: ["stats"] },
    { argv: ["show", "m-1"], findsNothing: true },
    { argv: ["retry-now", "m-1", ...why], findsNothing: true },
    { argv: ["archive", "--keep", "30d", "--dry-run"] },
    { argv: ["archive", "--keep", "30d", "--yes", ...why] },
  ],
  inbox: [
    { argv: ["stats"] },
    { argv: ["list"] },
    { argv: ["show", "m-1"], findsNothing: true },
    { argv: ["cleanup", "--keep", "30d", "--dry-run"] },
    { argv: ["cleanup", "--keep", "30d", "--yes", ...why] },
  ],
  republish: [{ argv: [...window, "--dry-run"] }, { argv: [...window, "--yes", ...why] }],
  dlq: [
    { argv: ["groups"] },
    { argv: ["list", "--letters"] },
    { argv: ["show", "1"], findsNothing: true },
    { argv: ["replay", "1", "--yes", ...why], findsNothing: true },
    { argv: ["replay", "--all", "--yes", ...why] },
    { argv: ["discard", "--all", "--yes", ...why] },
  ],
  saga: [
    { argv: ["list"] },
    { argv: ["stuck"] },
    { argv: ["show", "s-1"], findsNothing: true },
    { argv: ["history", "s-1"], findsNothing: true },
    { argv: ["cancel", "s-1", "--yes", ...why], findsNothing: true },
  ],
  explain: [{ argv: ["m-1"], findsNothing: true }],
  verify: [{ argv: [] }],
  doctor: [{ argv: [], makesSchema: true }],
  tune: [{ argv: ["--yes", "--seconds", "1"], makesSchema: true, slow: true }],
  roles: [{ argv: ["sql"], withoutDatabase: true }],
  audit: [{ argv: ["list"] }, { argv: ["verify"] }, { argv: ["seal"] }],
  erase: [{ argv: ["person-1", ...why], findsNothing: true }],
  privacy: [{ argv: ["status"] }, { argv: ["erasures"], silent: true }, { argv: ["reapply", ...why] }],
  topology: [{ argv: ["--app", topologyApp], withoutDatabase: true }],
  completion: [{ argv: ["bash"], withoutDatabase: true, silent: true }],
};
