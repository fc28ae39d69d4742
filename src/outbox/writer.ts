import { isGeneratedId, type Message } from "../message/index.ts";
import { quoteSchema, toArrayLiteral, type Param, type Queryable, type Statement } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { isUsual, singleParams, outgoingParams, usualParams } from "./outgoing-params.ts";
import type { Outgoing } from "./outgoing.ts";
import { assertInside, runBorrowed } from "./run-borrowed.ts";
import { guardedStatements, writeStatements } from "./write-statements.ts";

export interface WrittenRow {
  readonly id: string;
  readonly lane: number;
  readonly seq: string;
  readonly leased: boolean;
  readonly written_at: string;
}

/** A message that this process may send itself, because its row is leased to us. */
export interface LeasedMessage {
  readonly lane: number;
  readonly seq: number;
  readonly stream: string | null;
  readonly message: Message;
}

export interface PreparedWrite {
  readonly statement: Statement;
  readonly params: readonly Param[];
}

type WriteSql = Omit<ReturnType<typeof guardedStatements>, "takeNumber" | "hasNumber">;

interface NewId {
  /** Null where none was new. */
  readonly id: string | null;
}

/** What one statement writes at most: its parameters are in memory several times, here and at the server. */
const MAX_MESSAGES = 1_000;
const MAX_CHARACTERS = 4_000_000;

/** Adds up messages until one statement should write them. */
export class WriteBatch {
  readonly #outgoing: Outgoing[] = [];
  #characters = 0;

  get isFull(): boolean {
    return this.#outgoing.length >= MAX_MESSAGES || this.#characters >= MAX_CHARACTERS;
  }

  add(outgoing: Outgoing): void {
    this.#outgoing.push(outgoing);
    this.#characters += outgoing.message.data.length;
  }

  /** Returns its messages and begins anew. */
  take(): Outgoing[] {
    this.#characters = 0;
    return this.#outgoing.splice(0);
  }
}

/** Writes messages in the caller's transaction, in batches of bounded size. */
export class OutboxWriter {
  readonly #sql: ReturnType<typeof writeStatements>;
  readonly #guarded: ReturnType<typeof guardedStatements>;
  readonly #observer: Observer;

  constructor(schema: string, observer: Observer) {
    this.#sql = writeStatements(quoteSchema(schema));
    this.#guarded = guardedStatements(quoteSchema(schema));
    this.#observer = observer;
  }

  /** Writes now and tells which ids were new. */
  async write(tx: Queryable, asked: readonly Outgoing[]): Promise<ReadonlySet<string>> {
    const outgoing = dropDuplicates(asked);
    await this.#lock(tx, outgoing);
    const written = new Set(outgoing.map((one) => one.message.id));
    const later = outgoing.filter((one) => one.schedule !== null);
    const now = outgoing.filter((one) => one.schedule === null);
    for (const batch of splitIntoBatches(later)) await this.#schedule(tx, batch, written);
    const hasOwnIds = now.some((one) => one.ownId);
    for (const batch of splitIntoBatches(now)) {
      if (hasOwnIds) await this.#writeOnce(tx, batch, written);
      else await this.#run(tx, prepareWrite(this.#sqlFor(tx), batch));
    }
    this.#observer.emit("outbox.written", { count: written.size, optimistic: 0 });
    return written;
  }

  /** For others who write into a transaction of the caller's. */
  async assertInside(tx: Queryable): Promise<void> {
    if (tx.borrowed === true) await assertInside(tx, this.#guarded);
  }

  /** Writes now, leased to this process where that may be; the caller says later that it has committed. One statement. */
  async writeLeased(tx: Queryable, outgoing: readonly Outgoing[], leaseMs: number): Promise<LeasedMessage[]> {
    const rows = await this.#run<WrittenRow>(tx, prepareLeasedWrite(this.#sqlFor(tx), outgoing, leaseMs));
    const leased = leasedMessages(outgoing, rows);
    this.#observer.emit("outbox.written", { count: outgoing.length, optimistic: leased.length });
    return leased;
  }

  /** For the last statement of a transaction we own: sent together with its COMMIT. */
  prepare(outgoing: readonly Outgoing[]): PreparedWrite {
    return prepareWrite(this.#sql, outgoing);
  }

  prepareLeased(outgoing: readonly Outgoing[], leaseMs: number): PreparedWrite {
    return prepareLeasedWrite(this.#sql, outgoing, leaseMs);
  }

  async #writeOnce(tx: Queryable, outgoing: readonly Outgoing[], written: Set<string>): Promise<void> {
    const { publishOnce, publishNamed } = this.#sqlFor(tx);
    const statement = outgoing.some(mayBeGenerated) ? publishOnce : publishNamed;
    const rows = await this.#run<NewId>(tx, { statement, params: outgoingParams(outgoing) });
    this.#keepOnly(rows, outgoing, written);
  }

  async #schedule(tx: Queryable, outgoing: readonly Outgoing[], written: Set<string>): Promise<void> {
    const { reserveIds, reserveNames, schedule } = this.#sqlFor(tx);
    const own = outgoing.filter((one) => one.ownId);
    if (own.length > 0) {
      const ids = toArrayLiteral(own.map((one) => one.message.id));
      const statement = own.some(mayBeGenerated) ? reserveIds : reserveNames;
      const rows = await this.#run<NewId>(tx, { statement, params: [ids] });
      this.#keepOnly(rows, own, written);
    }
    const fresh = outgoing.filter((one) => written.has(one.message.id));
    if (fresh.length === 0) return;
    const params = [
      ...outgoingParams(fresh),
      toArrayLiteral(fresh.map((one) => one.schedule?.delayMs ?? null)),
      toArrayLiteral(fresh.map((one) => one.schedule?.atMs ?? null)),
    ];
    await this.#run(tx, { statement: schedule, params });
  }

  #sqlFor(tx: Queryable): WriteSql {
    return tx.borrowed === true ? this.#guarded : this.#sql;
  }

  async #run<R>(tx: Queryable, write: PreparedWrite): Promise<R[]> {
    if (tx.borrowed === true) return runBorrowed<R>(tx, write, this.#guarded.takeNumber);
    return (await tx.run<R>(write.statement, write.params)).rows;
  }

  #keepOnly(rows: readonly NewId[], asked: readonly Outgoing[], written: Set<string>): void {
    const fresh = new Set(rows.map((row) => row.id));
    for (const { message } of asked) {
      if (fresh.has(message.id)) continue;
      written.delete(message.id);
      const { id, type, traceparent, sagaId } = message;
      this.#observer.emit("outbox.duplicate", { id, type }, { traceparent, sagaId });
    }
  }

  async #lock(tx: Queryable, outgoing: readonly Outgoing[]): Promise<void> {
    const strict = new Set(
      outgoing.flatMap((one) => (one.strict && one.stream !== null ? [one.stream] : [])),
    );
    if (strict.size > 0) await tx.run(this.#sql.lockStreams, [toArrayLiteral([...strict])]);
  }
}

/** One of the caller's own ids that may be that of an earlier message of ours. */
function mayBeGenerated({ ownId, message }: Outgoing): boolean {
  return ownId && isGeneratedId(message.id);
}

function prepareWrite(sql: WriteSql, outgoing: readonly Outgoing[]): PreparedWrite {
  const [one] = outgoing;
  if (one !== undefined && outgoing.length === 1) {
    if (isUsual(one)) return { statement: sql.publishUsual, params: usualParams(one) };
    return { statement: sql.publishOne, params: singleParams(one) };
  }
  return { statement: sql.publish, params: outgoingParams(outgoing) };
}

function prepareLeasedWrite(sql: WriteSql, outgoing: readonly Outgoing[], leaseMs: number): PreparedWrite {
  const [one] = outgoing;
  if (one !== undefined && outgoing.length === 1) {
    if (isUsual(one)) return { statement: sql.publishLeasedUsual, params: [...usualParams(one), leaseMs] };
    return { statement: sql.publishLeasedOne, params: [...singleParams(one), leaseMs] };
  }
  return { statement: sql.publishLeased, params: [...outgoingParams(outgoing), leaseMs] };
}

function* splitIntoBatches(outgoing: readonly Outgoing[]): Generator<Outgoing[]> {
  const batch = new WriteBatch();
  for (const one of outgoing) {
    batch.add(one);
    if (batch.isFull) yield batch.take();
  }
  const rest = batch.take();
  if (rest.length > 0) yield rest;
}

/** Of several with one id the first, in its place. */
function dropDuplicates(asked: readonly Outgoing[]): Outgoing[] {
  const seen = new Set<string>();
  return asked.filter(({ message: { id } }) => !seen.has(id) && seen.add(id));
}

/** Whether a message can be written by the statement that leases: no id to look up, no lock to take, due at once. */
export function canLease(outgoing: Outgoing): boolean {
  return !outgoing.ownId && !outgoing.strict && outgoing.schedule === null;
}

/** Joins what was asked for with what the database answered. */
export function leasedMessages(outgoing: readonly Outgoing[], rows: readonly WrittenRow[]): LeasedMessage[] {
  const byId = new Map(rows.map((row) => [row.id, row]));
  return outgoing.flatMap((one) => {
    const row = byId.get(one.message.id);
    if (row?.leased !== true) return [];
    const expiresAt = one.ttlMs === null ? null : expiry(row.written_at, one.ttlMs);
    const message: Message = { ...one.message, writtenAt: row.written_at, expiresAt };
    return [{ lane: row.lane, seq: Number(row.seq), stream: one.stream, message }];
  });
}

function expiry(writtenAt: string, ttlMs: number): string {
  return new Date(Date.parse(writtenAt) + ttlMs).toISOString();
}
