import { createBus, event, type Bus, type BusOptions } from "sagabox";
import { keyRing, type KeyRing } from "sagabox/privacy";
import { onTestFinished, expect } from "vitest";
import { z } from "zod";
import { ensurePartitions } from "../../src/outbox/index.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { temporaryDatabase, type TemporaryDatabase } from "./database.ts";

export const Registered = event("people.registered", {
  schema: z.object({
    customerId: z.string(),
    email: z.string(),
    address: z.object({ street: z.string(), city: z.string() }).optional(),
    guests: z.array(z.object({ name: z.string(), seat: z.number() })),
    phone: z.string().nullable().optional(),
    plan: z.string(),
  }),
  key: ({ plan }) => plan,
  personal: {
    subject: ({ customerId }) => customerId,
    fields: ["email", "address", "guests.*.name", "phone"],
  },
});

/** Values that must never be seen in clear. */
export const ada = {
  customerId: "c-ada",
  email: "ada.lovelace@canary.example",
  address: { street: "Canary Street 12", city: "Canaryville" },
  guests: [
    { name: "Canary Babbage", seat: 1 },
    { name: "Canary Byron", seat: 2 },
  ],
  phone: null,
  plan: "gold",
};

export const canaries = [ada.email, "Canary Street", "Canaryville", "Canary Babbage", "Canary Byron"];

export async function subjectsDatabase(max = 20): Promise<TemporaryDatabase> {
  const database = await temporaryDatabase({ max, migrated: true });
  await ensurePartitions(pgDatabase(database.pool), "sagabox");
  return database;
}

/** A bus with keys, unless the options say otherwise; stopped with the test. */
export function subjectsBus(
  { pool }: Pick<TemporaryDatabase, "pool">,
  options: Partial<BusOptions> = {},
): Bus {
  const bus = createBus({
    service: "people",
    database: pool,
    log: false,
    privacy: { keys: testKeyRing() },
    ...options,
  });
  onTestFinished(async () => void (await bus.stop()));
  return bus;
}

/** Everything in every table, as text. */
export async function wholeDatabase({ pool }: Pick<TemporaryDatabase, "pool">): Promise<string> {
  const tables = await pool.query<{ name: string }>(
    `select format('%I.%I', table_schema, table_name) as name from information_schema.tables
      where table_schema = 'sagabox' and table_type = 'BASE TABLE'`,
  );
  let all = "";
  for (const { name } of tables.rows) {
    const { rows } = await pool.query<{ line: string }>(`select row_to_json(t)::text as line from ${name} t`);
    all += rows.map(({ line }) => line).join("\n");
  }
  return all;
}

export interface Deferred<T> {
  readonly promise: Promise<T>;
  readonly resolve: (value: T) => void;
}

/** A promise and what settles it. */
export function createDeferred<T>(): Deferred<T> {
  let resolve: (value: T) => void = () => undefined;
  const promise = new Promise<T>((settle) => (resolve = settle));
  return { promise, resolve: (value) => resolve(value) };
}

const key = (fill: number): Uint8Array =>
  Uint8Array.from({ length: 32 }, (_, n) => (n * 7 + fill * 31) % 256);

/** A ring whose keys are the same in every test. */
export function testKeyRing(current = "2026-a", ...others: string[]): KeyRing {
  const names = [current, ...others];
  return keyRing({
    current,
    keys: Object.fromEntries(names.map((name) => [name, key(1 + name.charCodeAt(name.length - 1))])),
    index: key(200),
  });
}

/** Sweeps until nothing is left: transactions of other tests, in other databases of the server, are waited for too. */
export async function sweepAll(bus: Bus): Promise<void> {
  await expect.poll(() => bus.privacy.sweep(), { timeout: 30_000, interval: 200 }).toBe(0);
}
