import { type FailedRound, PeriodicService, systemClock } from "../../runtime/index.ts";
import { type Database, explainPostgresError, quoteSchema } from "../../storage/index.ts";
import type { Observer } from "../../telemetry/index.ts";
import { Checker, type DayPages, type Horizon, type Retentions, WINDOW_PAGES } from "./checker.ts";
import { type Breach, type ConservationFinding, toFindings } from "./findings.ts";
import { type CheckedTable, checkedTables, type Cursor } from "./tables.ts";
import { type ConservationVerdict, decideVerdict } from "./verify.ts";

export interface ConservationWatchOptions {
  readonly database: Database;
  readonly schema: string;
  /** Name of this process, stored with its claim. */
  readonly worker: string;
  readonly observer: Observer;
  readonly everyMs: number;
  readonly retentions: Retentions;
}

/** A process loses its claim after this many passes without a renewal. */
const LEASE_PASSES = 3;
const MIN_LEASE_MS = 60_000;

/** Checks conservation continuously, a bounded part per pass. One process at a time has the claim. */
export class ConservationWatch extends PeriodicService {
  readonly #options: ConservationWatchOptions;
  readonly #checker: Checker;
  #reported: ReadonlySet<string> = new Set();

  constructor(options: ConservationWatchOptions) {
    super({ everyMs: options.everyMs });
    this.#options = options;
    this.#checker = new Checker(options.database, options.schema);
  }

  override async stop(): Promise<void> {
    await super.stop();
    const { database, worker } = this.#options;
    await database.run(this.#checker.sql.release, [worker]).catch(() => undefined);
  }

  /** Runs one pass if this process gets the claim. Resolves with the known damage in any case. */
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
    // Emits each breach once, not with every pass.
    const all = collectBreaches(state);
    const fresh = all.filter((breach) => !this.#reported.has(identifyBreach(breach)));
    for (const { kind, lane, count, ids } of toFindings(fresh)) {
      observer.emit("conservation.broken", { kind, lane, count, ids: ids.join(" ") });
    }
    this.#reported = new Set(all.map(identifyBreach));
    return findings;
  }

  protected override async runRound(signal: AbortSignal): Promise<void> {
    await this.runPass(signal);
  }

  protected override onFailure({ error, retryInMs }: FailedRound): void {
    const { observer, schema } = this.#options;
    const explained = explainPostgresError(error, quoteSchema(schema));
    const text = explained instanceof Error ? explained.message : String(explained);
    observer.emit("storage.failed", { doing: "checking conservation", error: text, retryInMs });
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

interface WindowPosition {
  readonly day: string;
  readonly page: number;
  readonly after: string | null;
  readonly afterDay: string | null;
}

/** State that a pass stores for the next pass, in any process. */
interface PassState {
  /** Start of the newest messages that are not checked yet. */
  readonly front?: WindowPosition;
  /** Position of the round over older messages. */
  readonly back?: WindowPosition;
  readonly places?: Readonly<Partial<Record<CheckedTable, Cursor>>>;
  /** Windows that were too busy. They are retried with every pass until they are checked. */
  readonly missed?: readonly WindowPosition[];
  /** Known damage by window or page. These are checked again with every pass. */
  readonly wrong?: Readonly<Record<string, readonly Breach[]>>;
}

interface PassResult {
  readonly state: PassState;
  readonly messages: number;
  /** Number of parts that were too busy in this pass. */
  readonly skipped: number;
  readonly verdict: ConservationVerdict;
}

/** Upper bounds per pass for windows of new messages and of older messages. */
const MAX_FRONT_WINDOWS = 20;
const MAX_BACK_WINDOWS = 10;
/** Upper bound for damaged windows and pages that are remembered and checked again. */
const MAX_WRONG = 50;
/** Upper bound for remembered busy windows. The round over older messages covers the others. */
const MAX_MISSED = 50;
/** Busy windows that one pass retries. Each may take as long as the statement timeout. */
const MAX_MISSED_RETRIES = 5;

/** Runs one pass: the newest messages, some older ones, a page of each table, and all known damage. */
async function checkPass(
  checker: Checker,
  horizon: Horizon,
  state: PassState,
  signal?: AbortSignal,
): Promise<PassResult> {
  const pass = new Pass(checker, horizon, state, signal);
  return pass.run();
}

class Pass {
  readonly #checker: Checker;
  readonly #horizon: Horizon;
  readonly #before: PassState;
  readonly #signal: AbortSignal | undefined;
  readonly #wrong = new Map<string, readonly Breach[]>();
  readonly #missed: WindowPosition[] = [];
  readonly #seen = new Set<string>();
  #messages = 0;
  #skipped = 0;

  constructor(checker: Checker, horizon: Horizon, before: PassState, signal: AbortSignal | undefined) {
    this.#checker = checker;
    this.#horizon = horizon;
    this.#before = before;
    this.#signal = signal;
  }

  async run(): Promise<PassResult> {
    const days = await this.#checker.listDays(this.#horizon.messages);
    const front = await this.#checkWindows(days, this.#findFront(days), MAX_FRONT_WINDOWS);
    const back = await this.#checkWindows(days, this.#before.back, MAX_BACK_WINDOWS);
    const places: Partial<Record<CheckedTable, Cursor>> = {};
    for (const name of checkedTables)
      places[name] = await this.#checkTablePage(name, this.#before.places?.[name] ?? null);
    this.#record("standing", await this.#checker.checkStanding());
    await this.#recheckWrong(days);
    await this.#recheckMissed(days);
    const wrong = Object.fromEntries([...this.#wrong].slice(0, MAX_WRONG));
    const missed = this.#missed.slice(0, MAX_MISSED);
    const everything = this.#skipped === 0 && missed.length === 0 && !this.#isStopped;
    return {
      state: { ...(front ? { front } : {}), ...(back ? { back } : {}), places, missed, wrong },
      messages: this.#messages,
      skipped: this.#skipped,
      verdict: decideVerdict({ broken: this.#wrong.size > 0, everything }),
    };
  }

  get #isStopped(): boolean {
    return this.#signal?.aborted === true;
  }

  // The newest window is checked again, because it may have got new messages.
  #findFront(days: readonly DayPages[]): WindowPosition | undefined {
    const newest = days.at(-1);
    if (newest === undefined) return undefined;
    const before = this.#before.front;
    if (before !== undefined && days.some(({ day }) => day === before.day)) return before;
    return { day: newest.day, page: findLastWindow(newest), after: null, afterDay: null };
  }

  async #checkWindows(
    days: readonly DayPages[],
    from: WindowPosition | undefined,
    most: number,
  ): Promise<WindowPosition | undefined> {
    let spot = from !== undefined && days.some(({ day }) => day === from.day) ? from : findFirstWindow(days);
    for (let n = 0; n < most && spot !== undefined && !this.#isStopped; n++) {
      const high = await this.#checkWindow(spot);
      const next = findNextWindow(days, spot, high);
      if (next === undefined) return most === MAX_FRONT_WINDOWS ? spot : undefined;
      spot = next;
    }
    return spot;
  }

  async #checkWindow({ day, page, after, afterDay }: WindowPosition): Promise<string | null> {
    const name = windowName({ day, page });
    if (this.#seen.has(name)) return after;
    const checked = await this.#checker.checkWindow({
      day,
      fromPage: page,
      toPage: page + WINDOW_PAGES,
      after,
      afterDay,
    });
    this.#messages += checked?.messages ?? 0;
    this.#record(name, checked);
    if (checked === undefined) this.#missed.push({ day, page, after, afterDay });
    return checked?.high ?? null;
  }

  async #checkTablePage(name: CheckedTable, after: Cursor): Promise<Cursor> {
    const checked = await this.#checker.checkTablePage(name, after, this.#horizon.rows);
    this.#record(`${name} ${JSON.stringify(after)}`, checked);
    return checked === undefined ? after : checked.next;
  }

  async #recheckWrong(days: readonly DayPages[]): Promise<void> {
    for (const [name, breaches] of Object.entries(this.#before.wrong ?? {})) {
      if (this.#seen.has(name)) continue;
      if (this.#isStopped) {
        this.#wrong.set(name, breaches);
        continue;
      }
      const [kind = "", ...rest] = name.split(" ");
      if (kind === "message") {
        const [day = "", page = "0"] = rest;
        // A day that can no longer be judged is no longer wrong.
        if (!days.some((known) => known.day === day)) continue;
        const after = findLowestSeq(breaches);
        await this.#checkWindow({ day, page: Number(page), after, afterDay: null });
      } else if (checkedTables.includes(kind as CheckedTable)) {
        await this.#checkTablePage(kind as CheckedTable, JSON.parse(rest.join(" ")) as Cursor);
      }
    }
  }

  async #recheckMissed(days: readonly DayPages[]): Promise<void> {
    const missed = (this.#before.missed ?? []).filter(
      (spot) => !this.#seen.has(windowName(spot)) && days.some(({ day }) => day === spot.day),
    );
    for (const [turn, spot] of missed.entries()) {
      // Windows that have to wait come first in the next pass.
      if (turn >= MAX_MISSED_RETRIES || this.#isStopped) this.#missed.unshift(spot);
      else await this.#checkWindow(spot);
    }
  }

  #record(name: string, checked: { readonly breaches: readonly Breach[] } | undefined): void {
    this.#seen.add(name);
    if (checked === undefined) {
      this.#skipped += 1;
      const before = this.#before.wrong?.[name];
      if (before !== undefined) this.#wrong.set(name, before);
    } else if (checked.breaches.length > 0) this.#wrong.set(name, checked.breaches.slice(0, 100));
  }
}

function windowName({ day, page }: Pick<WindowPosition, "day" | "page">): string {
  return `message ${day} ${page}`;
}

// Returns the seq before the first missing message, so that the repeated check covers it again.
function findLowestSeq(breaches: readonly Breach[]): string | null {
  const seqs = breaches.flatMap(({ kind, id }) =>
    kind === "message_unarchived" ? [BigInt(id.split("/")[1] ?? "1")] : [],
  );
  const least = seqs.reduce<bigint | null>((low, seq) => (low === null || seq < low ? seq : low), null);
  return least === null ? null : String(least - 1n);
}

function findLastWindow({ pages }: DayPages): number {
  return Math.floor(Math.max(0, pages - 1) / WINDOW_PAGES) * WINDOW_PAGES;
}

function findFirstWindow([first]: readonly DayPages[]): WindowPosition | undefined {
  return first === undefined ? undefined : { day: first.day, page: 0, after: null, afterDay: null };
}

/** Returns the next window, on the same or the next day with messages; undefined at the end. Pure. */
function findNextWindow(
  days: readonly DayPages[],
  { day, page }: WindowPosition,
  after: string | null,
): WindowPosition | undefined {
  const at = days.findIndex((known) => known.day === day);
  const own = days[at];
  if (own !== undefined && page + WINDOW_PAGES < own.pages)
    return { day, page: page + WINDOW_PAGES, after, afterDay: day };
  const next = days[at + 1];
  return next === undefined ? undefined : { day: next.day, page: 0, after, afterDay: day };
}
