import type { LaneOwnership, LaneReader, LaneRow } from "../lanes/index.ts";
import type { Message } from "../message/index.ts";
import { random, sleep, systemClock } from "../runtime/index.ts";
import { endSend, type Observer, type Spans } from "../telemetry/index.ts";
import type { LocalHop, Transport } from "../transport/index.ts";
import { countByType } from "./count-by-type.ts";
import type { Destinations } from "./destinations.ts";
import { deathOf, failureText } from "./failures.ts";
import { learn, type Lot } from "./lots.ts";
import type { OutboxSettings } from "./options.ts";
import { publishBatch, sortOutcomes, type Sorted, type SendOutcome } from "./publish-batch.ts";
import { tellBuried, tellFailed } from "./relay-reports.ts";
import { retryOrDie } from "./retry-or-die.ts";
import { LOCKED_RECHECK_MS, type Dying, type Failed, type SettledRows, type Settler } from "./settler.ts";

export interface DeliveryOptions {
  readonly transport: Transport;
  readonly hop?: LocalHop | undefined;
  readonly settings: OutboxSettings;
  readonly destinations: Destinations;
  readonly observer: Observer;
  readonly spans?: Spans;
}

const ORPHAN_RECHECK_MS = 5_000;
const BROKEN_RECHECK_MS = 1_000;

type WholeRow = LaneRow & { readonly message: Message };

function isWhole(row: LaneRow): row is WholeRow {
  return row.message !== null;
}

/** Takes what was read through the transport, and settles it by what became of it. */
export class Delivery {
  readonly #options: DeliveryOptions;
  readonly #ownership: LaneOwnership;
  readonly #reader: LaneReader;
  readonly #settler: Settler;

  constructor(
    options: DeliveryOptions,
    parts: { readonly ownership: LaneOwnership; readonly reader: LaneReader; readonly settler: Settler },
  ) {
    this.#options = options;
    this.#ownership = parts.ownership;
    this.#reader = parts.reader;
    this.#settler = parts.settler;
  }

  /** Never rejects: nobody waits for it, and a process must not end over a batch. */
  async deliver(lot: Lot<LaneRow>): Promise<void> {
    try {
      await this.#deliver(lot);
    } catch (error) {
      this.#reader.back(lot.rows, BROKEN_RECHECK_MS);
      if (lot.trial !== undefined) this.#options.destinations.undecided(lot.trial);
      this.#troubled("delivering a batch", error);
    }
  }

  async #deliver(lot: Lot<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const expired = lot.rows.filter((row) => row.expired);
    const alive = expired.length === 0 ? lot.rows : lot.rows.filter((row) => !row.expired);
    if (expired.length > 0) await this.#bury(expired.map((row) => deathOf(row, "expired")));
    if (alive.length > 0) {
      await (this.#options.hop === undefined ? this.#publish({ ...lot, rows: alive }) : this.#hop(alive));
    }
    this.#options.observer.tell("relay.batch", {
      count: lot.rows.length,
      durationMs: systemClock.monotonicMs() - began,
    });
  }

  async #hop(rows: readonly LaneRow[]): Promise<void> {
    const began = systemClock.monotonicMs();
    const messages = rows.flatMap((row) => row.message ?? []);
    const sending = messages.length === 0 ? undefined : this.#options.spans?.send(messages, "relay");
    const settled = await this.#insist("handing a batch over", () => this.#settler.sent(rows));
    if (sending !== undefined) endSend(sending, () => undefined);
    this.#tellSent(rows, settled, systemClock.monotonicMs() - began);
  }

  async #publish(lot: Lot<LaneRow>): Promise<void> {
    const began = systemClock.monotonicMs();
    const { destinations, transport, settings, spans } = this.#options;
    const readable = await this.#withoutUnreadable(lot.rows);
    const rows = this.#withoutOrphans(readable);
    const send = (): Promise<SendOutcome[]> =>
      publishBatch(transport, rows, {
        timeoutMs: settings.publishTimeoutMs,
        gathered: true,
        mayGoOn: () => this.#ownership.remainingMs() > 0 && rows.every((row) => this.#reader.holds(row)),
        ...(spans === undefined ? {} : { traced: { spans, via: "relay" } }),
      });
    const turn = lot.doubted === true ? await destinations.turns.take(send) : undefined;
    const outcomes = turn?.result ?? (await send());
    const accompanied = turn?.alone === false;
    const { waitMs, outcomes: judged } = learn(destinations, { ...lot, rows, accompanied }, outcomes);
    const sorted = sortOutcomes(rows, judged);
    for (const { row } of sorted.uncharged) this.#reader.back([row], waitMs(row));
    await this.#settle(sorted, systemClock.monotonicMs() - began);
  }

  // Nobody can send what cannot be read, and no later try makes it better. The others of its key come again when its
  // death is noted, since it may hold them back.
  async #withoutUnreadable(rows: readonly LaneRow[]): Promise<readonly LaneRow[]> {
    if (rows.every((row) => row.flaw === undefined)) return rows;
    const deaths = rows.flatMap((row) => (row.flaw === undefined ? [] : deathOf(row, "rejected", row.flaw)));
    const dying = new Set(deaths.map(({ row }) => row));
    const streams = new Set(deaths.flatMap(({ row }) => row.stream ?? []));
    await this.#bury(deaths);
    const others = rows.filter((row) => !dying.has(row));
    this.#reader.back(
      others.filter(({ stream }) => stream !== null && streams.has(stream)),
      0,
    );
    return others.filter(({ stream }) => stream === null || !streams.has(stream));
  }

  // A row whose message was not found goes back, with its successors: the message may just be on its way into a younger
  // partition. If it is really gone, the log says so again and again.
  #withoutOrphans(rows: readonly LaneRow[]): readonly WholeRow[] {
    if (rows.every(isWhole)) return rows;
    const orphans = rows.filter((row) => !isWhole(row));
    const streams = new Set(orphans.map((row) => row.stream ?? row.seq));
    const back = rows.filter((row) => streams.has(row.stream ?? row.seq));
    this.#reader.back(back, ORPHAN_RECHECK_MS);
    this.#troubled("finding the message of an outbox row", new Error(`no message ${orphans[0]?.messageId}`));
    return rows.filter(isWhole).filter((row) => !streams.has(row.stream ?? row.seq));
  }

  async #settle(sorted: Sorted, durationMs: number): Promise<void> {
    const decisions = retryOrDie(sorted, this.#options.settings.retry, random);
    if (sorted.sent.length > 0) {
      const settled = await this.#insist("settling a batch", () => this.#settler.sent(sorted.sent));
      this.#tellSent(sorted.sent, settled, durationMs);
    }
    const locked = [
      ...(decisions.failed.length > 0 ? await this.#fail(decisions.failed) : []),
      ...(decisions.dead.length > 0 ? await this.#bury(decisions.dead) : []),
    ];
    // Behind a row whose failure could not be noted the key waits too, or that row would be sent again at once.
    const streams = new Set(locked.map(({ stream }) => stream));
    for (const row of sorted.skipped)
      this.#reader.back([row], streams.has(row.stream) ? LOCKED_RECHECK_MS : 0);
  }

  /** Returns the rows whose failure could not be noted, since another session has locked them. */
  async #fail(failed: readonly Failed[]): Promise<readonly LaneRow[]> {
    const locked = (await this.#insist("noting failures", () => this.#settler.failed(failed))) ?? [];
    tellFailed(
      this.#options.observer,
      locked.length === 0 ? failed : failed.filter(({ row }) => !locked.includes(row)),
    );
    return locked;
  }

  /** Returns the rows that could not be dead-lettered, since another session has locked them. */
  async #bury(deaths: readonly Dying[]): Promise<readonly LaneRow[]> {
    const { settled, later } = (await this.#insist("burying messages", () => this.#settler.dead(deaths))) ?? {
      settled: [],
      later: [],
    };
    const buried = new Set(settled);
    tellBuried(
      this.#options.observer,
      deaths.filter((death) => buried.has(death.row)),
    );
    return later;
  }

  // What went out must be noted. Only the loss of the lanes ends the trying: then others will send it again.
  async #insist<T>(doing: string, work: () => Promise<T>): Promise<T | undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await work();
      } catch (error) {
        this.#troubled(doing, error);
        await sleep(Math.min(2_000, 50 * 2 ** Math.min(attempt, 6)) * (0.5 + random() / 2));
        if (this.#ownership.size === 0 && this.#ownership.remainingMs() <= 0) return undefined;
      }
    }
  }

  #tellSent(asked: readonly LaneRow[], sent: SettledRows | undefined, durationMs: number): void {
    const { observer } = this.#options;
    const { settled, later } = sent ?? { settled: [], later: [] };
    for (const entry of countByType(settled)) observer.tell("relay.published", { ...entry, durationMs });
    const lost = asked.length - settled.length - later.length;
    if (lost > 0) observer.tell("relay.lost", { lanes: 0, count: lost });
  }

  #troubled(doing: string, error: unknown): void {
    this.#options.observer.tell("storage.failed", { doing, error: failureText(error), retryInMs: 100 });
  }
}
