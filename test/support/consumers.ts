import { Readable } from "node:stream";
import { onTestFinished } from "vitest";
import { z } from "zod";
import { deadLetterStore, listDeadLetters } from "../../src/dead-letter/index.ts";
import {
  Consumer,
  CrashLedger,
  HandlerRegistry,
  inboxEngine,
  type BusTransaction,
  type OpenScope,
} from "../../src/inbox/index.ts";
import {
  type Message,
  command,
  currentMessageContext,
  formatReferences,
  replyHeader,
  supersedesHeader,
  undoesHeader,
} from "../../src/message/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { MemoryTransport, type MemoryTransportOptions } from "../../src/testing/index.ts";
import { temporaryDatabase } from "./database.ts";
import { aMessage } from "./messages.ts";
import { RecordingObserver } from "./recording-observer.ts";
import { until } from "./relays.ts";

interface ConsumerOptions {
  readonly poolSize?: number;
  readonly maxTransactions?: number;
  readonly leaseMs?: number;
  readonly openScope?: OpenScope;
  readonly transport?: MemoryTransportOptions;
  /** Consumers list what they run, as in production. Default true. */
  readonly ledger?: boolean;
  readonly stopDeadlineMs?: number;
}

/** A migrated database, a broker in memory, and the consumers that the test registers. */
export async function consumers(wishes: ConsumerOptions = {}) {
  const { pool, url } = await temporaryDatabase({ max: wishes.poolSize ?? 20, migrated: true });
  const database = pgDatabase(pool);
  await pool.query("create table effect (n bigserial, consumer text, id text, note text)");
  const observer = new RecordingObserver();
  const { openScope, maxTransactions, leaseMs } = wishes;
  const engine = inboxEngine({
    database,
    schema: "sagabox",
    observer,
    ...(openScope === undefined ? {} : { openScope }),
    ...(maxTransactions === undefined ? {} : { maxTransactions }),
    ...(leaseMs === undefined ? {} : { leaseMs }),
  });
  const transport = new MemoryTransport(wishes.transport);
  const registry = new HandlerRegistry();
  const ledger =
    wishes.ledger === false
      ? undefined
      : new CrashLedger({ engine, worker: "test", leaseMs: wishes.leaseMs ?? 20_000 });
  let running: Consumer[] = [];

  const stop = async (): Promise<void> => {
    const stopped = await Promise.allSettled(running.map((consumer) => consumer.stop()));
    running = [];
    await transport.close();
    await ledger?.stop();
    for (const one of stopped) if (one.status === "rejected") throw one.reason;
  };
  onTestFinished(stop);

  return {
    pool,
    url,
    database,
    engine,
    observer,
    transport,
    registry,
    ledger,
    stop,
    async start(): Promise<void> {
      await ledger?.start();
      running = registry.consumers().map((definition) => {
        const parts = {
          engine,
          transport,
          definition,
          worker: "test",
          service: "test",
          stopDeadlineMs: wishes.stopDeadlineMs ?? 5_000,
        };
        return new Consumer(ledger === undefined ? parts : { ...parts, ledger });
      });
      for (const consumer of running) await consumer.start();
    },
    async publish(...messages: Message[]): Promise<void> {
      await transport.publish(messages, { signal: new AbortController().signal });
    },
    async effects(): Promise<{ consumer: string; id: string; note: string | null }[]> {
      const sql = "select consumer, id, note from effect order by n";
      return (await pool.query<{ consumer: string; id: string; note: string | null }>(sql)).rows;
    },
    async rows(sql: string, params: unknown[] = []): Promise<Record<string, unknown>[]> {
      return (await pool.query<Record<string, unknown>>(sql, params)).rows;
    },
    deadLetters: () => listDeadLetters(deadLetterStore(database, "sagabox")),
  };
}

export const Reserve = command("stock.reserve", {
  schema: z.object({ refuse: z.string().optional() }),
  reply: z.object({ place: z.string() }),
});
export const Release = command("stock.release", { schema: z.object({}) });

interface Reply {
  readonly requestId: string;
  readonly key: string | undefined;
  readonly sagaId: string | undefined;
  readonly [field: string]: unknown;
}

interface References {
  readonly undoes?: readonly string[];
  readonly supersedes?: readonly string[];
}

/** A command that asks for a reply, and may refer to earlier reservations. */
export function aCommand(
  contract: { readonly name: string },
  id: string,
  { undoes, supersedes, ...change }: References & Partial<Message> = {},
): Message {
  const headers = {
    [replyHeader]: "replies.shop",
    ...(undoes === undefined ? {} : { [undoesHeader]: formatReferences(Reserve.name, undoes) }),
    ...(supersedes === undefined ? {} : { [supersedesHeader]: formatReferences(Reserve.name, supersedes) }),
  };
  const { name: type } = contract;
  return aMessage({ id, type, kind: "command", topic: `commands.${type}`, headers, ...change });
}

/** Consumers whose committed replies are kept for looking at. */
export async function participants(wishes: Parameters<typeof consumers>[0] = {}) {
  const replies: Reply[] = [];
  const openScope: OpenScope = (tx) => {
    const said: Reply[] = [];
    const publish: BusTransaction["publish"] = (_contract, data, options) => {
      const context = currentMessageContext();
      said.push({ ...(data as Reply), key: options?.key, sagaId: context?.sagaId });
      return Promise.resolve({ id: `reply-${said.length}`, written: true });
    };
    const start = (): Promise<never> => Promise.reject(new Error("no sagas here"));
    return {
      tx: { query: tx.query.bind(tx), publish, start },
      publish,
      start,
      waitForPending: () => Promise.resolve(),
      lastStatements: () => [],
      open: () => Readable.from([]),
      handleCommit: () => void replies.push(...said),
    };
  };
  const harness = await consumers({ ...wishes, openScope });
  return {
    ...harness,
    replies,
    replyTo: (id: string) => replies.filter(({ requestId }) => requestId === id),
    /** Publishes to the consumer `stock`, and waits until it has settled everything. */
    settled: async (...messages: Message[]): Promise<void> => {
      await harness.publish(...messages);
      await until(() => harness.transport.backlog("stock") === 0);
    },
    skips: () => harness.observer.of("consumer.skipped").map(({ id, reason }) => `${id} ${reason}`),
    did: async () => (await harness.effects()).map(({ id, note }) => `${note} ${id}`),
  };
}
