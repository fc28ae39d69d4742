import { onTestFinished } from "vitest";
import { laneSettings, WakeUp, type Claim, type LaneOwnership } from "../../src/lanes/index.ts";
import { laneFor, streamFor, type Message } from "../../src/message/index.ts";
import {
  Destinations,
  OptimisticSender,
  outboxSettings,
  OutboxWriter,
  PollingRelay,
  TransactionScope,
  type OutboxOptions,
  type Outgoing,
} from "../../src/outbox/index.ts";
import { pgDatabase, type OwnedTransaction } from "../../src/storage/index.ts";
import type { LocalHop, Transport } from "../../src/transport/index.ts";
import { temporaryDatabase } from "./database.ts";
import { aMessage } from "./messages.ts";
import { RecordingObserver } from "./recording-observer.ts";
import { ScriptedDatabase } from "./scripted-database.ts";
import { ScriptedTransport } from "./scripted-transport.ts";

export interface RelayOptions extends OutboxOptions {
  readonly worker?: string;
  readonly transport?: Transport;
  readonly hop?: LocalHop;
  readonly leaseMs?: number;
  readonly database?: ScriptedDatabase;
  /** Shared by those who send from one process. Default: known to one alone. */
  readonly destinations?: Destinations;
}

type OutgoingChanges = Partial<Message> & Partial<Omit<Outgoing, "message">>;

/** A message ready to be written; say only what the test is about. */
export function outgoing(wish: OutgoingChanges = {}): Outgoing {
  const { lane, stream, maxAttempts, holdsOnDeath, strict, ttlMs, schedule, ownId, flush, ...change } = wish;
  const message = aMessage(change);
  return {
    message,
    lane: lane ?? laneFor(message.key ?? message.id),
    stream: stream ?? (message.key === null ? null : streamFor(message.topic, message.key)),
    maxAttempts: maxAttempts ?? 10,
    holdsOnDeath: holdsOnDeath ?? false,
    strict: strict ?? false,
    ttlMs: ttlMs ?? null,
    schedule: schedule ?? null,
    ownId: ownId ?? false,
    flush: flush ?? false,
  };
}

/** A migrated database, a scripted broker, and relays between them. */
export async function relays(options: { readonly poolSize?: number } = {}) {
  const { pool, url } = await temporaryDatabase({ max: options.poolSize ?? 30, migrated: true });
  const database = new ScriptedDatabase(pgDatabase(pool));
  const observer = new RecordingObserver();
  const transport = new ScriptedTransport();
  const writer = new OutboxWriter("sagabox", observer);
  const rows = async <R = Record<string, unknown>>(sql: string, params: unknown[] = []): Promise<R[]> =>
    (await pool.query(sql, params)).rows as R[];
  const waiting = async (): Promise<number> =>
    (await rows<{ n: number }>("select count(*)::int as n from sagabox.outbox"))[0]?.n ?? 0;

  return {
    pool,
    url,
    database,
    /** A connection to this database as another process would have it. */
    fresh: () => new ScriptedDatabase(pgDatabase(pool)),
    observer,
    transport,
    writer,
    rows,
    waiting,
    /** Changes rows as no part of sagabox would, past the guard that refuses it. */
    tamper: async (sql: string): Promise<void> => {
      await pool.query(`begin; set local session_replication_role = replica; ${sql}; commit`);
    },
    /** Resolves when nothing is left to send. */
    drained: () => until(async () => (await waiting()) === 0),
    /** One committed transaction with these messages. */
    publish: async (...messages: readonly Outgoing[]): Promise<void> => {
      const tx = await database.begin();
      await writer.write(tx, messages);
      await tx.commit();
    },
    relay: (wishes: RelayOptions = {}): PollingRelay => {
      const { worker = "w", hop, leaseMs = 5_000, database: own, transport: chosen, ...rest } = wishes;
      const { destinations, ...outbox } = rest;
      const settings = outboxSettings({ pollInterval: 50, ...outbox });
      const relay = new PollingRelay({
        database: own ?? database,
        schema: "sagabox",
        worker,
        transport: chosen ?? transport,
        hop,
        settings,
        destinations: destinations ?? new Destinations({ breaker: settings.breaker, observer }),
        lanes: laneSettings({ lease: leaseMs }),
        observer,
      });
      onTestFinished(async () => {
        (own ?? database).letGo();
        await relay.stop();
      });
      return relay;
    },
    /** What bus.transaction() is made of. */
    optimistic: (
      wishes: RelayOptions & { readonly onReleased?: (lanes: readonly number[]) => void } = {},
    ) => {
      const { worker = "sender", hop, transport: chosen, onReleased } = wishes;
      const { optimistic, optimisticTimeout, destinations } = wishes;
      const settings = outboxSettings({
        ...(optimistic === undefined ? {} : { optimistic }),
        ...(optimisticTimeout === undefined ? {} : { optimisticTimeout }),
      });
      const sender = new OptimisticSender({
        database: wishes.database ?? database,
        schema: "sagabox",
        worker,
        transport: chosen ?? transport,
        hop,
        settings,
        destinations: destinations ?? new Destinations({ breaker: settings.breaker, observer }),
        observer,
        onReleased: onReleased ?? (() => undefined),
      });
      const wakeUp = new WakeUp({ database, channel: "sagabox_test", local: () => true, owns: () => true });
      onTestFinished(async () => {
        await wakeUp.close();
        database.letGo();
        await sender.close();
      });
      const scope = (tx: OwnedTransaction): TransactionScope =>
        new TransactionScope(tx, {
          compose: () => Promise.reject(new Error("give a composed message")),
          admit: (all) => Promise.resolve(all),
          writer,
          sender,
          wakeUp,
          observer,
          onScheduled: () => undefined,
        });
      const send = async (...messages: readonly Outgoing[]): Promise<void> => {
        const tx = await database.begin();
        const own = scope(tx);
        for (const message of messages) await own.add(message);
        own.handleCommit(await tx.commit(own.lastStatements()));
      };
      return { sender, wakeUp, scope, send };
    },
  };
}

/** The claim of a member on one of its lanes. */
export function claimOn(ownership: LaneOwnership, lane: number): Claim {
  const claim = ownership.claimToSettle(lane);
  if (claim === undefined) throw new Error(`lane ${lane} is not owned`);
  return claim;
}

export type Relays = Awaited<ReturnType<typeof relays>>;

/** For facts that only the database has. */
export async function until(holds: () => Promise<boolean> | boolean, withinMs = 15_000): Promise<void> {
  const giveUpAt = performance.now() + withinMs;
  while (!(await holds())) {
    if (performance.now() > giveUpAt)
      throw new Error(`It did not become true within ${withinMs} ms: ${String(holds)}`);
    await new Promise((resolve) => setTimeout(resolve, 10));
  }
}

export interface OutboxRow {
  readonly message?: Partial<Message>;
  readonly delayMs?: number;
  readonly ownId?: boolean;
}

/** A message ready to be written; say only what the test is about. */
export function anOutgoing({ message = {}, delayMs, ownId = false }: OutboxRow = {}): Outgoing {
  const whole = aMessage(message);
  return {
    message: whole,
    lane: laneFor(whole.key ?? whole.id),
    stream: whole.key === null ? null : streamFor(whole.topic, whole.key),
    maxAttempts: 10,
    holdsOnDeath: false,
    strict: false,
    ttlMs: null,
    schedule: delayMs === undefined ? null : { delayMs, atMs: null },
    ownId,
    flush: false,
  };
}

/** A migrated schema `sagabox` in a database of the test's own, and the means to fill and read it. */
export async function outboxDatabase() {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const database = pgDatabase(pool);
  const observer = new RecordingObserver();
  const writer = new OutboxWriter("sagabox", observer);
  const rows = async <R = Record<string, unknown>>(sql: string, params: unknown[] = []): Promise<R[]> =>
    (await pool.query(sql, params)).rows as R[];
  const write = async (...wanted: readonly OutboxRow[]): Promise<readonly string[]> => [
    ...(await writer.write(database, wanted.map(anOutgoing))),
  ];
  return { pool, url, database, observer, writer, rows, write };
}
