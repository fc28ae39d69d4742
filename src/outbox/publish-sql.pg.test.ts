import fc from "fast-check";
import pg from "pg";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { databaseForFile } from "../../test/support/database.ts";
import { seededRandom } from "../../test/support/random-data.ts";
import { relays, until } from "../../test/support/relays.ts";
import { isSagaboxError } from "../errors/index.ts";
import {
  type AnyContract,
  checkHeaders,
  command,
  createIdSource,
  encodeJson,
  event,
  isGeneratedId,
  isValidId,
  laneFor,
  noHeaders,
  parseTraceparent,
  type PublishOptions,
  resolveTopic,
  stream,
  streamFor,
} from "../message/index.ts";
import { randomBytes, systemClock } from "../runtime/index.ts";
import { pgDatabase } from "../storage/index.ts";
import { Spans } from "../telemetry/index.ts";
import { compose, type Outgoing } from "./outgoing.ts";
import { OutboxWriter } from "./writer.ts";
import { RecordingObserver } from "../../test/support/recording-observer.ts";

const harness = databaseForFile({ migrated: true });

type Parameters = Readonly<Record<string, unknown>>;

/** Calls the SQL function with named parameters. */
async function publish(client: pg.Pool | pg.ClientBase, given: Parameters): Promise<string | null> {
  const names = Object.keys(given);
  const list = names.map((name, n) => `${name} => $${n + 1}`).join(", ");
  const values = names.map((name) =>
    name === "data" || name === "headers" ? JSON.stringify(given[name]) : given[name],
  );
  const { rows } = await client.query<{ id: string | null }>(`select sagabox.publish(${list}) as id`, values);
  return rows[0]?.id ?? null;
}

/** The code of the error with which SQL refuses a call, or undefined. */
async function refusal(sql: string, params: readonly unknown[]): Promise<string | undefined> {
  const { pool } = await harness;
  try {
    await pool.query(sql, [...params]);
    return undefined;
  } catch (error) {
    if (!(error instanceof pg.DatabaseError)) throw error;
    expect(error).toMatchObject({
      code: "22023",
      message: expect.stringMatching(/^sagabox\.publish: .*\.$/),
      hint: expect.stringMatching(/\.$/),
    });
    return error.detail;
  }
}

/** The code of the error that `work` throws, or undefined. */
function thrownCode(work: () => unknown): string | undefined {
  try {
    work();
    return undefined;
  } catch (error) {
    if (isSagaboxError(error)) return error.code;
    throw error;
  }
}

const text = fc
  .string({ unit: "grapheme", minLength: 1, maxLength: 60 })
  .filter((one) => !/[\0]|\p{Cs}/u.test(one));

test("rule 4: lanes and streams of SQL are those of lane-hash.ts, for any Unicode text", async () => {
  const { pool } = await harness;
  const random = seededRandom(11);
  const points = Array.from({ length: 3_000 }, () =>
    String.fromCodePoint(...Array.from({ length: 1 + Math.floor(random() * 20) }, () => codePoint(random))),
  );
  const keys = [
    ...fc.sample(text, { numRuns: 1_000, seed: 3 }),
    ...points,
    "",
    "x".repeat(255),
    "Straße",
    "😀",
  ];
  const topics = keys.map((_, n) => `events.t${n % 17}`);
  const { rows } = await pool.query<{ lane: number; stream: string }>(
    `select ((sagabox.publish_hash(convert_to(key, 'UTF8')) >> 32) & 255)::integer as lane,
            sagabox.publish_hash(convert_to(topic, 'UTF8') || decode('ff', 'hex') || convert_to(key, 'UTF8'))::text as stream
       from unnest($1::text[], $2::text[]) with ordinality as given (key, topic, n) order by n`,
    [keys, topics],
  );
  expect(rows).toEqual(
    keys.map((key, n) => ({ lane: laneFor(key), stream: streamFor(topics[n] ?? "", key) })),
  );
});

/** A code point that is neither NUL nor half of a pair, from a range of one to four bytes. */
function codePoint(random: () => number): number {
  const [low = 1, high = 1] = [
    [1, 0x7f],
    [0x80, 0x7ff],
    [0x800, 0xd7ff],
    [0xe000, 0xffff],
    [0x10000, 0x10ffff],
  ][Math.floor(random() * 5)] ?? [1, 1];
  return low + Math.floor(random() * (high - low + 1));
}

test("A18: topics of SQL are those of contracts", async () => {
  const { pool } = await harness;
  const names = [
    ...fc.sample(fc.stringMatching(/^[A-Za-z][A-Za-z0-9_.-]{0,30}$/), { numRuns: 2_000, seed: 5 }),
    "OrderPlaced",
    "HTTPServerDown",
    "order__placed.",
    "I",
    "a..b",
  ];
  const kinds = ["event", "command", "stream"] as const;
  const { rows } = await pool.query<{ topic: string }>(
    `select sagabox.publish_topic(null, kind, name) as topic
       from unnest($1::text[], $2::text[]) with ordinality as given (name, kind, n) order by n`,
    [names, names.map((_, n) => kinds[n % 3])],
  );
  expect(rows.map(({ topic }) => topic)).toEqual(
    names.map((name, n) => resolveTopic({ kind: kinds[n % 3] ?? "event", name, topic: null })),
  );
  const check = "select sagabox.publish_topic($1, 'event', $2)";
  for (const topic of ["a b", ".", "..", "", "ä", "a\n", "x".repeat(250)])
    expect(await refusal(check, [topic, "a"]), topic).toBe("TOPIC_INVALID");
  expect(await refusal(check, [null, "x".repeat(255)])).toBe("TOPIC_INVALID");
  expect(await refusal(check, ["x".repeat(249), "a"])).toBeUndefined();
});

test("ids and keys are valid in SQL if and only if they are in TypeScript", async () => {
  const tricky = [
    "",
    " ",
    "\u00a0\u2003",
    "\ufeff",
    "\u200b",
    "a\u0085",
    "a\u007f",
    "\t",
    "a\n",
    "a b",
    "é".repeat(255),
  ];
  const long = ["x".repeat(255), "x".repeat(256), "😀".repeat(127), "😀".repeat(128), `${"😀".repeat(127)}x`];
  const spaces = Array.from({ length: 0x3100 }, (_, n) => String.fromCharCode(n)).filter(
    (one) => one.trim() === "",
  );
  for (const id of [...tricky, ...long, ...spaces, ...fc.sample(text, { numRuns: 200, seed: 9 })]) {
    if (id.includes("\0")) continue;
    const expected = isValidId(id) ? undefined : "KEY_INVALID";
    expect(
      await refusal("select sagabox.publish_check_id('KEY_INVALID', 'key', $1)", [id]),
      JSON.stringify(id),
    ).toBe(expected);
  }
});

test("A4: headers are stored as TypeScript stores them, and refused as it refuses them", async () => {
  const { pool } = await harness;
  const names = [
    "a",
    "X-Tenant",
    "user.agent",
    "-a",
    "ä",
    "__proto__x",
    "x".repeat(128),
    "x".repeat(129),
    "content-type",
  ];
  const reserved = [
    "message_id",
    "Trace_Id",
    "traceparent",
    "sagabox-lane",
    "sagabox.a",
    "sagabox_b",
    "ce-id",
    "ce_id",
  ];
  const more = [
    "saga_id",
    "schema_version",
    "source_service",
    "event_type",
    "message_type",
    "correlation_id",
    "causation_id",
  ];
  const prefixes = [
    "CloudEvents_x",
    "nats-a",
    "Nats-Msg-Id",
    "x-death",
    "x-first-death-queue",
    "cexy",
    "natsx",
    "sagaboxy",
  ];
  const values: unknown[] = [
    "",
    "Größe 7 😀",
    'a"\\b',
    "a\nb",
    "a\rb",
    "\u0001",
    "x".repeat(8_192),
    "é".repeat(4_097),
    1,
    null,
    {},
  ];
  const cases: Record<string, unknown>[] = [
    {},
    ...[...names, ...reserved, ...more, ...prefixes].map((name) => ({ [name]: "x" })),
    ...values.map((value) => ({ a: value })),
    { A: "1", a: "2" },
    Object.fromEntries(Array.from({ length: 64 }, (_, n) => [`h${n}`, "x"])),
    Object.fromEntries(Array.from({ length: 65 }, (_, n) => [`h${n}`, "x"])),
  ];
  for (const headers of cases) {
    const json = JSON.stringify(headers);
    const code = thrownCode(() => checkHeaders(headers as Record<string, string>));
    expect(await refusal("select sagabox.publish_headers($1::jsonb)", [json]), json.slice(0, 80)).toBe(code);
    if (code !== undefined) continue;
    const { rows } = await pool.query<{ text: string }>("select sagabox.publish_headers($1::jsonb) as text", [
      json,
    ]);
    expect(JSON.parse(rows[0]?.text ?? "")).toEqual(checkHeaders(headers as Record<string, string>));
    expect(rows[0]?.text).toHaveLength(JSON.stringify(headers).length);
  }
  for (const odd of ["[]", '"a"', "1", "null"])
    expect(await refusal("select sagabox.publish_headers($1::jsonb)", [odd])).toBe("HEADER_INVALID");
});

const nested = (depth: number): string => `${"[".repeat(depth)}${"]".repeat(depth)}`;

test("data are refused by SQL if and only if bus.publish refuses them", async () => {
  const cases = [
    '{"n":9007199254740991,"m":-9007199254740991,"f":1.5}',
    '{"n":9007199254740992}',
    '{"deep":{"list":[{"n":-9007199254740992}]}}',
    nested(64),
    nested(65),
    `{"a":${nested(63)}}`,
    `{"a":${nested(64)}}`,
    `${"[".repeat(64)}1${"]".repeat(64)}`,
    '{"list":[{"__proto__":1}]}',
    '{"prototype":null}',
    '{"constructor":{}}',
    '{"a":"constructor","b":"x \\"constructor\\": "}',
    JSON.stringify("x".repeat(1_048_574)),
    JSON.stringify("x".repeat(1_048_575)),
    JSON.stringify("é".repeat(524_288)),
    "null",
    '"text"',
    ...fc.sample(fc.json({ stringUnit: "grapheme" }), { numRuns: 300, seed: 13 }),
  ].filter((json) => !/\\u0000|\\ud/i.test(json)); // jsonb itself refuses these
  const check = "select sagabox.publish_check_data($1::jsonb)";
  for (const json of cases) {
    const code = thrownCode(() => encodeJson(JSON.parse(json)));
    expect(await refusal(check, [json]), json.slice(0, 80)).toBe(code);
  }
  // JSON.parse reads it as infinity, which bus.publish refuses as no JSON.
  expect(await refusal(check, ["1e400"])).toBe("PAYLOAD_UNSAFE_INTEGER");
});

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00";

test("A8: a traceparent is continued, and without one a new trace begins", async () => {
  const { pool } = await harness;
  const trace = async (given: string | null): Promise<string> =>
    (await pool.query<{ text: string }>("select sagabox.publish_traceparent($1) as text", [given])).rows[0]
      ?.text ?? "";
  const child = parseTraceparent(await trace(parent));
  expect(child).toMatchObject({ traceId: parent.slice(3, 35), flags: "00" });
  expect(child?.spanId).not.toBe(parent.slice(36, 52));
  const [first, second] = [parseTraceparent(await trace(null)), parseTraceparent(await trace(null))];
  expect(first?.flags).toBe("01");
  expect(first?.traceId).not.toBe(second?.traceId);
  const zeros = [
    `00-${"0".repeat(32)}-b7ad6b7169203331-01`,
    `00-0af7651916cd43dd8448eb211c80319c-${"0".repeat(16)}-01`,
  ];
  const odd = ["", "x", `ff${parent.slice(2)}`, `${parent}-x`, parent.toUpperCase(), ...zeros];
  for (const given of [...odd, `01${parent.slice(2)}-x`, `01${parent.slice(2)}-${"x".repeat(500)}`]) {
    const expected = parseTraceparent(given) === undefined ? "HEADER_INVALID" : undefined;
    expect(await refusal("select sagabox.publish_traceparent($1)", [given]), given).toBe(expected);
  }
});

const schema = z.object({ n: z.number() });
const spans = new Spans(undefined, "none");
const newId = createIdSource({ wallMs: () => systemClock.wallMs(), randomBytes });
const context = {
  service: "shop",
  newId,
  randomBytes,
  maxAttempts: 10,
  spans,
  pack: (_: AnyContract, __: unknown, data: unknown) => ({ data: encodeJson(data), headers: noHeaders }),
};
const keyed = { schema, key: ({ n }: { n: number }) => `k${n}` };

interface Case {
  readonly name: string;
  readonly contract: AnyContract;
  readonly options?: PublishOptions;
  readonly sql: Parameters;
}

const cases: readonly Case[] = [
  { name: "plain", contract: event("order.placed", { schema }), sql: { type: "order.placed" } },
  { name: "keyed", contract: event("OrderPlaced", keyed), sql: { type: "OrderPlaced", key: "k7" } },
  {
    name: "command",
    contract: command("ReserveStock", { ...keyed, target: "stock", version: 3, upcast: {} }),
    sql: { type: "ReserveStock", kind: "command", key: "k7", target: "stock", schema_version: 3 },
  },
  {
    name: "stream",
    contract: stream("reading", { ...keyed, topic: "readings", ttl: "1h", priority: 8, maxAttempts: 3 }),
    sql: {
      type: "reading",
      kind: "stream",
      key: "k7",
      topic: "readings",
      ttl: "1 hour",
      priority: 8,
      max_attempts: 3,
    },
  },
  {
    name: "strict and held, with an aggregate",
    contract: event("a", { ...keyed, order: "strict", onDead: "hold", aggregate: "order" }),
    sql: { type: "a", key: "k7", strict_order: true, on_dead: "hold", aggregate_type: "order" },
  },
  {
    name: "all ids",
    contract: event("a", { ...keyed, aggregate: "order" }),
    options: {
      key: "other",
      headers: { Tenant: "ä" },
      correlationId: "c",
      causationId: "m",
      traceparent: parent,
      sagaId: "s",
      aggregateId: "9",
      target: "t",
    },
    sql: {
      type: "a",
      key: "other",
      headers: { Tenant: "ä" },
      correlation_id: "c",
      causation_id: "m",
      traceparent: parent,
      saga_id: "s",
      aggregate_type: "order",
      aggregate_id: "9",
      target: "t",
    },
  },
  {
    name: "delayed",
    contract: event("a", { ...keyed, ttl: "2h" }),
    options: { delay: "1h" },
    sql: { type: "a", key: "k7", ttl: "2 hours", delay: "1 hour" },
  },
  {
    name: "at a time",
    contract: event("a", keyed),
    options: { at: new Date("2031-02-03T04:05:06.789Z") },
    sql: { type: "a", key: "k7", at: "2031-02-03T04:05:06.789Z" },
  },
  {
    name: "no delay",
    contract: event("a", keyed),
    options: { delay: 0 },
    sql: { type: "a", key: "k7", delay: "0" },
  },
];

test.each(cases)("rows of SQL are those of bus.publish: $name", async ({ contract, options, sql }) => {
  const { pool } = await harness;
  const outgoing = (await compose(context, contract, { n: 7 }, options ?? {})) as Outgoing;
  const tx = await pgDatabase(pool).begin();
  await new OutboxWriter("sagabox", new RecordingObserver()).write(tx, [outgoing]);
  await tx.commit();
  const id = await publish(pool, { ...sql, data: { n: 7 }, source: "shop" });
  expect(id).toSatisfy(isGeneratedId);
  const [ours, theirs] = [await stored(outgoing.message.id), await stored(id ?? "")];
  expect(theirs).toEqual(ours);
  expect(Object.keys(ours).length).toBeGreaterThan(0);
});

/** All columns of a message's rows, with the values that differ for every message replaced by what they must be. */
async function stored(id: string): Promise<Record<string, unknown>> {
  const { pool } = await harness;
  const { rows } = await pool.query<{ row: Record<string, unknown> }>(
    `select to_jsonb(message) || jsonb_build_object('of', 'message', 'age', date_trunc('hour', clock_timestamp() - written_at)::text,
              'lives', (expires_at - written_at)::text, 'today', written_on = (written_at at time zone 'utc')::date) as row
       from sagabox.message where id = $1
     union all
     select to_jsonb(outbox) || jsonb_build_object('of', 'outbox', 'seq', seq = (select seq from sagabox.message where id = $1),
              'due', due_at = (select written_at from sagabox.message where id = $1), 'lives', (expires_at - due_at)::text)
       from sagabox.outbox where message_id = $1
     union all
     select to_jsonb(scheduled) || jsonb_build_object('of', 'scheduled', 'lives', (expires_at - due_at)::text,
              'waits', case when due_at > '2031-01-01' then due_at::text else round(extract(epoch from due_at - written_at) / 60)::text end)
       from sagabox.scheduled where id = $1`,
    [id],
  );
  const message = rows.find(({ row }) => row["of"] !== "outbox")?.row;
  const [key, type] = [message?.["key"], message?.["topic"]];
  return Object.fromEntries(
    rows.map(({ row }) => {
      const { written_at, expires_at, due_at, written_on, traceparent, ...rest } = row;
      const fresh = {
        seq: rest["of"] === "message" ? Number(rest["seq"]) > 0 : rest["seq"],
        lane: key === null ? rest["lane"] === laneFor(id) : rest["lane"],
        times: [written_at, expires_at, due_at, written_on].map(
          (time) => time === null || time === undefined,
        ),
        trace: String(traceparent).replace(/-[0-9a-f]{16}-/, "-span-"),
        data: rest["data"] === undefined ? undefined : (JSON.parse(rest["data"] as string) as unknown),
        correlation_id: rest["correlation_id"] === id ? "its own id" : rest["correlation_id"],
      };
      if (!fresh.trace.includes(parent.slice(3, 35)))
        fresh.trace = `${fresh.trace.length} ${fresh.trace.slice(-3)}`;
      const own = { id: undefined, message_id: undefined, type: rest["type"], topic: type };
      return [String(rest["of"]), { ...rest, ...fresh, ...own }];
    }),
  );
}

test.each<[Parameters, string]>([
  [{ type: null }, "CONTRACT_INVALID"],
  [{ type: "9" }, "CONTRACT_INVALID"],
  [{ type: "a b" }, "CONTRACT_INVALID"],
  [{ type: "x".repeat(256) }, "CONTRACT_INVALID"],
  [{ kind: "query" }, "CONTRACT_INVALID"],
  [{ schema_version: 0 }, "CONTRACT_INVALID"],
  [{ priority: 10 }, "OPTIONS_INVALID"],
  [{ priority: -1 }, "OPTIONS_INVALID"],
  [{ max_attempts: 0 }, "OPTIONS_INVALID"],
  [{ max_attempts: 1_001 }, "OPTIONS_INVALID"],
  [{ on_dead: "wait" }, "OPTIONS_INVALID"],
  [{ on_dead: "hold" }, "OPTIONS_INVALID"],
  [{ strict_order: true }, "OPTIONS_INVALID"],
  [{ delay: "1 hour", at: "2031-01-01" }, "OPTIONS_INVALID"],
  [{ delay: "-1 second" }, "OPTIONS_INVALID"],
  [{ delay: "3651 days" }, "OPTIONS_INVALID"],
  [{ at: "infinity" }, "OPTIONS_INVALID"],
  [{ ttl: "0" }, "OPTIONS_INVALID"],
  [{ ttl: "11 years" }, "OPTIONS_INVALID"],
  [{ id: "" }, "MESSAGE_ID_INVALID"],
  [{ key: " " }, "KEY_INVALID"],
  [{ source: "a\nb" }, "OPTIONS_INVALID"],
  [{ target: "" }, "MESSAGE_ID_INVALID"],
  [{ saga_id: "" }, "MESSAGE_ID_INVALID"],
  [{ aggregate_type: "a", aggregate_id: "" }, "MESSAGE_ID_INVALID"],
  [{ aggregate_type: "" }, "MESSAGE_ID_INVALID"],
  [{ correlation_id: "" }, "HEADER_INVALID"],
  [{ causation_id: "\u0001" }, "HEADER_INVALID"],
  [{ traceparent: "x" }, "HEADER_INVALID"],
  [{ headers: { traceparent: "x" } }, "HEADER_INVALID"],
  [{ topic: "a b" }, "TOPIC_INVALID"],
  [{ data: null }, "PAYLOAD_NOT_JSON"],
])("a call with %j is refused with %s, a remedy and no row", async (given, code) => {
  const { pool } = await harness;
  const before = await pool.query("select last_value from sagabox.outbox_seq");
  const call: Parameters = { type: "refused", data: {}, ...given };
  const names = Object.keys(call);
  const values = names.map((name) => {
    const value = call[name];
    return typeof value === "object" && value !== null ? JSON.stringify(value) : value;
  });
  const list = names.map((name, n) => `${name} => $${n + 1}`).join(", ");
  expect(await refusal(`select sagabox.publish(${list})`, values)).toBe(code);
  expect((await pool.query("select last_value from sagabox.outbox_seq")).rows).toEqual(before.rows);
});

test("nulls mean the default, so a trigger may pass columns that are null", async () => {
  const { pool } = await harness;
  const nothing = Object.fromEntries(
    (
      "key headers delay at id topic kind schema_version priority ttl source target correlation_id causation_id traceparent " +
      "saga_id aggregate_type aggregate_id max_attempts strict_order on_dead"
    )
      .split(" ")
      .map((name) => [name, null]),
  );
  const { headers: _, ...rest } = nothing;
  const [full, short] = [
    await publish(pool, { type: "a", data: {}, ...rest }),
    await publish(pool, { type: "a", data: {} }),
  ];
  expect(await stored(full ?? "")).toEqual(await stored(short ?? ""));
});

test("settings of the session name service, correlation, cause and trace where no parameter does", async () => {
  const { pool } = await harness;
  const client = await pool.connect();
  onTestFinished(() => client.release(true));
  await client.query(
    `select set_config('sagabox.service', 'billing', false), set_config('sagabox.correlation_id', 'c-1', false),
            set_config('sagabox.causation_id', 'm-1', false), set_config('sagabox.traceparent', $1, false)`,
    [parent],
  );
  const columns = "source, correlation_id, causation_id, substr(traceparent, 4, 32) as trace";
  const read = async (id: string | null) =>
    (await pool.query(`select ${columns} from sagabox.message where id = $1`, [id])).rows[0] as unknown;
  const trace = parent.slice(3, 35);
  const settings = { source: "billing", correlation_id: "c-1", causation_id: "m-1", trace };
  expect(await read(await publish(client, { type: "a", data: {} }))).toEqual(settings);
  const own = { source: "s", correlation_id: "c-2", causation_id: "m-2" };
  expect(await read(await publish(client, { type: "a", data: {}, ...own }))).toEqual({ ...own, trace });
  await client.query(
    "select set_config('sagabox.traceparent', 'broken', false), set_config('sagabox.service', '', false)",
  );
  const id = await publish(client, { type: "a", data: {} });
  expect(await read(id)).toMatchObject({ source: decodeURIComponent(new URL((await harness).url).username) });
});

test("A1: a message exists if and only if its transaction committed, savepoints included", async () => {
  const { pool } = await harness;
  const client = await pool.connect();
  await client.query("begin");
  const kept = await publish(client, { type: "a", data: {} });
  await client.query("savepoint s");
  const undone = await publish(client, { type: "a", data: {} });
  await client.query("rollback to s; commit; begin");
  const gone = await publish(client, { type: "a", data: {} });
  await client.query("rollback");
  client.release();
  const { rows } = await pool.query("select message_id from sagabox.outbox where message_id = any($1)", [
    [kept, undone, gone],
  ]);
  expect(rows).toEqual([{ message_id: kept }]);
});

test("A3: an id writes one message, whether SQL or bus.publish used it first, and whether it is scheduled", async () => {
  const { pool } = await harness;
  const call = { type: "a", data: {} };
  expect(await publish(pool, { ...call, id: "once" })).toBe("once");
  expect(await publish(pool, { ...call, id: "once" })).toBeNull();
  expect(await publish(pool, { ...call, id: "once", delay: "1 hour" })).toBeNull();
  expect(await publish(pool, { ...call, id: "later", delay: "1 hour" })).toBe("later");
  expect(await publish(pool, { ...call, id: "later" })).toBeNull();
  const generated = await publish(pool, call);
  expect(await publish(pool, { ...call, id: generated })).toBeNull();
  const tx = await pgDatabase(pool).begin();
  const contract = event("a", { schema });
  const again = (await compose(context, contract, { n: 1 }, { id: "once" })) as Outgoing;
  const written = await new OutboxWriter("sagabox", new RecordingObserver()).write(tx, [again]);
  await tx.commit();
  expect([...written]).toEqual([]);
  const { rows } = await pool.query("select count(*)::int as n from sagabox.message where id = 'once'");
  expect(rows).toEqual([{ n: 1 }]);
});

test("A3: of two open transactions with one id the second waits, and writes only if the first rolls back", async () => {
  const harness = await relays();
  for (const [end, expected] of [
    ["commit", null],
    ["rollback", "rollback-id"],
  ] as const) {
    const first = await harness.pool.connect();
    await first.query("begin");
    await publish(first, { type: "a", data: {}, id: `${end}-id` });
    const second = publish(harness.pool, { type: "a", data: {}, id: `${end}-id` });
    await until(async () => (await harness.rows("select 1 from pg_locks where not granted")).length === 1);
    await first.query(end);
    first.release();
    expect(await second).toBe(expected);
  }
});

test("rule 5: the transaction id is taken before the seq is drawn, also in a first statement", async () => {
  const harness = await relays();
  const shut = await harness.pool.connect();
  await shut.query("begin; alter sequence sagabox.outbox_seq owned by none");
  const done = publish(harness.pool, { type: "a", data: {} });
  const waiting = () =>
    harness.rows<{ numbered: boolean }>(
      `select backend_xid is not null as numbered from pg_stat_activity
        where datname = current_database() and wait_event_type = 'Lock'`,
    );
  await until(async () => (await waiting()).length === 1);
  expect(await waiting()).toEqual([{ numbered: true }]);
  await shut.query("rollback");
  shut.release();
  await done;
});

test("rule 5: with strict order SQL and bus.publish wait for each other on one key", async () => {
  const harness = await relays();
  const contract = event("a", { ...keyed, order: "strict" });
  const first = await harness.pool.connect();
  await first.query("begin");
  await publish(first, { type: "a", data: { n: 7 }, key: "k7", strict_order: true, id: "first" });
  const later = (await compose(context, contract, { n: 7 })) as Outgoing;
  const second = harness.publish(later);
  await until(async () => (await harness.rows("select 1 from pg_locks where not granted")).length === 1);
  await publish(harness.pool, { type: "a", data: {}, key: "other", strict_order: true });
  await first.query("commit");
  first.release();
  await second;
  const rows = await harness.rows("select message_id from sagabox.outbox where stream = $1 order by seq", [
    later.stream,
  ]);
  expect(rows.map((row) => row["message_id"])).toEqual(["first", later.message.id]);
});

test("order: messages of a key from SQL and from bus.publish are sent in the order of their commits", async () => {
  const harness = await relays();
  const contract = event("a", keyed);
  const sent: string[] = [];
  for (let n = 0; n < 20; n++) {
    const id = `m${n}`;
    sent.push(id);
    if (n % 2 === 0) await publish(harness.pool, { type: "a", data: {}, key: "k7", id });
    else await harness.publish((await compose(context, contract, { n: 7 }, { id })) as Outgoing);
  }
  await harness.relay({ batchSize: 3 }).start();
  await harness.drained();
  expect(harness.transport.ids).toEqual(sent);
});

test("publish sends no NOTIFY; wake_relays does, and refuses to in a transaction that has written", async () => {
  const { pool, url } = await harness;
  const listener = new pg.Client({ connectionString: url });
  await listener.connect();
  onTestFinished(() => listener.end());
  const heard: (string | undefined)[] = [];
  listener.on("notification", ({ payload }) => heard.push(payload));
  await listener.query("listen sagabox_sagabox");
  await publish(pool, { type: "a", data: {} });
  await publish(pool, { type: "a", data: {}, delay: "1 second" });
  const client = await pool.connect();
  await client.query("begin");
  await publish(client, { type: "a", data: {} });
  await expect(client.query("select sagabox.wake_relays()")).rejects.toMatchObject({
    code: "25001",
    hint: expect.stringContaining("after COMMIT"),
  });
  await client.query("rollback");
  await client.query("select sagabox.wake_relays()");
  client.release();
  await expect.poll(() => heard).toEqual(["*"]);
});

test("SEC-13: objects that a caller plants in front of the search path change nothing", async () => {
  const { pool } = await harness;
  const client = await pool.connect();
  onTestFinished(() => client.release(true));
  await client.query(
    `create temporary table message (id text); create temporary table outbox (seq bigint);
     create function pg_temp.clock_timestamp() returns timestamptz language sql as 'select ''epoch''::timestamptz';
     set search_path = pg_temp, pg_catalog; set standard_conforming_strings = off; set timezone = 'Asia/Tokyo'; set intervalstyle = 'iso_8601'`,
  );
  const id = await publish(client, { type: "OrderPlaced", data: {}, key: "a b", ttl: "1 hour" });
  const { rows } = await pool.query(
    `select topic, written_at > clock_timestamp() - interval '1 hour' as now, written_on = (written_at at time zone 'utc')::date as utc
       from sagabox.message where id = $1`,
    [id],
  );
  expect(rows).toEqual([{ topic: "events.order.placed", now: true, utc: true }]);
});
