import {
  quoteSchema,
  sqlState,
  SQLSTATE,
  type Database,
  type OwnedTransaction,
} from "../../storage/index.ts";
import type { Breach } from "./findings.ts";
import { messageStatements } from "./message-statements.ts";
import { checkTablePage, checkStanding, type CheckedPage, type Cursor, type CheckedTable } from "./tables.ts";
import { tableStatements } from "./statements.ts";
import { checkWindow, joinWindows, type CheckedWindow, type Window } from "./window.ts";

/** Pages in a window, about 4 MB of messages. */
export const WINDOW_PAGES = 512;

const DAY_MS = 86_400_000;
const MAX_AGE_MS = 3_650 * DAY_MS;
const STATEMENT_TIMEOUT = "10s";
/** Errors of a table that is too busy or too large to check now. It is left for the next round. */
const BUSY_STATES: readonly string[] = [SQLSTATE.queryCanceled, SQLSTATE.lockNotAvailable];

export interface Retentions {
  readonly deadLetterMs: number;
  readonly archiveMs: number;
}

/** Retentions that apply until a worker has stored its own. */
export const defaultRetentions: Retentions = { deadLetterMs: 14 * DAY_MS, archiveMs: 30 * DAY_MS };

/** The oldest days that can be checked. Dead letters and receipts of older messages may have been deleted. */
export interface Horizon {
  readonly messages: string;
  readonly rows: string;
}

export interface DayPages {
  readonly day: string;
  readonly pages: number;
}

/** Checks one window or page at a time, each in its own short snapshot. Read-only. */
export class Checker {
  readonly #database: Database;
  readonly #schema: string;
  readonly #messages: ReturnType<typeof messageStatements>;
  readonly #tables: ReturnType<typeof tableStatements>;

  constructor(database: Database, schema: string) {
    this.#database = database;
    this.#schema = quoteSchema(schema);
    this.#messages = messageStatements(this.#schema);
    this.#tables = tableStatements(this.#schema);
  }

  get sql(): ReturnType<typeof tableStatements> {
    return this.#tables;
  }

  async readRetentions(): Promise<Retentions> {
    const { rows } = await this.#database.run<{ dead_letter_ms: number | null; archive_ms: number | null }>(
      this.#tables.kept,
    );
    return {
      deadLetterMs: rows[0]?.dead_letter_ms ?? defaultRetentions.deadLetterMs,
      archiveMs: rows[0]?.archive_ms ?? defaultRetentions.archiveMs,
    };
  }

  async findHorizon({ deadLetterMs, archiveMs }: Retentions): Promise<Horizon> {
    const wholeDays = Math.min(deadLetterMs, archiveMs) - DAY_MS;
    return {
      messages: await this.#findDayBefore(wholeDays),
      rows: await this.#findDayBefore(archiveMs - DAY_MS),
    };
  }

  async listDays(oldest: string): Promise<readonly DayPages[]> {
    return (await this.#database.run<DayPages>(this.#messages.days, [this.#schema, oldest])).rows;
  }

  /** Checks a window, in halves if it has more suspects than one query can explain. Undefined if the tables are busy. */
  async checkWindow(window: Window): Promise<CheckedWindow | undefined> {
    const checked = await this.#confirmBreaches((tx) => checkWindow(tx, this.#messages, window));
    if (checked === undefined || checked.whole || window.toPage - window.fromPage <= 1) return checked;
    return this.checkInPieces(window, 2);
  }

  /** Checks a window in `count` pieces. Resolves with undefined if a piece could not be checked. */
  async checkInPieces(
    window: Window,
    count: number,
    signal?: AbortSignal,
  ): Promise<CheckedWindow | undefined> {
    const { fromPage, toPage } = window;
    const size = Math.ceil((toPage - fromPage) / count);
    let [rest, joined]: [Window, CheckedWindow | undefined] = [window, undefined];
    for (let page = fromPage; page < toPage; page += size) {
      if (signal?.aborted === true) return undefined;
      const piece = await this.checkWindow({
        ...rest,
        fromPage: page,
        toPage: Math.min(page + size, toPage),
      });
      if (piece === undefined) return undefined;
      joined = joined === undefined ? piece : joinWindows(joined, piece);
      rest = { ...window, after: piece.high, afterDay: window.day };
    }
    return joined;
  }

  checkTablePage(name: CheckedTable, after: Cursor, oldest: string): Promise<CheckedPage | undefined> {
    const wanted = { after, oldest, schema: this.#schema };
    return this.#confirmBreaches((tx) => checkTablePage(tx, this.#tables, name, wanted));
  }

  checkStanding(): Promise<CheckedPage | undefined> {
    return this.#confirmBreaches((tx) => checkStanding(tx, this.#tables));
  }

  // A partition that is attached between snapshot and statement hides the rows moved into it. Real damage is permanent, so
  // only breaches that a second snapshot repeats are reported.
  async #confirmBreaches<T extends { readonly breaches: readonly Breach[] }>(
    work: (tx: OwnedTransaction) => Promise<T>,
  ): Promise<T | undefined> {
    const first = await this.#runInSnapshot(work);
    if (first === undefined || first.breaches.length === 0) return first;
    const second = await this.#runInSnapshot(work);
    if (second === undefined) return undefined;
    const named = new Set(first.breaches.map(({ kind, id }) => `${kind} ${id}`));
    return { ...second, breaches: second.breaches.filter(({ kind, id }) => named.has(`${kind} ${id}`)) };
  }

  async #findDayBefore(ms: number): Promise<string> {
    const { rows } = await this.#database.run<{ day: string }>(this.#tables.today, [
      Math.min(Math.max(0, ms), MAX_AGE_MS),
    ]);
    return rows[0]?.day ?? "";
  }

  async #runInSnapshot<T>(work: (tx: OwnedTransaction) => Promise<T>): Promise<T | undefined> {
    const tx = await this.#database.begin({ isolation: "repeatable read", idleTimeoutMs: 30_000 });
    try {
      await tx.run(this.#tables.limits, [STATEMENT_TIMEOUT]);
      return await work(tx);
    } catch (error) {
      if (BUSY_STATES.includes(sqlState(error) ?? "")) return undefined;
      throw error;
    } finally {
      await tx.rollback();
    }
  }
}
