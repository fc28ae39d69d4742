import { fingerprintOf } from "../dead-letter/index.ts";
import {
  placesOf,
  settleUnderClaims,
  type LaneOwnership,
  type LaneReader,
  type LaneRow,
} from "../lanes/index.ts";
import {
  quotedSchema,
  SessionHolder,
  settlingPlans,
  textArray,
  type Database,
  type Param,
} from "../storage/index.ts";
import type { Statement } from "../storage/index.ts";
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
    this.#quick = new SessionHolder(options.database, "settle", {
      ...settlingPlans,
      synchronous_commit: "off",
    });
    this.#careful = new SessionHolder(options.database, "failures", settlingPlans);
  }

  /** Returns the rows that were settled under a good claim; the others belong to somebody else now. */
  async sent(rows: readonly LaneRow[]): Promise<LaneRow[]> {
    const { hop, reader, relay } = this.#options;
    if (hop !== undefined) return this.#sentByName(hop.settle, rows);
    const settled = await this.#run(this.#quick, this.#sql.sentInPlace, rows, (own) => [
      textArray(own.map((row) => row.place)),
      textArray(own.map((row) => row.seq)),
      textArray(own.map((row) => row.messageId)),
      relay,
    ]);
    // One that was changed since it was read is no longer where it was.
    if (settled.gone !== settled.rows.length) return this.#sentByName(this.#sql.sent, settled.rows);
    reader.settled(settled.rows, settled.xid);
    return settled.rows;
  }

  #sentByName(statement: Statement, rows: readonly LaneRow[]): Promise<LaneRow[]> {
    return this.#settle(this.#quick, statement, rows, (own) => [...placesOf(own), this.#options.relay]);
  }

  async failed(failures: readonly Failed[]): Promise<void> {
    const byRow = new Map(failures.map((failure) => [failure.row, failure]));
    const own = await this.#run(this.#careful, this.#sql.failed, [...byRow.keys()], (rows) => [
      ...placesOf(rows),
      textArray(rows.map((row) => byRow.get(row)?.delayMs ?? 0)),
      textArray(rows.map((row) => byRow.get(row)?.error ?? "")),
    ]);
    for (const row of own.rows) this.#options.reader.back([row], byRow.get(row)?.delayMs ?? 0);
  }

  async dead(deaths: readonly Dying[]): Promise<LaneRow[]> {
    const byRow = new Map(deaths.map((death) => [death.row, death]));
    return this.#settle(this.#careful, this.#sql.dead, [...byRow.keys()], (rows) => {
      const list = (pick: (death: Dying) => string | boolean | null): string =>
        textArray(rows.map((row) => pick(byRow.get(row) as Dying)));
      return [
        ...placesOf(rows),
        list((death) => death.charged),
        list((death) => death.reason),
        list((death) => death.errorType),
        list((death) => death.errorMessage),
        list((death) => death.stack),
        list(({ row, ...death }) => fingerprintOf({ consumer: null, type: row.type, ...death })),
      ];
    });
  }

  async close(): Promise<void> {
    await Promise.all([this.#quick.close(), this.#careful.close()]);
  }

  async #settle(
    holder: SessionHolder,
    statement: Statement,
    rows: readonly LaneRow[],
    params: (own: readonly LaneRow[]) => Param[],
  ): Promise<LaneRow[]> {
    const { rows: own, xid } = await this.#run(holder, statement, rows, params);
    this.#options.reader.settled(own, xid);
    return own;
  }

  async #run(
    holder: SessionHolder,
    statement: Statement,
    asked: readonly LaneRow[],
    params: (own: readonly LaneRow[]) => Param[],
  ): Promise<Awaited<ReturnType<typeof settleUnderClaims>>> {
    const { ownership, reader, hop } = this.#options;
    const settled = await settleUnderClaims({ ownership, reader, holder }, statement, asked, params);
    if (settled.woken.length > 0) hop?.wake(settled.woken);
    return settled;
  }
}
