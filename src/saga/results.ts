import { errorText, SagaboxError } from "../errors/index.ts";
import { isValidId } from "../message/index.ts";
import { type Duration, milliseconds, rejectUnknownKeys } from "../options/index.ts";
import { after, Loop, systemClock, withDeadline } from "../runtime/index.ts";
import { type Database, notify, toArrayLiteral } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import type { SagaDefinition } from "./definition.ts";
import { toStepContext } from "./draft.ts";
import type { SagaEngine } from "./engine.ts";
import type { InstanceRow, LoadedInstance } from "./saga-store.ts";
import { hasLostRace, type SagaState, type SagaStatus } from "./state.ts";

/** How a saga ended. */
export type SagaResult<R> =
  | {
      readonly status: "completed";
      /** The results of the steps, by name. */
      readonly steps: R;
    }
  | {
      /** `compensated`: everything was undone. `failed`: the instance waits for a decision of an operator. */
      readonly status: "compensated" | "failed";
      /** The step that failed. Null if the saga was cancelled or its deadline passed. */
      readonly step: string | null;
      readonly error: string;
    };

/** The instance whose result a caller waits for: its id, or its key if the caller does not know the id. */
export type ResultTarget = string | { readonly key: string };

/** Options of `bus.sagas.result()`. */
export interface ResultOptions {
  /** How long to wait, from 1 ms to 1 hour. */
  readonly timeout: Duration | number;
}

export interface SagaResultsParts {
  readonly engine: Pick<SagaEngine, "open" | "sql">;
  readonly database: Database;
  readonly channel: string;
  readonly observer: Observer;
  /** Calls the listener for each saga whose status this process changes, after the commit. Returns a function that ends it. */
  readonly listen: (listener: (sagaId: string, status: string) => void) => () => void;
  /** Milliseconds between polls without a hint. Default 1,000. */
  readonly pollMs?: number;
}

type Settle = (instance: LoadedInstance | Error) => void;

/** A key whose instance is looked for. */
interface Search {
  readonly type: string;
  readonly key: string;
  readonly sinceMs: number;
  readonly settle: (sagaId: string | Error) => void;
}

const ASKED = "saga-asked:";
const ENDED = "saga-ended:";
const MAX_IDS_PER_HINT = 100;
/** Ids that other processes wait for. The oldest are forgotten beyond this number; their waiters poll. */
const MAX_ASKED = 10_000;
const GATHER_MS = 5;
/** The first wait for an instance that has not been started yet. Each wait is as long as all waits before it together. */
const FIRST_SEARCH_MS = 20;
const ENDS: ReadonlySet<string> = new Set<SagaStatus>(["completed", "compensated", "failed"]);

/**
 * The sagas whose end this process waits for. A process that begins to wait asks all workers by a notification to report
 * the end of these sagas. Notifications are sent outside of business transactions and only for sagas that are waited for.
 * All instances are also polled in one statement, because a notification can be lost.
 */
export class SagaResults {
  readonly #parts: SagaResultsParts;
  readonly #waiting = new Map<string, Set<Settle>>();
  readonly #searches = new Set<Search>();
  /** Sagas that another process waits for. */
  readonly #asked = new Set<string>();
  readonly #outbox = new Map<string, Set<string>>();
  readonly #loop: Loop;
  #stopListening: (() => void) | undefined;
  #closed = false;

  constructor(parts: SagaResultsParts) {
    this.#parts = parts;
    this.#loop = new Loop({
      step: () => this.#look(),
      onError: (error) =>
        parts.observer.emit("storage.failed", {
          doing: "looking for ended sagas",
          error: errorText(error).slice(0, 500),
          retryInMs: 100,
        }),
      maxBackoffMs: 2_000,
    });
  }

  /**
   * Waits until the saga has ended or failed. Throws SAGA_RESULT_TIMEOUT if the saga has not ended in time, SAGA_NOT_FOUND
   * if there is no instance with this id or key, and BUS_STOPPED if the bus is stopped meanwhile.
   */
  async wait(
    saga: SagaDefinition,
    target: ResultTarget,
    { timeout, ...unknown }: ResultOptions,
  ): Promise<SagaResult<unknown>> {
    rejectUnknownKeys("sagas.result", unknown, []);
    const timeoutMs = milliseconds("sagas.result.timeout", timeout, { min: 1, max: 3_600_000 });
    checkTarget(target);
    if (this.#closed) throw stopped();
    await this.#loop.start();
    const beganMs = systemClock.monotonicMs();
    const sagaId = typeof target === "string" ? target : await this.#find(saga, target.key, timeoutMs);
    const leftMs = Math.max(1, timeoutMs - (systemClock.monotonicMs() - beganMs));
    let settle: Settle = () => undefined;
    const ending = new Promise<LoadedInstance>((resolve, reject) => {
      settle = (result) => (result instanceof Error ? reject(result) : resolve(result));
    });
    this.#add(sagaId, settle);
    try {
      const instance = await withDeadline(ending, leftMs, () =>
        this.#explainTimeout(saga, sagaId, timeoutMs),
      );
      if (instance.type !== saga.name) throw notFound(sagaId, `it is an instance of "${instance.type}"`);
      return toResult(saga, instance);
    } finally {
      this.#remove(sagaId, settle);
    }
  }

  /** Takes a notification of another process. Returns false if it is not about sagas. */
  hear(payload: string): boolean {
    if (payload.startsWith(ENDED)) {
      if (
        payload
          .slice(ENDED.length)
          .split(",")
          .some((id) => this.#waiting.has(id))
      )
        this.#loop.wake();
      return true;
    }
    if (!payload.startsWith(ASKED)) return false;
    for (const id of payload.slice(ASKED.length).split(",")) this.#asked.add(id);
    for (const id of this.#asked) if (this.#asked.size > MAX_ASKED) this.#asked.delete(id);
    this.#listen();
    return true;
  }

  /** Reads the sagas that are waited for. Call it if notifications may have been missed. */
  wake(): void {
    if (this.#isBusy) this.#loop.wake();
  }

  /** Rejects all waits with BUS_STOPPED. */
  async close(): Promise<void> {
    this.#closed = true;
    for (const id of this.#waiting.keys()) this.#settle(id, stopped());
    for (const { settle } of this.#searches) settle(stopped());
    this.#stopListening?.();
    await this.#loop.stop();
  }

  get #isBusy(): boolean {
    return this.#waiting.size + this.#searches.size > 0;
  }

  /** Waits until an instance with the key exists, and returns its id. Throws SAGA_NOT_FOUND after the timeout. */
  async #find({ name: type }: SagaDefinition, key: string, timeoutMs: number): Promise<string> {
    let settle: Search["settle"] = () => undefined;
    const found = new Promise<string>((resolve, reject) => {
      settle = (id) => (id instanceof Error ? reject(id) : resolve(id));
    });
    const search: Search = { type, key, sinceMs: systemClock.monotonicMs(), settle };
    this.#searches.add(search);
    this.#loop.wake();
    try {
      return await withDeadline(found, timeoutMs, () => {
        throw notStarted(type, key, timeoutMs);
      });
    } finally {
      this.#searches.delete(search);
    }
  }

  #add(sagaId: string, settle: Settle): void {
    const others = this.#waiting.get(sagaId);
    if (others !== undefined) others.add(settle);
    else {
      this.#waiting.set(sagaId, new Set([settle]));
      this.#send(ASKED, sagaId);
    }
    this.#listen();
    this.#loop.wake();
  }

  #remove(sagaId: string, settle: Settle): void {
    const own = this.#waiting.get(sagaId);
    own?.delete(settle);
    if (own?.size === 0) this.#waiting.delete(sagaId);
  }

  #listen(): void {
    this.#stopListening ??= this.#parts.listen((sagaId, status) => this.#onChanged(sagaId, status));
  }

  // An operator can decide about a failed instance, so other processes still want to know its next end.
  #onChanged(sagaId: string, status: string): void {
    if (!ENDS.has(status)) return;
    if (this.#waiting.has(sagaId)) this.#loop.wake();
    if (this.#asked.delete(sagaId)) this.#send(ENDED, sagaId);
  }

  /** Sends a hint shortly after, together with others. A hint that fails costs one poll interval. */
  #send(about: string, sagaId: string): void {
    const gathered = this.#outbox.get(about);
    if (gathered !== undefined) return void gathered.add(sagaId);
    this.#outbox.set(about, new Set([sagaId]));
    after(GATHER_MS, () => {
      const ids = [...(this.#outbox.get(about) ?? [])];
      this.#outbox.delete(about);
      const { database, channel } = this.#parts;
      for (let from = 0; from < ids.length && !this.#closed; from += MAX_IDS_PER_HINT) {
        const payload = about + ids.slice(from, from + MAX_IDS_PER_HINT).join(",");
        void notify(database, channel, payload).catch(() => undefined);
      }
    });
  }

  /** Returns the milliseconds until the next round. */
  async #look(): Promise<number> {
    await this.#readStarted();
    await this.#readEnded();
    const { pollMs = 1_000 } = this.#parts;
    const nowMs = systemClock.monotonicMs();
    const waits = [...this.#searches].map(({ sinceMs }) => Math.max(FIRST_SEARCH_MS, nowMs - sinceMs));
    return this.#isBusy ? Math.min(pollMs, ...waits) : Infinity;
  }

  async #readStarted(): Promise<void> {
    if (this.#searches.size === 0) return;
    const { database, engine } = this.#parts;
    const searches = [...this.#searches];
    const { rows } = await database.run<{ nr: number; id: string }>(engine.sql.started, [
      toArrayLiteral(searches.map(({ type }) => type)),
      toArrayLiteral(searches.map(({ key }) => key)),
    ]);
    for (const { nr, id } of rows) {
      const search = searches[nr - 1];
      if (search === undefined) continue;
      this.#searches.delete(search);
      search.settle(id);
    }
  }

  async #readEnded(): Promise<void> {
    if (this.#waiting.size === 0) return;
    const { database, engine } = this.#parts;
    const { rows } = await database.run<InstanceRow>(engine.sql.ended, [
      toArrayLiteral([...this.#waiting.keys()]),
    ]);
    for (const row of rows) {
      const opened = await engine.open(row).catch((error: unknown) => error as Error);
      this.#settle(row.id, opened ?? erased(row.id));
    }
  }

  #settle(sagaId: string, result: LoadedInstance | Error): void {
    const waiting = this.#waiting.get(sagaId);
    this.#waiting.delete(sagaId);
    for (const settle of waiting ?? []) settle(result);
  }

  async #explainTimeout({ name }: SagaDefinition, sagaId: string, timeoutMs: number): Promise<never> {
    const { database, engine } = this.#parts;
    const [row] = (await database.run<InstanceRow>(engine.sql.read, [sagaId])).rows;
    if (row === undefined) {
      const [byKey] = (await database.run<{ id: string }>(engine.sql.idOf, [name, sagaId])).rows;
      if (byKey !== undefined)
        throw notFound(sagaId, `this is the key of saga ${byKey.id}. Pass { key } instead of an id`);
      throw notFound(sagaId, "it was never started, or was deleted after its retention");
    }
    throw new SagaboxError(
      "SAGA_RESULT_TIMEOUT",
      `Saga ${sagaId} did not end within ${timeoutMs} ms; it is ${row.status}. It continues: ask for its result again.`,
    );
  }
}

/** One invalid id would fail the statement that reads all awaited instances. */
function checkTarget(target: ResultTarget): void {
  if (typeof target === "string" && isValidId(target)) return;
  if (typeof target === "object" && target !== null && isValidId(target.key)) {
    const { key: _, ...unknown } = target;
    return rejectUnknownKeys("sagas.result: the target", unknown, ["key"]);
  }
  throw new SagaboxError(
    "OPTIONS_INVALID",
    "sagas.result needs the id of an instance, or { key } with its key: 1 to 255 printable characters.",
  );
}

/** The result of an instance that has ended or failed. */
export function toResult(
  definition: SagaDefinition,
  { status, state, ...instance }: Pick<LoadedInstance, "id" | "input" | "status" | "state">,
): SagaResult<unknown> {
  if (status === "completed") {
    return { status, steps: { ...toStepContext(definition, { ...instance, state }).steps } };
  }
  return { status: status === "failed" ? status : "compensated", ...findFailure(state) };
}

function findFailure(state: SagaState): { readonly step: string | null; readonly error: string } {
  const [mismatch] = Object.entries(state.mismatches ?? {});
  if (mismatch !== undefined) return { step: mismatch[0], error: mismatch[1] };
  const latest = Object.entries(state.records).sort(([, a], [, b]) => b.unit - a.unit);
  for (const [step, { undo }] of latest)
    if (undo?.status === "failed") return { step, error: undo.error ?? "its undo failed" };
  const { cause } = state;
  for (const [step, { outcome, error }] of latest) {
    if (error === undefined || outcome === "done" || hasLostRace(state, step)) continue;
    if (cause === undefined || cause.startsWith(`step "${step}" failed`)) return { step, error };
  }
  return { step: null, error: cause ?? "it was cancelled" };
}

function notFound(sagaId: string, why: string): SagaboxError {
  return new SagaboxError("SAGA_NOT_FOUND", `There is no result for saga ${sagaId}: ${why}.`);
}

function notStarted(type: string, key: string, timeoutMs: number): SagaboxError {
  return new SagaboxError(
    "SAGA_NOT_FOUND",
    `No saga "${type}" with the key ${JSON.stringify(key)} was started within ${timeoutMs} ms. If a message starts it, ` +
      "`sagabox explain` with this key shows where the message is.",
  );
}

function erased(sagaId: string): SagaboxError {
  return new SagaboxError(
    "PRIVACY_ERASED",
    `Saga ${sagaId} has no result any more: its data subject was erased.`,
  );
}

function stopped(): SagaboxError {
  return new SagaboxError("BUS_STOPPED", "The bus was stopped before the saga had ended.");
}
