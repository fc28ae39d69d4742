import {
  claimParams,
  type Claim,
  type LaneOwnership,
  type LaneReader,
  type LaneRow,
} from "../lanes/index.ts";
import {
  quotedSchema,
  SessionHolder,
  steadyPlans,
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

interface Answer {
  readonly xid: string;
  readonly owned: readonly number[];
  readonly woken?: readonly number[] | null;
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
      ...steadyPlans,
      synchronous_commit: "off",
    });
    this.#careful = new SessionHolder(options.database, "failures", steadyPlans);
  }

  /** Returns the rows that were settled under a good claim; the others belong to somebody else now. */
  async sent(rows: readonly LaneRow[]): Promise<LaneRow[]> {
    const statement = this.#options.hop?.settle ?? this.#sql.sent;
    return this.#settle(this.#quick, statement, rows, (own) => [...places(own), this.#options.relay]);
  }

  async failed(failures: readonly Failed[]): Promise<void> {
    const byRow = new Map(failures.map((failure) => [failure.row, failure]));
    const own = await this.#run(this.#careful, this.#sql.failed, [...byRow.keys()], (rows) => [
      ...places(rows),
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
        ...places(rows),
        list((death) => death.charged),
        list((death) => death.reason),
        list((death) => death.errorType),
        list((death) => death.errorMessage),
        list((death) => death.stack),
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

  // A claim that is no longer good makes the whole statement do nothing; the rest is settled without it. A reply that
  // was lost is no proof of anything: the same statement is sent again and finds the rows there or gone.
  async #run(
    holder: SessionHolder,
    statement: Statement,
    asked: readonly LaneRow[],
    params: (own: readonly LaneRow[]) => Param[],
  ): Promise<{ rows: LaneRow[]; xid?: { value: string; reads: number } }> {
    const { ownership, reader } = this.#options;
    for (;;) {
      const rows = asked.filter((row) => ownership.claimToSettle(row.lane) !== undefined);
      if (rows.length === 0) return { rows };
      const claims = this.#claimsOf(rows);
      const reads = reader.reads();
      const session = await holder.get();
      const answer = await session.run<Answer>(statement, [...claimParams(claims), ...params(rows)]);
      const { xid, owned, woken } = answer.rows[0] ?? { xid: "0", owned: [] };
      if (woken?.length) this.#options.hop?.wake(woken);
      if (owned.length === claims.length) return { rows, xid: { value: xid, reads } };
      const good = new Set(owned);
      ownership.lose(claims.map((claim) => claim.lane).filter((lane) => !good.has(lane)));
    }
  }

  #claimsOf(rows: readonly LaneRow[]): Claim[] {
    const lanes = [...new Set(rows.map((row) => row.lane))].toSorted((a, b) => a - b);
    return lanes.flatMap((lane) => this.#options.ownership.claimToSettle(lane) ?? []);
  }
}

function places(rows: readonly LaneRow[]): [string, string, string] {
  return [
    textArray(rows.map((row) => row.lane)),
    textArray(rows.map((row) => row.seq)),
    textArray(rows.map((row) => row.messageId)),
  ];
}
