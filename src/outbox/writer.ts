import { NotInTransactionError } from "../errors/index.ts";
import { isGeneratedId, type Message } from "../message/index.ts";
import { type Param, type Queryable, quoteSchema, type Statement, toArrayLiteral } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import {
  isUsual,
  listParams,
  messageColumns,
  type Outgoing,
  singleParams,
  usualColumns,
} from "./outgoing.ts";
import { guardedStatements, writeStatements } from "./statements.ts";

export interface WrittenRow {
  readonly id: string;
  readonly lane: number;
  readonly seq: string;
  readonly leased: boolean;
  readonly written_at: string;
}

/** A message that this process may send, because its row is leased to it. */
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
  /** Null if no id was new. */
  readonly id: string | null;
}

/** Limits of one statement: its parameters exist several times in memory, here and at the server. */
const MAX_MESSAGES = 1_000;
const MAX_CHARACTERS = 4_000_000;

/** Gathers messages until one statement should write them. */
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

  /** Returns its messages and empties itself. */
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

  /** Writes messages immediately and returns the ids that were new. */
  async write(tx: Queryable, messages: readonly Outgoing[]): Promise<ReadonlySet<string>> {
    const outgoing = dropDuplicates(messages);
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

  /** Throws NotInTransactionError if the caller's transaction has ended. For other rooms that write in it. */
  async assertInside(tx: Queryable): Promise<void> {
    if (tx.borrowed === true) await assertInside(tx, this.#guarded);
  }

  /**
   * Writes messages immediately, in one statement, leased to this process if possible. The caller reports
   * later that it has committed.
   */
  async writeLeased(tx: Queryable, outgoing: readonly Outgoing[], leaseMs: number): Promise<LeasedMessage[]> {
    const rows = await this.#run<WrittenRow>(tx, prepareLeasedWrite(this.#sqlFor(tx), outgoing, leaseMs));
    const leased = leasedMessages(outgoing, rows);
    this.#observer.emit("outbox.written", { count: outgoing.length, optimistic: leased.length });
    return leased;
  }

  /** Prepares the last statement of a transaction we own, which is sent together with its COMMIT. */
  prepare(outgoing: readonly Outgoing[]): PreparedWrite {
    return prepareWrite(this.#sql, outgoing);
  }

  prepareLeased(outgoing: readonly Outgoing[], leaseMs: number): PreparedWrite {
    return prepareLeasedWrite(this.#sql, outgoing, leaseMs);
  }

  /**
   * Returns the statements that write a message in a transaction of the caller, who runs them in order. With an id of the
   * caller's own, the last one returns the id if it was new.
   */
  listStatements(one: Outgoing): PreparedWrite[] {
    const { lockStreams, publishOnce, publishNamed, schedule, scheduleOnce, scheduleNamed } = this.#sql;
    const lock = { statement: lockStreams, params: [toArrayLiteral([one.stream])] };
    const locks = one.strict && one.stream !== null ? [lock] : [];
    const isLookedUp = mayBeGenerated(one);
    if (one.schedule !== null) {
      const once = isLookedUp ? scheduleOnce : scheduleNamed;
      return [...locks, { statement: one.ownId ? once : schedule, params: scheduleParams([one]) }];
    }
    if (!one.ownId) return [...locks, prepareWrite(this.#sql, [one])];
    return [...locks, { statement: isLookedUp ? publishOnce : publishNamed, params: listParams([one]) }];
  }

  async #writeOnce(tx: Queryable, outgoing: readonly Outgoing[], written: Set<string>): Promise<void> {
    const { publishOnce, publishNamed } = this.#sqlFor(tx);
    const statement = outgoing.some(mayBeGenerated) ? publishOnce : publishNamed;
    const rows = await this.#run<NewId>(tx, { statement, params: listParams(outgoing) });
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
    await this.#run(tx, { statement: schedule, params: scheduleParams(fresh) });
  }

  #sqlFor(tx: Queryable): WriteSql {
    return tx.borrowed === true ? this.#guarded : this.#sql;
  }

  async #run<R>(tx: Queryable, write: PreparedWrite): Promise<R[]> {
    if (tx.borrowed === true) return runBorrowed<R>(tx, write, this.#guarded.takeNumber);
    return (await tx.run<R>(write.statement, write.params)).rows;
  }

  #keepOnly(rows: readonly NewId[], outgoing: readonly Outgoing[], written: Set<string>): void {
    const fresh = new Set(rows.map((row) => row.id));
    for (const { message } of outgoing) {
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

function scheduleParams(outgoing: readonly Outgoing[]): Param[] {
  return [
    ...listParams(outgoing),
    toArrayLiteral(outgoing.map((one) => one.schedule?.delayMs ?? null)),
    toArrayLiteral(outgoing.map((one) => one.schedule?.atMs ?? null)),
  ];
}

/** Returns true for an id of the caller that may equal one generated for an earlier message. */
function mayBeGenerated({ ownId, message }: Outgoing): boolean {
  return ownId && isGeneratedId(message.id);
}

function prepareWrite(sql: WriteSql, outgoing: readonly Outgoing[]): PreparedWrite {
  const [one] = outgoing;
  if (one !== undefined && outgoing.length === 1) {
    if (isUsual(one)) return { statement: sql.publishUsual, params: singleParams(usualColumns, one) };
    return { statement: sql.publishOne, params: singleParams(messageColumns, one) };
  }
  return { statement: sql.publish, params: listParams(outgoing) };
}

function prepareLeasedWrite(sql: WriteSql, outgoing: readonly Outgoing[], leaseMs: number): PreparedWrite {
  const [one] = outgoing;
  if (one !== undefined && outgoing.length === 1) {
    if (isUsual(one))
      return { statement: sql.publishLeasedUsual, params: [...singleParams(usualColumns, one), leaseMs] };
    return { statement: sql.publishLeasedOne, params: [...singleParams(messageColumns, one), leaseMs] };
  }
  return { statement: sql.publishLeased, params: [...listParams(outgoing), leaseMs] };
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

/** Keeps the first of several messages with one id. */
function dropDuplicates(outgoing: readonly Outgoing[]): Outgoing[] {
  const seen = new Set<string>();
  return outgoing.filter(({ message: { id } }) => !seen.has(id) && seen.add(id));
}

/**
 * Returns true if the leasing statement can write the message: no id to look up, no lock to take, due
 * immediately.
 */
export function canLease(outgoing: Outgoing): boolean {
  return !outgoing.ownId && !outgoing.strict && outgoing.schedule === null;
}

/** Joins written messages with the rows that the database returned, and keeps the leased ones. */
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

/**
 * Runs a guarded write in a transaction of the caller. A statement that the caller did not await may arrive
 * after the caller's ROLLBACK, where it would be a transaction of its own and stay. Only the server knows: a
 * transaction that has written has a transaction id.
 *
 * This takes one round trip, and two more if the message is the first write of its transaction: then an id is
 * taken and the write is repeated. If it finds no id again, it was outside of a transaction. If the driver
 * knows that the transaction has ended, no retry is made: another caller may use the connection by now.
 */
async function runBorrowed<R>(
  tx: Queryable,
  { statement, params }: { readonly statement: Statement; readonly params: readonly Param[] },
  takeNumber: Statement,
): Promise<R[]> {
  const first = await tx.run<R>(statement, params);
  if (first.rowCount > 0) return first.rows;
  if (tx.isOpen?.() === false) throw transactionEnded();
  await tx.run(takeNumber); // awaited: a driver may refuse concurrent queries
  const second = await tx.run<R>(statement, params);
  if (second.rowCount > 0) return second.rows;
  throw transactionEnded();
}

/** Throws if the transaction has ended. For writes without a guard of their own. */
async function assertInside(
  tx: Queryable,
  { takeNumber, hasNumber }: { readonly takeNumber: Statement; readonly hasNumber: Statement },
): Promise<void> {
  await tx.run(takeNumber);
  const { rows } = await tx.run<{ inside: boolean }>(hasNumber);
  if (rows[0]?.inside !== true) throw transactionEnded();
}

function transactionEnded(): NotInTransactionError {
  return new NotInTransactionError(
    "The transaction ended before this statement reached it, so nothing was written. " +
      "Await every publish and start before COMMIT or ROLLBACK, and before the function of sql.begin returns or throws.",
  );
}
