import { personErased } from "../message/index.ts";
import { Loop, systemClock, withDeadline, type Service } from "../runtime/index.ts";
import { textArray, type Database, type Statement } from "../storage/index.ts";
import type { SagaEngine } from "./engine.ts";
import type { OpenTransaction } from "./instance-handle.ts";
import { InstanceTask } from "./instance-task.ts";
import { messageOf } from "./begin.ts";
import { orphanWatch } from "./orphan-watch.ts";
import { Places } from "./places.ts";
import type { Claim, InstanceRow, Loaded } from "./saga-store.ts";
import { stopTasks } from "./stop-tasks.ts";
import { TransitionWriter } from "./transition-writer.ts";
import { LONGEST_WAIT_MS, mostBeside, WaitingRoom, type Called } from "./waiting-room.ts";

export interface SagaRunnerParts {
  readonly engine: SagaEngine;
  readonly database: Database;
  readonly begin: OpenTransaction;
  readonly worker: string;
  readonly leaseMs: number;
  /** How many instances are worked at once. */
  readonly concurrency: number;
  /** The longest time between two looks. */
  readonly pollMs: number;
  /** How long a stop waits for local steps. */
  readonly stopDeadlineMs: number;
}

/** Does what is due without anybody sending a message: local steps, retries, timeouts, mail. */
export class SagaRunner implements Service {
  readonly #parts: SagaRunnerParts;
  readonly #tasks = new Map<string, InstanceTask>();
  readonly #opening = new Map<string, Promise<void>>();
  readonly #claimedTwice = new Set<string>();
  readonly #lettingGo = new Set<Promise<void>>();
  readonly #writer: TransitionWriter;
  readonly #waiting: WaitingRoom;
  readonly #places: Places;
  readonly #loop: Loop;
  readonly #renewal: Loop;
  readonly #orphans: Loop;
  #hinted = false;
  /** Nothing was due when we looked, and we know when something will be. */
  #sated = false;
  #mailAtMs = 0;
  /** There may be something due that came before whoever is started now. */
  #behind = true;
  #lookedAtMs = 0;
  #calling = false;

  constructor(parts: SagaRunnerParts) {
    this.#parts = parts;
    const { sql } = parts.engine;
    const { observer } = parts.engine.parts;
    this.#writer = new TransitionWriter(parts.database, sql.save);
    this.#waiting = new WaitingRoom(parts.concurrency);
    this.#places = new Places({
      count: parts.concurrency,
      onFree: () => this.#callNext(),
      onQueue: () => this.#loop.wake(),
    });
    const onError =
      (doing: string) =>
      (error: unknown): void =>
        observer.tell("storage.failed", { doing, error: messageOf(error).slice(0, 500), retryInMs: 100 });
    this.#loop = new Loop({
      step: () => this.#look(),
      onError: onError("claiming sagas"),
      maxBackoffMs: 2_000,
    });
    this.#renewal = new Loop({ step: () => this.#renew(), onError: onError("renewing claims of sagas") });
    this.#orphans = orphanWatch(parts.engine, parts.database, onError("looking for sagas"));
  }

  async start(): Promise<void> {
    if (this.#parts.engine.parts.registry.all().length === 0) return;
    await Promise.all([this.#loop.start(), this.#renewal.start(), this.#orphans.start()]);
  }

  /** Takes nothing new; what is under way is told to end, and its claims are given back. */
  async stop(): Promise<void> {
    await this.#loop.stop();
    await this.#giveBack(this.#waiting.dismissAll()).catch(() => undefined); // they run out by themselves
    await withDeadline(Promise.all(this.#opening.values()), this.#parts.stopDeadlineMs, () => []);
    const cutOff = await stopTasks(this.#tasks.values(), this.#parts.stopDeadlineMs);
    await Promise.all(this.#lettingGo);
    await Promise.all([this.#renewal.stop(), this.#orphans.stop()]);
    if (cutOff !== undefined) throw cutOff;
  }

  /** With which a new instance is taken by this process, if it has room. */
  get claim(): Claim | undefined {
    const { worker, leaseMs } = this.#parts;
    const isRoom = this.#room > 0 || (!this.#behind && this.#waiting.room > 0);
    return this.#loop.running && isRoom ? { worker, leaseMs } : undefined;
  }

  get #room(): number {
    return this.#free - this.#opening.size - this.#waiting.size;
  }

  /** How many instances could be gone on with at once. Those that are only being written are many, but not any number. */
  get #free(): number {
    const { concurrency } = this.#parts;
    return Math.min(this.#places.free, concurrency + mostBeside(concurrency) - this.#tasks.size);
  }

  /** An instance that was started and claimed here, with what came before it did. */
  take(instance: Loaded, mail: boolean): void {
    if (this.#loop.running) this.#seat({ instance, mail, startedHere: true });
    else this.#hinted = true;
  }

  /** Something may be due: for an instance under way here, or for any. */
  hint(sagaId?: string): void {
    const task = sagaId === undefined ? undefined : this.#tasks.get(sagaId);
    if (task !== undefined) return task.poke();
    if (sagaId !== undefined && this.#waiting.poke(sagaId)) return;
    this.#hinted = true;
    this.#behind = true;
    this.#loop.wake();
  }

  async #look(): Promise<number> {
    const { engine, database, pollMs } = this.#parts;
    this.#sated = false;
    const room = this.#room;
    if (room <= 0) return this.#lookAfterWaiting();
    const names = textArray(engine.movable());
    const taken = await this.#claimDue(names, room);
    if (taken === room) return 0;
    const nowMs = systemClock.monotonicMs();
    if (this.#hinted || nowMs >= this.#mailAtMs) {
      this.#hinted = false;
      this.#mailAtMs = nowMs + pollMs;
      await this.#claim(engine.sql.claimMail, names, room - taken, true);
    }
    if (taken > 0) return pollMs; // whoever ends wakes us
    const { rows } = await database.run<{ wait_ms: string | number }>(engine.sql.nextDue, [names]);
    const waitMs = rows[0] === undefined ? pollMs : Number(rows[0].wait_ms);
    this.#sated = true;
    return Math.max(1, Math.min(pollMs, waitMs));
  }

  // What became due elsewhere has its turn when those who wait are through, so from time to time nobody new may wait.
  async #lookAfterWaiting(): Promise<number> {
    await this.#giveBack(this.#waiting.dismissLate());
    this.#places.dismissLate();
    if (this.#waiting.size + this.#places.queued === 0) return Infinity; // whoever ends wakes us
    if (systemClock.monotonicMs() - this.#lookedAtMs >= this.#parts.pollMs) this.#behind = true;
    return LONGEST_WAIT_MS;
  }

  /** As many as there is room for now, and then those who may wait. Answers how many of the former there were. */
  async #claimDue(names: string, room: number): Promise<number> {
    const { sql } = this.#parts.engine;
    this.#behind = false; // whoever is told meanwhile that there is something says so
    this.#lookedAtMs = systemClock.monotonicMs();
    const taken = await this.#claim(sql.claim, names, room, false);
    if (taken < room) return taken;
    const ahead = this.#waiting.room;
    if (ahead <= 0 || (await this.#claim(sql.claimAhead, names, ahead, false)) === ahead) this.#behind = true;
    return taken;
  }

  async #claim(statement: Statement, names: string, room: number, mail: boolean): Promise<number> {
    const { database, worker, leaseMs } = this.#parts;
    const { rows } = await database.run<InstanceRow>(statement, [worker, leaseMs, names, room]);
    // Not waited for: whoever keeps the keys may be slow or away, and most sagas need none.
    for (const row of rows) {
      // What a person has decided comes before what it would have done by itself.
      const opening = this.#open(row, mail || row.has_mail === true).then((taken) => {
        this.#opening.delete(row.id);
        if (!taken) this.#loop.wake(); // its place is free
      });
      this.#opening.set(row.id, opening);
    }
    return rows.length;
  }

  // One that cannot be opened is looked at again when its claim has run out. Nothing was begun, so nothing is charged.
  async #open(row: InstanceRow, mail: boolean): Promise<boolean> {
    const { engine, database, worker, leaseMs } = this.#parts;
    const { id, type } = row;
    try {
      const instance = await engine.open(row);
      if (instance === undefined) await this.#park(row);
      else if (this.#loop.running) {
        this.#seat({ instance, mail, startedHere: false });
        return true;
      } else await database.run(engine.sql.release, [id, worker]);
    } catch (error) {
      const text = messageOf(error).slice(0, 500);
      const context = { sagaId: id, traceparent: row.traceparent };
      engine.parts.observer.tell("saga.failed", { type, id, error: text, retryInMs: leaseMs }, context);
      await database.run(engine.sql.uncharge, [id, worker]).catch(() => undefined);
    }
    return false;
  }

  async #park({ id, type, status: from, traceparent }: InstanceRow): Promise<void> {
    const { engine, database, worker } = this.#parts;
    const { sql, parts } = engine;
    await database.run(sql.dropMail, [id]);
    const { rows } = await database.run<{ current_step: string | null }>(sql.park, [
      id,
      worker,
      personErased,
      from,
    ]);
    if (rows[0] === undefined) return void (await database.run(sql.release, [id, worker])); // it was before, or has ended
    const told = { type, id, from, to: "failed", step: rows[0].current_step, error: personErased } as const;
    parts.observer.tell("saga.changed", told, { sagaId: id, traceparent });
  }

  #seat(called: Called): void {
    const isFree = this.#free > 0 && this.#waiting.size === 0;
    if (isFree || this.#tasks.has(called.instance.id)) return this.#take(called);
    this.#waiting.add(called);
    if (this.#waiting.size === 1) this.#loop.wake(); // somebody has to see to it that it does not wait for ever
  }

  // Whoever is called may leave its place before this is through.
  #callNext(): void {
    if (this.#calling) return;
    this.#calling = true;
    while (this.#free > 0 && this.#waiting.size > 0 && this.#loop.running) {
      const called = this.#waiting.next();
      if (called !== undefined) this.#take(called);
    }
    this.#calling = false;
    if (this.#behind && this.#waiting.size === 0) this.#loop.wake();
  }

  async #giveBack(ids: readonly string[]): Promise<void> {
    const { engine, database, worker } = this.#parts;
    if (ids.length > 0) await database.run(engine.sql.giveBack, [textArray(ids), worker]);
  }

  #take({ instance, mail, startedHere }: Called): void {
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
      places: this.#places,
      worker,
      definition,
      instance,
      mail,
    });
    this.#tasks.set(instance.id, task);
    void task.run().finally(() => {
      const letGo = this.#letGo(instance.id, task, startedHere).finally(() => this.#lettingGo.delete(letGo));
      this.#lettingGo.add(letGo);
    });
  }

  // Claimed again in the moment in which it was given back, or after a late renewal: nobody would work on that claim.
  async #letGo(id: string, task: InstanceTask, startedHere: boolean): Promise<void> {
    const { engine, database, worker } = this.#parts;
    while (this.#claimedTwice.delete(id)) {
      await database.run(engine.sql.release, [id, worker]).catch(() => undefined); // it runs out by itself
    }
    this.#tasks.delete(id);
    this.#waiting.placeLeft();
    this.#callNext();
    // While it was ours nobody looked for its mail. One that has ended leaves nothing to look for but what waits for room.
    if (task.poked || (startedHere && !task.ended)) this.#hinted = true;
    if (this.#waiting.size === 0 && (this.#hinted || !this.#sated || !task.ended)) this.#loop.wake();
  }

  async #renew(): Promise<number> {
    const { engine, database, worker, leaseMs } = this.#parts;
    const ids = [...this.#tasks.keys(), ...this.#opening.keys(), ...this.#waiting.ids];
    if (ids.length > 0) {
      const { rows } = await database.run<{ id: string }>(engine.sql.renew, [
        worker,
        leaseMs,
        textArray(ids),
      ]);
      const ours = new Set(rows.map(({ id }) => id));
      for (const id of ids) {
        if (ours.has(id)) continue;
        this.#tasks.get(id)?.lose();
        this.#waiting.lose(id);
      }
    }
    return leaseMs / 3;
  }
}
