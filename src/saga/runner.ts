import { SagaboxError } from "../errors/index.ts";
import { SUBJECT_ERASED } from "../message/index.ts";
import { Loop, type Service, systemClock, withDeadline } from "../runtime/index.ts";
import { type Database, type Statement, toArrayLiteral } from "../storage/index.ts";
import { storableErrorText } from "./begin.ts";
import {
  ClaimAheadBuffer,
  type ClaimedInstance,
  MAX_CLAIM_AHEAD_MS,
  maxClaimedAhead,
} from "./claim-ahead-buffer.ts";
import type { SagaEngine } from "./engine.ts";
import type { OpenTransaction } from "./instance-handle.ts";
import { InstanceTask } from "./instance-task.ts";
import type { Claim, InstanceRow, LoadedInstance } from "./saga-store.ts";
import { Semaphore } from "./semaphore.ts";
import { ENCRYPTED_TEXT } from "./subject-cipher.ts";
import { TransitionWriter } from "./transition-writer.ts";

export interface SagaRunnerParts {
  readonly engine: SagaEngine;
  readonly database: Database;
  readonly begin: OpenTransaction;
  readonly worker: string;
  readonly leaseMs: number;
  /** Maximum number of instances that run at once. */
  readonly concurrency: number;
  /** Maximum time between two polls, in milliseconds. */
  readonly pollMs: number;
  /** How long `stop` waits for local steps, in milliseconds. */
  readonly stopDeadlineMs: number;
}

/** Claims and runs instances that are due without a message: local steps, retries, timeouts, pending input. */
export class SagaRunner implements Service {
  readonly #parts: SagaRunnerParts;
  readonly #tasks = new Map<string, InstanceTask>();
  /** Claimed instances that are being decrypted. */
  readonly #opening = new Map<string, Promise<void>>();
  /** Instances that were claimed again while their task ran. */
  readonly #claimedTwice = new Set<string>();
  readonly #finishing = new Set<Promise<void>>();
  readonly #writer: TransitionWriter;
  readonly #claimedAhead: ClaimAheadBuffer;
  readonly #semaphore: Semaphore;
  readonly #loop: Loop;
  readonly #renewal: Loop;
  readonly #orphans: Loop;
  /** The next poll looks for pending input, even if it is not time yet. */
  #isHinted = false;
  /** The last poll found nothing due, and the next due time is known. */
  #isIdle = false;
  /** Monotonic time of the next poll for pending input. */
  #pendingInputAtMs = 0;
  /** Older instances may be due, so a new instance must not be claimed ahead of them. */
  #mayHaveDue = true;
  #claimedAtMs = 0;
  #isStarting = false;
  #transitions = 0;

  constructor(parts: SagaRunnerParts) {
    this.#parts = parts;
    const { sql } = parts.engine;
    const { observer } = parts.engine.parts;
    this.#writer = new TransitionWriter(parts.database, sql.save);
    this.#claimedAhead = new ClaimAheadBuffer(parts.concurrency);
    this.#semaphore = new Semaphore({
      count: parts.concurrency,
      onFree: () => this.#startNext(),
      onQueue: () => this.#loop.wake(),
    });
    const onError =
      (doing: string) =>
      (error: unknown): void =>
        observer.emit("storage.failed", {
          doing,
          error: storableErrorText(error).slice(0, 500),
          retryInMs: 100,
        });
    this.#loop = new Loop({
      step: () => this.#poll(),
      onError: onError("claiming sagas"),
      maxBackoffMs: 2_000,
    });
    this.#renewal = new Loop({ step: () => this.#renew(), onError: onError("renewing claims of sagas") });
    this.#orphans = createOrphanLoop(
      parts.engine,
      parts.database,
      onError("looking for unregistered saga versions"),
    );
  }

  async start(): Promise<void> {
    if (this.#parts.engine.parts.registry.all().length === 0) return;
    await Promise.all([this.#loop.start(), this.#renewal.start(), this.#orphans.start()]);
  }

  /** Stops claiming, aborts local steps and releases the claims. Throws SHUTDOWN_TIMEOUT if a step does not end in time. */
  async stop(): Promise<void> {
    await this.#loop.stop();
    await this.#giveBack(this.#claimedAhead.removeAll()).catch(() => undefined); // the claims expire
    await withDeadline(Promise.all(this.#opening.values()), this.#parts.stopDeadlineMs, () => []);
    const timeout = await stopTasks(this.#tasks.values(), this.#parts.stopDeadlineMs);
    await Promise.all(this.#finishing);
    await Promise.all([this.#renewal.stop(), this.#orphans.stop()]);
    if (timeout !== undefined) throw timeout;
  }

  /** True if the last poll found nothing due since the last hint, and no instance is being worked on. */
  get isIdle(): boolean {
    const { size } = this.#tasks;
    const claimed = size + this.#opening.size + this.#finishing.size + this.#claimedAhead.size;
    return this.#isIdle && !this.#isHinted && claimed === 0;
  }

  /** Resolves to true if an instance is due that no worker has claimed. */
  async isDue(): Promise<boolean> {
    const { engine, database } = this.#parts;
    const names = toArrayLiteral(engine.listMovableSagas());
    const { rows } = await database.run<{ wait_ms: string | number }>(engine.sql.nextDue, [names]);
    return rows[0] !== undefined && Number(rows[0].wait_ms) <= 0;
  }

  /** How many transitions of instances the tasks of this runner have committed. */
  get transitions(): number {
    return this.#transitions;
  }

  /** The claim to write when this worker starts an instance. Undefined if the runner is full or stopped. */
  get claim(): Claim | undefined {
    const { worker, leaseMs } = this.#parts;
    const hasRoom = this.#room > 0 || (!this.#mayHaveDue && this.#claimedAhead.room > 0);
    return this.#loop.running && hasRoom ? { worker, leaseMs } : undefined;
  }

  /** How many more instances may be claimed to start now: `#free` minus the instances that are already claimed. */
  get #room(): number {
    return this.#free - this.#opening.size - this.#claimedAhead.size;
  }

  /** How many instances could start now. Instances that only wait for a write hold no permit, so their number is limited too. */
  get #free(): number {
    const { concurrency } = this.#parts;
    return Math.min(this.#semaphore.free, concurrency + maxClaimedAhead(concurrency) - this.#tasks.size);
  }

  /** Takes over an instance that this worker has started and claimed. */
  adopt(instance: LoadedInstance, mayHaveInput: boolean): void {
    if (this.#loop.running) this.#admit({ instance, mayHaveInput, startedHere: true });
    else this.#isHinted = true;
  }

  /** Signals that an instance may be due, or any instance if no id is given. */
  hint(sagaId?: string): void {
    const task = sagaId === undefined ? undefined : this.#tasks.get(sagaId);
    if (task !== undefined) return task.poke();
    if (sagaId !== undefined && this.#claimedAhead.poke(sagaId)) return;
    this.#isHinted = true;
    this.#mayHaveDue = true;
    this.#loop.wake();
  }

  async #poll(): Promise<number> {
    const { engine, database, pollMs } = this.#parts;
    this.#isIdle = false;
    const room = this.#room;
    if (room <= 0) return this.#pollWithoutRoom();
    const names = toArrayLiteral(engine.listMovableSagas());
    const taken = await this.#claimDue(names, room);
    if (taken === room) return 0;
    const nowMs = systemClock.monotonicMs();
    if (this.#isHinted || nowMs >= this.#pendingInputAtMs) {
      this.#isHinted = false;
      this.#pendingInputAtMs = nowMs + pollMs;
      await this.#claim(engine.sql.claimWithInput, names, room - taken, true);
    }
    if (taken > 0) return pollMs; // a task that ends wakes the loop
    const { rows } = await database.run<{ wait_ms: string | number }>(engine.sql.nextDue, [names]);
    const waitMs = rows[0] === undefined ? pollMs : Number(rows[0].wait_ms);
    this.#isIdle = true;
    return Math.max(1, Math.min(pollMs, waitMs));
  }

  // There is no room, so give back claims that wait too long. Once per poll interval, stop new instances from being claimed
  // ahead, so that instances that became due in the database get their turn.
  async #pollWithoutRoom(): Promise<number> {
    await this.#giveBack(this.#claimedAhead.removeExpired());
    this.#semaphore.expireWaiters();
    if (this.#claimedAhead.size + this.#semaphore.queued === 0) return Infinity; // a task that ends wakes the loop
    if (systemClock.monotonicMs() - this.#claimedAtMs >= this.#parts.pollMs) this.#mayHaveDue = true;
    return MAX_CLAIM_AHEAD_MS;
  }

  /** Claims as many instances as can start now, then some ahead. Resolves with the number that can start now. */
  async #claimDue(names: string, room: number): Promise<number> {
    const { sql } = this.#parts.engine;
    this.#mayHaveDue = false; // a hint that arrives meanwhile sets it again
    this.#claimedAtMs = systemClock.monotonicMs();
    const taken = await this.#claim(sql.claim, names, room, false);
    if (taken < room) return taken;
    const ahead = this.#claimedAhead.room;
    if (ahead <= 0 || (await this.#claim(sql.claimAhead, names, ahead, false)) === ahead)
      this.#mayHaveDue = true;
    return taken;
  }

  async #claim(statement: Statement, names: string, room: number, mayHaveInput: boolean): Promise<number> {
    const { database, worker, leaseMs } = this.#parts;
    const { rows } = await database.run<InstanceRow>(statement, [worker, leaseMs, names, room]);
    // Not awaited: the key store may be slow or down, and most sagas need no keys.
    for (const row of rows) {
      // Pending input, such as an operator's decision, is applied before due work.
      const opening = this.#open(row, mayHaveInput || row.has_input === true).then((taken) => {
        this.#opening.delete(row.id);
        if (!taken) this.#loop.wake(); // there is room for another
      });
      this.#opening.set(row.id, opening);
    }
    return rows.length;
  }

  // An instance that cannot be decrypted is retried when its claim expires. No work began, so no attempt is counted.
  async #open(row: InstanceRow, mayHaveInput: boolean): Promise<boolean> {
    const { engine, database, worker, leaseMs } = this.#parts;
    const { id, type } = row;
    try {
      const instance = await engine.open(row);
      if (instance === undefined) await this.#park(row);
      else if (this.#loop.running) {
        this.#admit({ instance, mayHaveInput, startedHere: false });
        return true;
      } else await database.run(engine.sql.release, [id, worker]);
    } catch (error) {
      const text = storableErrorText(error).slice(0, 500);
      const context = { sagaId: id, traceparent: row.traceparent };
      const failure = { type, id, key: ENCRYPTED_TEXT, step: null, error: text, retryInMs: leaseMs };
      engine.parts.observer.emit("saga.failed", failure, context);
      await database.run(engine.sql.discountClaim, [id, worker]).catch(() => undefined);
    }
    return false;
  }

  async #park({ id, type, status: from, traceparent }: InstanceRow): Promise<void> {
    const { engine, database, worker } = this.#parts;
    const { sql, parts } = engine;
    await database.run(sql.dropInput, [id]);
    const { rows } = await database.run<{ current_step: string | null }>(sql.park, [
      id,
      worker,
      SUBJECT_ERASED,
      from,
    ]);
    if (rows[0] === undefined) return void (await database.run(sql.release, [id, worker])); // already parked or ended
    const event = {
      type,
      id,
      key: ENCRYPTED_TEXT,
      from,
      to: "failed",
      step: rows[0].current_step,
      cause: SUBJECT_ERASED,
      error: SUBJECT_ERASED,
    } as const;
    parts.observer.emit("saga.changed", event, { sagaId: id, traceparent });
  }

  #admit(claimed: ClaimedInstance): void {
    const isFree = this.#free > 0 && this.#claimedAhead.size === 0;
    if (isFree || this.#tasks.has(claimed.instance.id)) return this.#startTask(claimed);
    this.#claimedAhead.add(claimed);
    if (this.#claimedAhead.size === 1) this.#loop.wake(); // the loop removes instances that wait too long
  }

  // A task that ends during this loop releases its permit, which calls this method again. Ignore the nested call.
  #startNext(): void {
    if (this.#isStarting) return;
    this.#isStarting = true;
    while (this.#free > 0 && this.#claimedAhead.size > 0 && this.#loop.running) {
      const claimed = this.#claimedAhead.next();
      if (claimed !== undefined) this.#startTask(claimed);
    }
    this.#isStarting = false;
    if (this.#mayHaveDue && this.#claimedAhead.size === 0) this.#loop.wake();
  }

  async #giveBack(ids: readonly string[]): Promise<void> {
    const { engine, database, worker } = this.#parts;
    if (ids.length > 0) await database.run(engine.sql.giveBack, [toArrayLiteral(ids), worker]);
  }

  #startTask({ instance, mayHaveInput, startedHere }: ClaimedInstance): void {
    const { engine, database, begin, worker } = this.#parts;
    const known = this.#tasks.get(instance.id);
    if (known !== undefined) {
      this.#claimedTwice.add(instance.id);
      return known.poke();
    }
    const definition = engine.parts.registry.get(instance.type, instance.definitionVersion);
    if (definition === undefined) return;
    const task = new InstanceTask({
      engine,
      database,
      begin,
      writer: this.#writer,
      semaphore: this.#semaphore,
      worker,
      definition,
      instance,
      mayHaveInput,
    });
    this.#tasks.set(instance.id, task);
    void task.run().finally(() => {
      this.#transitions += task.transitions;
      const finished = this.#finishTask(instance.id, task, startedHere).finally(() =>
        this.#finishing.delete(finished),
      );
      this.#finishing.add(finished);
    });
  }

  // The instance may have been claimed again while its task was ending. No task runs under that claim, so release it.
  async #finishTask(id: string, task: InstanceTask, startedHere: boolean): Promise<void> {
    const { engine, database, worker } = this.#parts;
    while (this.#claimedTwice.delete(id)) {
      await database.run(engine.sql.release, [id, worker]).catch(() => undefined); // the claim expires
    }
    this.#tasks.delete(id);
    this.#claimedAhead.countRelease();
    this.#startNext();
    // Polls skip the pending input of a claimed instance, so poll once more. An ended instance needs no further poll.
    if (task.poked || (startedHere && !task.ended)) this.#isHinted = true;
    if (this.#claimedAhead.size === 0 && (this.#isHinted || !this.#isIdle || !task.ended)) this.#loop.wake();
  }

  async #renew(): Promise<number> {
    const { engine, database, worker, leaseMs } = this.#parts;
    const ids = [...this.#tasks.keys(), ...this.#opening.keys(), ...this.#claimedAhead.ids];
    if (ids.length > 0) {
      const { rows } = await database.run<{ id: string }>(engine.sql.renew, [
        worker,
        leaseMs,
        toArrayLiteral(ids),
      ]);
      const ours = new Set(rows.map(({ id }) => id));
      for (const id of ids) {
        if (ours.has(id)) continue;
        this.#tasks.get(id)?.lose();
        this.#claimedAhead.remove(id);
      }
    }
    return leaseMs / 3;
  }
}

/** Stops all tasks, each within the deadline. Resolves with SHUTDOWN_TIMEOUT if some had to be cut off. */
async function stopTasks(
  tasks: Iterable<InstanceTask>,
  deadlineMs: number,
): Promise<SagaboxError | undefined> {
  let cutOffCount = 0;
  const stop = (task: InstanceTask): Promise<void> =>
    withDeadline(task.stop(), deadlineMs, () => {
      cutOffCount += 1;
      task.lose();
    });
  await Promise.all(Array.from(tasks, stop));
  if (cutOffCount === 0) return undefined;
  return new SagaboxError("SHUTDOWN_TIMEOUT", `Local steps of ${cutOffCount} saga(s) did not end in time.`);
}

const ORPHAN_POLL_MS = 30_000;

interface OrphanRow {
  readonly type: string;
  readonly definition_version: number;
  readonly count: number;
}

/** Creates a loop that looks for instances whose version this worker has not registered and emits `saga.unknown_version`. */
function createOrphanLoop(engine: SagaEngine, database: Database, onError: (error: unknown) => void): Loop {
  const step = async (): Promise<number> => {
    const { rows } = await database.run<OrphanRow>(engine.sql.orphans, [
      toArrayLiteral(engine.listMovableSagas()),
    ]);
    for (const { type, definition_version: version, count } of rows) {
      engine.parts.observer.emit("saga.unknown_version", { type, version, count });
    }
    return ORPHAN_POLL_MS;
  };
  return new Loop({ step, onError });
}
