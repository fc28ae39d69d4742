import { randomBytes } from "node:crypto";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { createBus, event } from "sagabox";
import { expect, onTestFinished } from "vitest";
import { z } from "zod";
import { readKeyRingFromEnvironment } from "../../src/privacy/index.ts";
import { ada, Registered } from "./data-subjects.ts";
import { someDeadLetters } from "./dead-letters.ts";
import { recordEvents } from "./flows.ts";
import { rolesHarness } from "./roles-harness.ts";
import { cliInProcess, runCli } from "./run-cli.ts";
import { orderSaga } from "./saga-service.ts";

const Placed = event("order.placed", {
  schema: z.object({ n: z.number(), cause: z.number() }),
  key: ({ n }) => `k${n}`,
});
const broken = ["retried", "skipped", "settled"];
const waiting = ["compensated", "cancelled", "signalled"];
const later = { timeout: 30_000 };

/** A running service in whose database every sample of the command line finds something to look at or to act on. */
export async function cliHarness() {
  const harness = await rolesHarness();
  const rows = async <T>(sql: string): Promise<T[]> => (await harness.pool.query(sql)).rows as T[];
  const keys = readKeyRingFromEnvironment({ text: sampleKeyRing });
  const bus = createBus({
    service: "shop",
    database: harness.url,
    log: false,
    outbox: { optimistic: false },
    sagas: { pollInterval: 20 },
    ...(keys === undefined ? {} : { privacy: { keys } }),
  });
  onTestFinished(async () => void (await bus.stop()));
  await bus.migrate();
  const placeOrder = (n: number, options = {}) =>
    bus.transaction((tx) => tx.publish(Placed, { n, cause: 0 }, options));
  // These failed once and are tried again in an hour.
  const failed = [await placeOrder(1), await placeOrder(2), await placeOrder(3)];
  await harness.pool.query(
    "update sagabox.outbox set attempts = 1, due_at = now() + interval '1 hour', last_error = 'no such topic'",
  );
  await placeOrder(4, { delay: "1h" });
  await someDeadLetters(harness.pool, { type: "order.placed", topic: "events.order.placed" }, [
    { consumer: "billing", letters: 6, error: "'order ' || n || ' has no customer'", key: "'a' || n" },
    { consumer: "billing", letters: 4, error: "'timeout after ' || n || ' ms'", key: "'b' || n" },
  ]);

  // This one has gone, and something waits for it.
  await harness.pool.query(`
    with gone as (insert into sagabox.consumer_group (name) values ('old-billing') returning id),
         wanted as (insert into sagabox.subscription (topic, group_id) select 'events.order.gone', id from gone)
    insert into sagabox.queue (lane, topic, type, message_id, written_on, due_at)
    select gone.id * 256, 'events.order.gone', 'order.gone', message.id, written_on, now() from gone, sagabox.message limit 1`);

  const order = orderSaga();
  bus.on(Placed, { consumer: "billing" }, () => undefined);
  bus.register(order);
  await bus.run();
  const handled = await placeOrder(5);
  const inbox = `select from sagabox.consumer_inbox where event_id = '${handled.id}'`;
  await expect.poll(async () => (await rows(inbox)).length, later).toBe(1);
  const sagas: Record<string, string> = {};
  for (const [prefix, names] of [
    ["broken", broken],
    ["", waiting],
  ] as const) {
    for (const name of names) {
      const started = await bus.transaction((tx) => bus.start(tx, order, { id: `${prefix}${name}` }));
      sagas[`saga-${name}`] = started.sagaId;
    }
  }
  const settled = `select from sagabox.saga_instance where status = 'failed' or current_step = 'approval'`;
  await expect.poll(async () => (await rows(settled)).length, later).toBe(6);
  for (const customerId of ["c-ada", "c-bob"]) {
    await bus.transaction((tx) => tx.publish(Registered, { ...ada, customerId }));
  }
  await recordEvents(
    harness.pool,
    "stuck-order",
    60_000,
    { id: "1", type: "order.placed", source: "orders", at: 0 },
    { id: "2", type: "stock.reserved", source: "stock", after: "1", at: 10 },
  );
  const letters = await rows<{ id: string }>("select id::text from sagabox.dead_letter order by id");
  const told = await cliInProcess(["dlq", "groups", "--json"], { DATABASE_URL: harness.url });
  const { groups } = JSON.parse(told.stdout) as { groups: { fingerprint: string }[] };
  const fill: Fill = {
    ...sampleFiles(),
    ...sagas,
    message: handled.id,
    "message-waiting": failed[0]?.id ?? "",
    "message-buried": failed[1]?.id ?? "",
    "letter-edited": letters[0]?.id ?? "",
    "letter-replayed": letters[1]?.id ?? "",
    "letter-discarded": letters[2]?.id ?? "",
    letter: letters[3]?.id ?? "",
    "consumer-gone": "old-billing",
    group: groups.at(-1)?.fingerprint ?? "",
    "subject-erased": "c-ada",
    subject: "c-bob",
  };
  return { ...harness, fill };
}

/** How one way to call a command is tried. The test fills in `<letter>` and the like. */
export interface CliSample {
  readonly argv: readonly string[];
  /** It never asks the database. */
  readonly withoutDatabase?: true;
  /** It is there to make, or to look at, what is missing in an empty database. */
  readonly makesSchema?: true;
  /** It loads an application, which reads the environment of its process: it needs one of its own. */
  readonly ownProcess?: true;
  /** It prints no data: not tried with --json. */
  readonly silent?: true;
  /** It has a test of its own for what it prints. */
  readonly slow?: true;
  /** Who may only look may do it. */
  readonly viewer?: true;
  /** Nothing in the harness is as it wants it: it says so, and fails. */
  readonly inVain?: true;
}

const why = ["--actor", "ann", "--reason", "ticket 7"];
const window = ["--from", "2026-11-16T08:00:00Z", "--to", "2026-11-16T09:00:00Z"];
const sure = ["--yes", ...why];

/** At least one for every action of every command; a test fails for one without. In an order in which all can be done. */
export const cliSamples: Readonly<Record<string, readonly CliSample[]>> = {
  dev: [
    { argv: [], makesSchema: true, silent: true },
    { argv: ["sql", "select count(*) from sagabox.message"], makesSchema: true, silent: true },
  ],
  worker: [{ argv: ["--app", "<saga-app>", "--port", "0"], ownProcess: true, silent: true }],
  migrate: [
    { argv: ["status"], makesSchema: true },
    { argv: ["up"], makesSchema: true },
    { argv: ["sql"], withoutDatabase: true },
  ],
  status: [
    { argv: [], viewer: true },
    { argv: ["--check"], viewer: true },
  ],
  outbox: [
    { argv: ["list"], viewer: true },
    { argv: ["list", "--state", "scheduled"], viewer: true },
    { argv: ["stats"], viewer: true },
    { argv: ["show", "<message>"], viewer: true },
    { argv: ["retry-now", "<message-waiting>", ...why] },
    { argv: ["archive", "--keep", "30d", "--dry-run"] },
    { argv: ["archive", "--keep", "30d", ...sure] },
  ],
  inbox: [
    { argv: ["stats"], viewer: true },
    { argv: ["list"], viewer: true },
    { argv: ["show", "<message>"], viewer: true },
    { argv: ["cleanup", "--keep", "30d", "--dry-run"] },
    { argv: ["cleanup", "--keep", "30d", ...sure] },
    { argv: ["retire", "<consumer-gone>", "--dry-run"], viewer: true },
    { argv: ["retire", "<consumer-gone>", ...sure] },
  ],
  republish: [{ argv: [...window, "--dry-run"], viewer: true }, { argv: [...window, ...sure] }],
  dlq: [
    { argv: ["groups"] },
    { argv: ["list", "--letters"] },
    { argv: ["show", "<letter>"] },
    { argv: ["replay", "<letter-replayed>", ...sure] },
    { argv: ["replay", "--all", "--dry-run"] },
    { argv: ["replay", "--group", "<group>", ...sure] },
    { argv: ["edit", "<letter-edited>", "--data-file", "<edited-file>", "--dry-run"] },
    { argv: ["edit", "<letter-edited>", "--data-file", "<edited-file>", ...sure] },
    { argv: ["bury", "<message-buried>", "--outbox", ...sure] },
    { argv: ["discard", "<letter-discarded>", ...sure] },
    { argv: ["discard", "--all", "--dry-run"] },
    { argv: ["discard", "--all", ...sure] },
    { argv: ["list", "--closed"] },
  ],
  saga: [
    { argv: ["list"] },
    { argv: ["stuck"] },
    { argv: ["show", "<saga-retried>"] },
    { argv: ["history", "<saga-retried>"] },
    { argv: ["diagram", "<saga-retried>"] },
    { argv: ["diagram", "order", "--app", "<saga-app>"], withoutDatabase: true },
    { argv: ["check", "--app", "<saga-app>"] },
    { argv: ["retry", "<saga-retried>", ...why] },
    { argv: ["skip", "<saga-skipped>", "--step", "ship", ...sure] },
    { argv: ["settle", "<saga-settled>", "--step", "ship", "--result", '"by hand"', ...sure] },
    { argv: ["compensate", "<saga-compensated>", ...sure] },
    { argv: ["cancel", "<saga-cancelled>", ...sure] },
    {
      argv: ["signal", "<saga-signalled>", "--event", "approvals.given"].concat(
        ["--data-file", "<signal-file>", "--app", "<saga-app>"],
        why,
      ),
    },
  ],
  flow: [
    { argv: ["stuck-order"] },
    { argv: ["stuck-order", "--app", "<flow-app>"] },
    { argv: ["unfinished", "--app", "<flow-app>", "--idle-for", "1s"] },
  ],
  explain: [{ argv: ["<message>"], viewer: true }],
  verify: [{ argv: [] }],
  doctor: [{ argv: [], makesSchema: true }],
  tune: [{ argv: ["--yes", "--seconds", "1"], makesSchema: true, slow: true }],
  roles: [{ argv: ["sql"], withoutDatabase: true }],
  audit: [{ argv: ["list"] }, { argv: ["seal"] }, { argv: ["verify"] }],
  erase: [{ argv: ["<subject-erased>", "--dry-run", ...why] }, { argv: ["<subject-erased>", ...sure] }],
  privacy: [
    { argv: ["status"] },
    { argv: ["export", "<subject>", ...why] },
    { argv: ["hold", "<subject>", ...why] },
    { argv: ["release", "<subject>", ...why] },
    { argv: ["rewrap", ...why] },
    { argv: ["erasures"] },
    { argv: ["reapply", "<erasures-file>", ...why] },
    { argv: ["end-saga", "<saga-retried>", ...why], inVain: true },
  ],
  topology: [{ argv: ["--app", "<topology-app>"], withoutDatabase: true }],
  completion: ["bash", "zsh", "fish"].map((shell) => ({
    argv: [shell],
    withoutDatabase: true,
    silent: true,
  })),
};

export type Fill = Readonly<Record<string, string>>;

export const sampleKeyRing = ["first", "index"]
  .map((name) => `${name} ${randomBytes(32).toString("base64")}`)
  .join("\n");

/** What the samples name besides rows of the database. */
export function sampleFiles(): Fill {
  const folder = mkdtempSync(join(tmpdir(), "sagabox-cli-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  return {
    "saga-app": fileURLToPath(new URL("./saga-service.ts", import.meta.url)),
    "flow-app": fileURLToPath(new URL("./flow-service.ts", import.meta.url)),
    "topology-app": fileURLToPath(new URL("./topology-service.ts", import.meta.url)),
    "edited-file": file("edited.json", '{"n":1,"cause":7}'),
    "signal-file": file("signal.json", '{"id":"signalled"}'),
    "erasures-file": file("erasures.ndjson", ""),
  };
}

/** Ids that do not exist. */
function keepPlaceholder(name: string): string {
  if (name.startsWith("letter")) return "1";
  return name === "group" ? "3f9a0c21b7de" : "0197f3a2-6c1e-7d5b-9f62-1f6a8f3d2c11";
}

export interface CliOutput {
  readonly line: string;
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

export async function runSample(
  name: string,
  sample: CliSample,
  { url, fill, more = [] }: { readonly url: string; readonly fill: Fill; readonly more?: readonly string[] },
): Promise<CliOutput> {
  const wanted = [name, ...sample.argv, ...more];
  const argv = wanted.map((word) =>
    word.replace(/^<([a-z-]+)>$/, (_, found: string) => fill[found] ?? keepPlaceholder(found)),
  );
  const env = { DATABASE_URL: url, SAGABOX_KEY_RING: sampleKeyRing, USER: "ann" };
  const told = sample.ownProcess === true ? await runCli(argv, { env }) : await cliInProcess(argv, env);
  return { line: `sagabox ${wanted.join(" ")}`, ...told };
}

/** What is known of the objects at one place of a JSON text: how many there were, and of each key how often and with what. */
interface FieldTypes {
  objects: number;
  readonly keys: Map<string, { times: number; readonly types: Set<string> }>;
}

/** The keys and types of JSON texts, without their values: `.messages[]` is each object of the list under `messages`. */
export type Shape = ReadonlyMap<string, FieldTypes>;

/** Values under the keys in `anything` belong to the application or change each time, so they are not compared. */
export function buildShape(values: readonly unknown[], anything: readonly string[] = []): Shape {
  const shape = new Map<string, FieldTypes>();
  for (const value of values) note({ shape, anything }, ".", value);
  return shape;
}

interface Noting {
  readonly shape: Map<string, FieldTypes>;
  readonly anything: readonly string[];
}

function note(noting: Noting, path: string, value: unknown): void {
  const { shape, anything } = noting;
  if (typeof value !== "object" || value === null) return;
  if (Array.isArray(value)) {
    for (const one of value) note(noting, `${path}[]`, one);
    return;
  }
  const place = shape.get(path) ?? { objects: 0, keys: new Map() };
  shape.set(path, place);
  place.objects += 1;
  for (const [key, one] of Object.entries(value)) {
    const seen = place.keys.get(key) ?? { times: 0, types: new Set<string>() };
    place.keys.set(key, seen);
    seen.times += 1;
    for (const type of anything.includes(key) ? ["anything"] : findTypes(one)) seen.types.add(type);
    if (!anything.includes(key)) note(noting, `${path === "." ? "" : path}.${key}`, one);
  }
}

/** A list is known by what is in it. An empty one says no more than that it is one. */
function findTypes(value: unknown): readonly string[] {
  if (value === null) return ["null"];
  if (!Array.isArray(value)) return [typeof value];
  return ["list", ...value.flatMap((one) => findTypes(one).map((type) => `list of ${type}`))];
}

/** One line for each place: its keys with their types, `?` behind those that may be absent. */
export function shapeText(shape: Shape): string {
  return [...shape]
    .map(([path, { objects, keys }]) => {
      const fields = [...keys].map(([key, { times, types }]) => {
        const lists = [...types].some((type) => type.startsWith("list of "));
        const shown = [...types].filter((type) => type !== "list" || !lists).sort();
        return `${key}${times < objects ? "?" : ""}: ${shown.join(" | ")}`;
      });
      return `  ${path}  ${fields.sort().join(", ")}`;
    })
    .sort()
    .join("\n");
}

/** Adds the types that were recorded before, for the keys that are still there: what is null now may be a text at other times. */
export function addRecorded(shape: Shape, recorded: string): void {
  for (const [path, fields] of parseFields(recorded)) {
    for (const [key, { types }] of fields) {
      const seen = shape.get(path)?.keys.get(key)?.types;
      if (seen?.has("anything") === false) for (const type of types) seen.add(type);
    }
  }
}

interface Field {
  readonly optional: boolean;
  readonly types: readonly string[];
}

function parseFields(text: string): ReadonlyMap<string, ReadonlyMap<string, Field>> {
  const lines = text.split("\n").filter((line) => line.trim() !== "");
  return new Map(
    lines.map((line) => {
      const [path = "", fields = ""] = line.trim().split(/ {2}/);
      return [path, new Map(fields.split(", ").map(parseField))];
    }),
  );
}

function parseField(text: string): [string, Field] {
  const [name = "", types = ""] = text.split(": ");
  return [name.replace(/\?$/, ""), { optional: name.endsWith("?"), types: types.split(" | ") }];
}

/** How what was seen differs from what was recorded: a key that is new, gone, or holds something else. */
export function shapeDifferences(seen: Shape, recorded: string): readonly string[] {
  const [now, then] = [parseFields(shapeText(seen)), parseFields(recorded)];
  const gone = [...then.keys()].filter((path) => !now.has(path)).map((path) => `${path} is gone`);
  const changed = [...now].flatMap(([path, fields]) => {
    const before = then.get(path);
    if (before === undefined) return [`${path} is new`];
    const lost = [...before]
      .filter(([key, field]) => !field.optional && (fields.get(key)?.optional ?? true))
      .map(([key]) => `${path} ${key} is gone`);
    return [
      ...lost,
      ...[...fields].flatMap(([key, field]) => otherThan(before.get(key), `${path} ${key}`, field)),
    ];
  });
  return [...gone, ...changed];
}

function otherThan(before: Field | undefined, name: string, { types }: Field): readonly string[] {
  if (before === undefined) return [`${name} is new`];
  const allowed = before.types.some((type) => type.startsWith("list"))
    ? [...before.types, "list"]
    : before.types;
  return types.filter((type) => !allowed.includes(type)).map((type) => `${name} is ${type} now`);
}

const time = /\d{4}-\d\d-\d\d[T ]\d\d:\d\d\S*/g;
const iso = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z\b/;

/** Finds the strings in a JSON value that hold a time in another form than ISO 8601 in UTC, each with its path. */
export function foreignTimes(value: unknown, place = ""): readonly string[] {
  if (typeof value === "string") {
    const times = value.match(time) ?? [];
    return times.every((one) => iso.test(one)) ? [] : [`${place} ${value}`];
  }
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).flatMap(([key, one]) =>
    foreignTimes(one, Array.isArray(value) ? `${place}[${key}]` : `${place}.${key}`),
  );
}
