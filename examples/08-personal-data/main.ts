import { EventEmitter, once } from "node:events";
import pg from "pg";
import { createBus, event, isErased, isEncrypted, type Personal } from "sagabox";
import { startEmbeddedPostgres } from "sagabox/embedded";
import { keyRing } from "sagabox/privacy";
import { z } from "zod";

const given = process.env["DATABASE_URL"];
const server =
  given === undefined ? await startEmbeddedPostgres({ dataDir: ".sagabox/personal-data" }) : undefined;
const pool = new pg.Pool({ connectionString: server?.url ?? given, max: 20 });

// #region contract
const CustomerRegistered = event("example.customer.registered", {
  schema: z.object({ customerId: z.string(), email: z.string(), plan: z.string() }),
  key: ({ customerId }) => customerId,
  personal: { subject: ({ customerId }) => customerId, fields: ["email"] },
});
// #endregion contract

// #region bus
// Keys made up for the example. Yours come from SAGABOX_KEY_RING_FILE, made with `openssl rand -base64 32`.
const made = (seed: number) => Uint8Array.from({ length: 32 }, (_, n) => (n * 7 + seed) % 256);
const keys = keyRing({ current: "2026-11", keys: { "2026-11": made(1) }, index: made(2) });
const bus = createBus({ service: "example", database: pool, log: "warn", privacy: { keys } });
await bus.migrate();
// #endregion bus

// #region handle
const signals = new EventEmitter();
bus.on(CustomerRegistered, { consumer: "welcome" }, ({ data }) => {
  signals.emit("handled", `${data.plan}: ${describeValue(data.email)}`);
});

function describeValue(value: Personal<string>): string {
  if (isErased(value)) return "an erased subject";
  return isEncrypted(value) ? "a subject without a key" : value;
}
// #endregion handle

await bus.run();
const customerId = `customer-${Date.now()}`;
const first = once(signals, "handled");
await bus.transaction((tx) =>
  tx.publish(CustomerRegistered, { customerId, email: "ada@example.com", plan: "gold" }),
);
console.log("Handled.", String((await first)[0]));

const { rows } = await pool.query<{ data: string }>(
  "select data from sagabox.message where key = $1 and type = 'example.customer.registered'",
  [customerId],
);
console.log("In the table:", rows[0]?.data.includes("ada@example.com") === true ? "in clear" : "sealed");

// #region erase
const report = await bus.privacy.erase(customerId, { reason: "request 4711", actor: "clerk" });
console.log(`Erased. Keys destroyed: ${report.keysDestroyed}`);
for await (const { kind, data } of bus.privacy.export(customerId, { reason: "request 4711" })) {
  const { email, plan } = data as { email: Personal<string>; plan: string };
  console.log(`Left: a ${kind}, ${plan}: ${describeValue(email)}`);
}
// #endregion erase

await bus.stop();
await pool.end();
await server?.stop();
