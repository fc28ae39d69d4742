// A worker that gets every message that is not settled yet, as a broker would redeliver it after a crash. One of them
// ends the process at once. Run by poison-message.pg.test.ts as a process of its own.
import pg from "pg";
import { z } from "zod";
import { Consumer, CrashLedger, HandlerRegistry, inboxEngine } from "../../src/inbox/index.ts";
import { event } from "../../src/message/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { MemoryTransport } from "../../src/testing/index.ts";
import { aMessage } from "../support/messages.ts";

const [url = "", way = "SIGKILL"] = process.argv.slice(2);
const pool = new pg.Pool({ connectionString: url, max: 8 });
// Handlers hold every connection of that pool; what they note beside their transactions needs another one.
const notes = new pg.Pool({ connectionString: url, max: 2 });
const engine = inboxEngine({ database: pgDatabase(pool), schema: "sagabox" });
const transport = new MemoryTransport();
const registry = new HandlerRegistry();

const Placed = event("order.placed", { schema: z.object({}) });
for (const consumer of ["billing", "mail"]) {
  registry.on(Placed, { consumer, concurrency: 4 }, async (message, { tx }) => {
    await tx.query("insert into effect (consumer, id) values ($1, $2)", [consumer, message.id]);
    await notes.query("insert into run (consumer, id) values ($1, $2)", [consumer, message.id]);
    if (message.id === "killer" && consumer === "billing") die();
    // The others are still at work when the process dies.
    await tx.query("select pg_sleep(0.02)");
  });
}

function die(): void {
  if (way === "exit") process.exit(1);
  process.kill(process.pid, "SIGKILL");
}

const unsettled = `select given.id from unnest($1::text[]) as given (id)
   where not exists (select 1 from sagabox.consumer_inbox where consumer_name = $2 and event_id = given.id)
     and not exists (select 1 from sagabox.dead_letter where consumer = $2 and message_id = given.id)`;
const ids = ["m0", "m1", "killer", "m2", "m3", "m4", "m5", "m6", "m7", "m8"];

const ledger = new CrashLedger({ engine, worker: "poisoned", leaseMs: 400 });
await ledger.start();
const consumers = registry
  .consumers()
  .map(
    (definition) =>
      new Consumer({ engine, transport, definition, ledger, worker: "poisoned", service: "test" }),
  );
for (const consumer of consumers) await consumer.start();

const open = async (consumer: string): Promise<string[]> =>
  (await pool.query<{ id: string }>(unsettled, [ids, consumer])).rows.map((row) => row.id);

// Both consumers share the topic; what one of them has settled already is a duplicate for it.
const left = new Set([...(await open("billing")), ...(await open("mail"))]);
await transport.publish(
  ids.filter((id) => left.has(id)).map((id) => aMessage({ id })),
  { signal: new AbortController().signal },
);
while ((await open("billing")).length + (await open("mail")).length > 0) {
  await new Promise((resolve) => setTimeout(resolve, 20));
}
for (const consumer of consumers) await consumer.stop();
await ledger.stop();
await pool.end();
await notes.end();
