import { Loop, random, systemClock, type Service } from "../runtime/index.ts";
import { explainPostgresError, quoteSchema, type Database } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { Finding } from "./findings.ts";
import { verifyPiece, type Piece, type ChainPosition } from "./verify-piece.ts";

export interface AuditWatchOptions {
  readonly database: Database;
  readonly schema: string;
  readonly observer: Observer;
  readonly everyMs: number;
  /** About how many rows one look compares. Default 5,000. */
  readonly rows?: number;
  /** How many seals one look takes at most, where they cover few rows. Default 250. */
  readonly seals?: number;
  /** Where in the chain the first look begins, from 0 to 1. */
  readonly begin?: () => number;
}

const ROWS = 5_000;
const SEALS = 250;

/**
 * Compares the sealed log with its seals all the time, a bounded piece at a time, round after round. Each process begins
 * somewhere else, so that many of them are through sooner, and one that is started anew every day still sees all of it.
 */
export class AuditWatch implements Service {
  readonly #options: AuditWatchOptions;
  readonly #loop: Loop;
  readonly #reported = new Set<string>();
  #position: ChainPosition;

  constructor(options: AuditWatchOptions) {
    this.#options = options;
    this.#position = { share: (options.begin ?? random)() };
    this.#loop = new Loop({
      step: async (signal) => {
        await this.verifyNext(signal);
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

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** Compares the next piece. Resolves with what is not as it was sealed. */
  async verifyNext(signal?: AbortSignal): Promise<readonly Finding[]> {
    const startedMs = systemClock.monotonicMs();
    const piece = await this.#verifyPiece(signal);
    const findings = piece.findings.length === 0 ? [] : await this.#confirmFindings(piece, signal);
    // What was left in the middle is looked at again.
    if (signal?.aborted === true) return [];
    this.#position = piece.next;
    this.#report(findings);
    const { rows, seals, wrapped } = piece;
    const durationMs = systemClock.monotonicMs() - startedMs;
    const { observer } = this.#options;
    observer.emit("audit.verified", { rows, seals, findings: findings.length, wrapped, durationMs });
    return findings;
  }

  // Months may be dropped, and a chain begun, while we read. Damage stays; so only what is seen twice is damage.
  async #confirmFindings({ findings }: Piece, signal: AbortSignal | undefined): Promise<readonly Finding[]> {
    const seen = new Set((await this.#verifyPiece(signal)).findings.map(({ text }) => text));
    return findings.filter(({ text }) => seen.has(text));
  }

  #verifyPiece(signal: AbortSignal | undefined): Promise<Piece> {
    const { database, schema, rows = ROWS, seals = SEALS } = this.#options;
    return verifyPiece(database, schema, { place: this.#position, rows, seals, signal });
  }

  // The same damage is told once, not round after round; and of much damage of one kind the first.
  #report(findings: readonly Finding[]): void {
    const fresh = findings.filter(({ text }) => !this.#reported.has(text));
    for (const { text } of fresh) this.#reported.add(text);
    for (const kind of new Set(fresh.map((one) => one.kind))) {
      const [first, ...more] = fresh.filter((one) => one.kind === kind);
      if (first === undefined) continue;
      const error = more.length === 0 ? first.text : `${first.text} And ${more.length} more of this kind.`;
      this.#options.observer.emit("audit.broken", { kind, seal: first.seal, error });
    }
  }

  #reportError(error: unknown): void {
    const { observer, schema } = this.#options;
    const explained = explainPostgresError(error, quoteSchema(schema));
    const told = explained instanceof Error ? explained.message : String(explained);
    observer.emit("storage.failed", { doing: "verifying the audit log", error: told, retryInMs: 1_000 });
  }
}
