import { fingerprintOf } from "../dead-letter/index.ts";
import {
  placesOf,
  settleUnderClaims,
  type LaneOwnership,
  type LaneReader,
  type LaneRow,
  type SettleAsk,
} from "../lanes/index.ts";
import {
  originOf,
  quotedSchema,
  SessionHolder,
  settlingPlans,
  SQLSTATE,
  sqlState,
  textArray,
  type Database,
  type Queryable,
} from "../storage/index.ts";
import type { LocalHop } from "../transport/index.ts";
import { settleStatements } from "./statements.ts";

export interface SettlerOptions {
  readonly database: Database;
  readonly schema: string;
  readonly ownership: LaneOwnership;
  readonly reader: LaneReader;
  readonly relay: string;
  readonly hop?: LocalHop | undefined;
}

export interface Failed {
  readonly row: LaneRow;
  readonly delayMs: number;
  readonly error: string;
}

export interface Dying {
  readonly row: LaneRow;
  readonly charged: boolean;
  readonly reason: "exhausted" | "rejected" | "expired";
  readonly errorType: string;
  readonly errorMessage: string;
  readonly stack: string | null;
}

/**
 * Ends the way of rows, one statement per batch, under the claims of their lanes. Only "sent" commits
 * asynchronously: losing that mark means one more delivery; losing a failure or a death would mean a lie.
 */
export class Settler {
  readonly #options: SettlerOptions;
  readonly #sql: ReturnType<typeof settleStatements>;
  readonly #quick: SessionHolder;
  readonly #careful: SessionHolder;

  constructor(options: SettlerOptions) {
    this.#options = options;
    this.#sql = settleStatements(quotedSchema(options.schema));
    const quick = { ...settlingPlans, synchronous_commit: "off" };
    this.#quick = new SessionHolder(options.database, "settle", quick, { knowsOrigin: true });
    this.#careful = new SessionHolder(options.database, "failures", settlingPlans);
  }

  /** Returns the rows that were settled under a good claim; the others belong to somebody else now. */
  async sent(rows: readonly LaneRow[]): Promise<LaneRow[]> {
    const { hop, relay } = this.#options;
    const byName = (own: readonly LaneRow[]) => ({
      statement: hop?.settle ?? this.#sql.sent,
      params: [...placesOf(own), relay],
    });
    if (hop !== undefined) return this.#settle(this.#quick, rows, byName);
    try {
      return await this.#settle(
        this.#quick,
        rows,
        (own, session) => this.#inPlace(own, session) ?? byName(own),
      );
    } catch (error) {
      if (sqlState(error) !== SQLSTATE.invalidText) throw error;
      return this.#settle(this.#quick, rows, byName); // one that was changed since it was read is no longer where it was
    }
  }

  /**
   * Where they were read, by their numbers alone, if that was on the same server and the session has been open ever since:
   * after a crash, or on a standby that took over, a number that was lost is drawn again, and only ids tell rows apart.
   */
  #inPlace(rows: readonly LaneRow[], session: Queryable): ReturnType<SettleAsk> | undefined {
    const opened = originOf(session);
    if (opened === undefined) return undefined;
    const { server, sinceMs } = opened;
    if (!rows.every(({ origin }) => origin.server === server && origin.atMs > sinceMs)) return undefined;
    const seqs = rows.map(({ seq }) => seq).sort((a, b) => a - b);
    const places = textArray(rows.map(({ place }) => place));
    return { statement: this.#sql.sentInPlace, params: [places, textArray(seqs), this.#options.relay] };
  }

  async failed(failures: readonly Failed[]): Promise<void> {
    const byRow = new Map(failures.map((failure) => [failure.row, failure]));
    const own = await this.#run(this.#careful, [...byRow.keys()], (rows) => ({
      statement: this.#sql.failed,
      params: [
        ...placesOf(rows),
        textArray(rows.map((row) => byRow.get(row)?.delayMs ?? 0)),
        textArray(rows.map((row) => byRow.get(row)?.error ?? "")),
      ],
    }));
    for (const row of own.rows) this.#options.reader.back([row], byRow.get(row)?.delayMs ?? 0);
  }

  async dead(deaths: readonly Dying[]): Promise<LaneRow[]> {
    const byRow = new Map(deaths.map((death) => [death.row, death]));
    return this.#settle(this.#careful, [...byRow.keys()], (rows) => {
      const list = (pick: (death: Dying) => string | boolean | null): string =>
        textArray(rows.map((row) => pick(byRow.get(row) as Dying)));
      const params = [
        ...placesOf(rows),
        list((death) => death.charged),
        list((death) => death.reason),
        list((death) => death.errorType),
        list((death) => death.errorMessage),
        list((death) => death.stack),
        list(({ row, ...death }) => fingerprintOf({ consumer: null, type: row.type, ...death })),
      ];
      return { statement: this.#sql.dead, params };
    });
  }

  async close(): Promise<void> {
    await Promise.all([this.#quick.close(), this.#careful.close()]);
  }

  async #settle(holder: SessionHolder, rows: readonly LaneRow[], ask: SettleAsk): Promise<LaneRow[]> {
    const { rows: own, xid } = await this.#run(holder, rows, ask);
    this.#options.reader.settled(own, xid);
    return own;
  }

  async #run(
    holder: SessionHolder,
    asked: readonly LaneRow[],
    ask: SettleAsk,
  ): Promise<Awaited<ReturnType<typeof settleUnderClaims>>> {
    const { ownership, reader, hop } = this.#options;
    const settled = await settleUnderClaims({ ownership, reader, holder }, asked, ask);
    if (settled.woken.length > 0) hop?.wake(settled.woken);
    return settled;
  }
}
