import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { createBus, event, type Transport } from "sagabox";
import {
  assertRequired,
  brokerKinds,
  startBroker,
  type BrokerKind,
} from "../support/brokers/broker-server.ts";
import { brokerTransport } from "../support/brokers/broker-transport.ts";
import { figure, full, report } from "./chaos-run.ts";
import { until } from "./until.ts";
import { temporaryDatabase } from "../support/database.ts";

const Happened = event("misuse.happened", {
  schema: z.object({ key: z.string(), kseq: z.number() }),
  key: (data) => data.key,
});

/** What a handler does wrong, and what the dead letter of its message says. */
const misuses: readonly { readonly sql: string; readonly says: string }[] = [
  { sql: "rollback and chain", says: "ROLLBACK was refused" },
  { sql: "rollback; begin", says: "ROLLBACK was refused" },
  { sql: "commit and chain", says: "COMMIT was refused" },
  { sql: "prepare transaction 'misuse'", says: "PREPARE TRANSACTION was refused" },
  { sql: "insert into deferred_failure values ('22012')", says: "raised at COMMIT" },
  { sql: "insert into deferred_failure values ('57P01')", says: "raised at COMMIT" },
  { sql: "insert into deferred_failure values ('40001')", says: "raised at COMMIT" },
];

const KEYS = 40;
const TABLES = `
  create table effect (n bigserial, id text, key text, kseq integer);
  create table deferred_failure (code text);
  create function raise_at_commit() returns trigger language plpgsql as
    'begin raise exception ''raised at COMMIT'' using errcode = new.code; end';
  create constraint trigger raise_at_commit after insert on deferred_failure deferrable initially deferred
    for each row execute function raise_at_commit();`;

/** Every tenth message misbehaves, each in its turn; undefined for the others. */
function pickMisuse(n: number): (typeof misuses)[number] | undefined {
  return n % 10 === 3 ? misuses[Math.floor(n / 10) % misuses.length] : undefined;
}

type TransportKind = "postgres" | BrokerKind;

/** Undefined for PostgreSQL itself; a text says why there is no such broker. */
async function transportFor(way: TransportKind): Promise<Transport | undefined | string> {
  if (way === "postgres") return undefined;
  const found = await startBroker(way);
  if ("missing" in found) {
    assertRequired(way, found.missing);
    return found.missing;
  }
  onTestFinished(() => found.server.stop());
  return brokerTransport(way, found.server.url, { quickly: true });
}

const forms = [
  ["one by one", {}],
  ["in batches", { batch: { size: 20, wait: 20 } }],
] as const;
const transportKinds: readonly TransportKind[] = full ? ["postgres", ...brokerKinds] : ["postgres"];

test.for(transportKinds.flatMap((way) => forms.map(([form, batch]) => ({ way, form, batch }))))(
  "handlers that end their transaction or fail at COMMIT lose nothing, repeat nothing, block no other message ($way, $form)",
  async ({ way, form, batch }, { skip }) => {
    const transport = await transportFor(way);
    if (typeof transport === "string") return skip(transport);
    const { pool } = await temporaryDatabase({ max: 30 });
    await pool.query(TABLES);
    const bus = createBus({
      service: "misuse",
      database: pool,
      log: false,
      ...(transport === undefined ? {} : { transport }),
    });
    onTestFinished(async () => void (await bus.stop()));
    await bus.migrate();
    const retry = { maxAttempts: 2, firstDelay: 10, maxDelay: 50 } as const;
    bus.on(Happened, { consumer: "effects", retry, ...batch }, async ({ id, data }, { tx }) => {
      await tx.query("insert into effect (id, key, kseq) values ($1, $2, $3)", [id, data.key, data.kseq]);
      const misuse = pickMisuse(data.kseq * KEYS + Number(data.key));
      // Swallowed as careless code would do it: the message must still not count as handled.
      if (misuse !== undefined) await tx.query(misuse.sql).catch(() => undefined);
    });
    await bus.run();

    const messages = figure(1_000, 200);
    const published = new Map<string, { readonly n: number }>();
    for (let from = 0; from < messages; from += 100) {
      await bus.transaction(async (tx) => {
        for (let n = from; n < Math.min(messages, from + 100); n++) {
          const { id } = await tx.publish(Happened, { key: String(n % KEYS), kseq: Math.floor(n / KEYS) });
          published.set(id, { n });
        }
      });
    }

    const bad = [...published].filter(([, { n }]) => pickMisuse(n) !== undefined);
    const count = async (sql: string): Promise<number> =>
      (await pool.query<{ count: number }>(`select count(*)::integer as count from ${sql}`)).rows[0]?.count ??
      0;
    await until(
      "every message has its effect or is a dead letter",
      async () => (await count("effect")) + (await count("sagabox.dead_letter")) >= messages,
      { timeoutMs: figure(900_000, 150_000) },
    );
    await until("nothing is in flight", async () => (await count("sagabox.outbox")) === 0);
    await until("nothing waits", async () => (await count("sagabox.queue")) === 0);

    const { rows: effects } = await pool.query<{ id: string; key: string; kseq: number }>(
      "select id, key, kseq from effect order by n",
    );
    const good = [...published.keys()].filter((id) => !bad.some(([other]) => other === id));
    expect(effects.map(({ id }) => id).sort()).toEqual(good.sort());
    const last = new Map<string, number>();
    const overtaken = effects.filter(({ key, kseq }) => {
      const before = last.get(key) ?? -1;
      last.set(key, kseq);
      return kseq < before;
    });
    expect(overtaken).toEqual([]);

    const { rows: letters } = await pool.query<{ id: string; error: string }>(
      "select message_id as id, error_message as error from sagabox.dead_letter",
    );
    expect(letters.map(({ id }) => id).sort()).toEqual(bad.map(([id]) => id).sort());
    const unexplained = letters.filter(({ id, error }) => {
      const n = published.get(id)?.n ?? 0;
      return !error.includes(pickMisuse(n)?.says ?? "");
    });
    expect(unexplained).toEqual([]);
    expect(await count("pg_prepared_xacts where database = current_database()")).toBe(0);
    report(`misuse, ${way}, ${form}`, { messages, "dead letters": letters.length });
  },
);
