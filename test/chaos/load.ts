// Publishes beside business rows until the target is committed, by both ways of publishing. Its instructions are in CHAOS.
import pg from "pg";
import { createBus, type CallerTransaction } from "sagabox";
import { HANDLERS, Happened, signedUrl, createTransport, type LoadOptions } from "./child-contract.ts";

const options = JSON.parse(process.env["CHAOS"] ?? "{}") as LoadOptions;
const database = signedUrl(options.url, options.id);
const pool = new pg.Pool({ connectionString: database, max: options.writers + 6 });
pool.on("error", () => undefined);
const bus = createBus({
  service: "chaos",
  worker: options.id,
  database: pool,
  outbox: { optimisticTimeout: options.optimisticTimeoutMs },
  ...createTransport(options),
});

const TROUBLE_MS = 50;
const LOOK_MS = 50;
const ROLLED_BACK = new Error("rolled back on purpose");
let stopping = false;
let behind = false;

interface Queries {
  query(text: string, params: unknown[]): Promise<{ rows: unknown[] }>;
}

// The row lock makes the number of the key the order in which its transactions commit.
async function business(
  tx: Queries,
  publish: (data: { key: string; kseq: number }) => Promise<{ id: string }>,
) {
  const key = `k${1 + Math.floor(Math.random() * options.keys)}`;
  const { rows } = await tx.query("update aggregate set kseq = kseq + 1 where key = $1 returning kseq", [
    key,
  ]);
  const { kseq } = rows[0] as { kseq: number };
  const { id } = await publish({ key, kseq });
  await tx.query("insert into w_committed (msg_id, key, kseq) values ($1, $2, $3)", [id, key, kseq]);
  if (Math.random() < 0.1) throw ROLLED_BACK;
}

async function throughTheBus(): Promise<void> {
  await bus.transaction((tx) => business(tx, (data) => tx.publish(Happened, data)));
}

async function inOwnTransaction(): Promise<void> {
  const client = await pool.connect();
  let broken = true;
  const ignore = (): void => undefined;
  client.on("error", ignore);
  try {
    await client.query("begin");
    await business(client, (data) => bus.publish(client as CallerTransaction, Happened, data));
    await client.query("commit");
    broken = false;
  } catch (error) {
    if (error === ROLLED_BACK) {
      await client.query("rollback");
      broken = false;
    }
    throw error;
  } finally {
    client.removeListener("error", ignore);
    client.release(broken);
  }
}

async function write(): Promise<void> {
  while (!stopping) {
    while (behind && !stopping) await pause(LOOK_MS);
    if (options.restMs !== undefined) await pause(options.restMs);
    try {
      await (Math.random() < 0.5 ? throughTheBus() : inOwnTransaction());
    } catch (error) {
      if (error !== ROLLED_BACK) await pause(TROUBLE_MS);
    }
  }
}

// Closes the gate while the consumers are far behind, so that the load lasts as long as the faults do.
async function pace(): Promise<void> {
  while (!stopping) {
    try {
      const { rows } = await pool.query<{ committed: number; effects: number }>(
        `select (select sum(kseq)::integer from aggregate) as committed,
                (select last_value::integer from e_effect_n_seq) as effects`,
      );
      const { committed = 0, effects = 0 } = rows[0] ?? {};
      stopping ||= committed >= options.target;
      behind = committed * HANDLERS.length - effects > options.backlog;
    } catch {
      behind = true;
    }
    await pause(LOOK_MS);
  }
}

function pause(ms: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

process.once("SIGTERM", () => (stopping = true));
process.stdout.write("ready\n");
await Promise.all([pace(), ...Array.from({ length: options.writers }, write)]);
await bus.stop();
await pool.end();
