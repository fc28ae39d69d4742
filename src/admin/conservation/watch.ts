import { Loop, systemClock, type Service } from "../../runtime/index.ts";
import { explainPostgresError, quoteSchema, type Database } from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import { Checker, type Retentions } from "./checker.ts";
import { toFindings, type Breach, type ConservationFinding } from "./findings.ts";
import { checkPass, type PassResult, type PassState } from "./pass.ts";
import type { ConservationVerdict } from "./tally.ts";

export interface ConservationWatchOptions {
  readonly database: Database;
  readonly schema: string;
  /** Names this process while it has the turn. */
  readonly worker: string;
  readonly observer: Observer;
  readonly everyMs: number;
  readonly retentions: Retentions;
}

/** Whoever has the turn and falls silent loses it after this many looks. */
const LEASE_PASSES = 3;
const MIN_LEASE_MS = 60_000;

/** Checks all the time, a bounded piece at a time. Of any number of processes one has the turn. */
export class ConservationWatch implements Service {
  readonly #options: ConservationWatchOptions;
  readonly #checker: Checker;
  readonly #loop: Loop;
  #reported: ReadonlySet<string> = new Set();

  constructor(options: ConservationWatchOptions) {
    this.#options = options;
    this.#checker = new Checker(options.database, options.schema);
    this.#loop = new Loop({
      step: async (signal) => {
        await this.runPass(signal);
        return options.everyMs;
      },
      onError: (error) => this.#reportError(error),
      backoffMs: 1_000,
      maxBackoffMs: 60_000,
    });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  async stop(): Promise<void> {
    await this.#loop.stop();
    const { database, worker } = this.#options;
    await database.run(this.#checker.sql.release, [worker]).catch(() => undefined);
  }

  /** One look, if it is this process's turn. Resolves with what is wrong as far as is known. */
  async runPass(signal?: AbortSignal): Promise<readonly ConservationFinding[]> {
    const { database, worker, everyMs, retentions } = this.#options;
    const { claim, kept, save, shorten } = this.#checker.sql;
    const startedMs = systemClock.monotonicMs();
    const leaseMs = Math.max(MIN_LEASE_MS, everyMs * LEASE_PASSES);
    const claimed = await database.run<ClaimRow>(claim, [
      worker,
      leaseMs,
      retentions.deadLetterMs,
      retentions.archiveMs,
    ]);
    const [turn] = claimed.rows;
    if (turn === undefined) {
      await database.run(shorten, [retentions.deadLetterMs, retentions.archiveMs]);
      const { rows } = await database.run<{ state: string }>(kept);
      return this.#report(
        { state: parseState(rows[0]?.state), messages: 0, skipped: 0 },
        "elsewhere",
        startedMs,
      );
    }
    const common = { deadLetterMs: turn.dead_letter_ms, archiveMs: turn.archive_ms };
    const horizon = await this.#checker.findHorizon(common);
    const result = await checkPass(this.#checker, horizon, parseState(turn.state), signal);
    await database.run(save, [worker, JSON.stringify(result.state)]);
    return this.#report(result, result.verdict, startedMs);
  }

  #report(
    { state, messages, skipped }: Omit<PassResult, "verdict">,
    outcome: ConservationVerdict | "elsewhere",
    startedMs: number,
  ): readonly ConservationFinding[] {
    const { observer } = this.#options;
    const findings = toFindings(collectBreaches(state));
    const breaches = findings.reduce((sum, { count }) => sum + count, 0);
    const durationMs = systemClock.monotonicMs() - startedMs;
    observer.emit("conservation.checked", { outcome, messages, breaches, skipped, durationMs });
    if (outcome === "elsewhere") return findings;
    // The same damage is told once, not once a minute.
    const all = collectBreaches(state);
    const fresh = all.filter((breach) => !this.#reported.has(identifyBreach(breach)));
    for (const { kind, lane, count, ids } of toFindings(fresh)) {
      observer.emit("conservation.broken", { kind, lane, count, ids: ids.join(" ") });
    }
    this.#reported = new Set(all.map(identifyBreach));
    return findings;
  }

  #reportError(error: unknown): void {
    const { observer, schema } = this.#options;
    const explained = explainPostgresError(error, quoteSchema(schema));
    const told = explained instanceof Error ? explained.message : String(explained);
    observer.emit("storage.failed", { doing: "checking conservation", error: told, retryInMs: 1_000 });
  }
}

interface ClaimRow {
  readonly state: string;
  readonly dead_letter_ms: number;
  readonly archive_ms: number;
}

function identifyBreach({ kind, id }: Breach): string {
  return `${kind} ${id}`;
}

function collectBreaches({ wrong }: PassState): readonly Breach[] {
  return Object.values(wrong ?? {}).flat();
}

function parseState(text: string | undefined): PassState {
  return JSON.parse(text ?? "{}") as PassState;
}
