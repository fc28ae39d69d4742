import { parseArgs } from "node:util";

export interface Arguments {
  readonly suite: string;
  readonly json: boolean;
  readonly rounds: number;
  readonly quick: boolean;
  /** Measurements whose title contains this; all unless given. */
  readonly only: string | undefined;
}

export const USAGE = `npm run bench -- <suite | all> [--json] [--rounds n] [--quick] [--only text]

  suites: relay, publish, inbox, sagas, payloads, telemetry, weight, transports
  --json      one object on stdout instead of the table
  --rounds n  interleaved rounds (default 5)
  --quick     smaller sizes, for a first look
  --only x    only measurements whose title contains x`;

/** Undefined when the command line makes no sense. */
export function parseArguments(argv: readonly string[], suites: readonly string[]): Arguments | undefined {
  try {
    const { values, positionals } = parseArgs({
      args: [...argv],
      allowPositionals: true,
      options: {
        json: { type: "boolean", default: false },
        quick: { type: "boolean", default: false },
        rounds: { type: "string", default: "5" },
        only: { type: "string" },
      },
    });
    const [suite] = positionals;
    const rounds = Number(values.rounds);
    if (suite === undefined || positionals.length > 1 || !Number.isInteger(rounds) || rounds < 1)
      return undefined;
    if (suite !== "all" && !suites.includes(suite)) return undefined;
    return { suite, json: values.json, rounds, quick: values.quick, only: values.only };
  } catch {
    return undefined;
  }
}
