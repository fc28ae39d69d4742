import type { Bench } from "./harness/bench.ts";
import type { Result } from "./harness/result.ts";
import { drain } from "./relay/drain.ts";

type Measurement = (bench: Bench) => Promise<Result[]>;

/** What each suite measures, by title. */
export const suites: Readonly<Record<string, Readonly<Record<string, Measurement>>>> = {
  relay: { "drain of a backlog (P1, P2)": drain },
  publish: {},
  inbox: {},
};
