import { randomBytes, createHash } from "node:crypto";
import { readdirSync, readFileSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type pg from "pg";
import {
  command,
  createBus,
  event,
  isErased,
  permanent,
  saga,
  type Bus,
  type BusOptions,
  type Transport,
} from "sagabox";
import { fileStore } from "sagabox/claim-check";
import { expect, onTestFinished, test } from "vitest";
import { z } from "zod";
import { FieldCipher, type Binding } from "../../src/privacy/field-cipher.ts";
import { KeyCache, type DataKey } from "../../src/privacy/key-cache.ts";
import { privacyStatements } from "../../src/privacy/statements.ts";
import { SubjectKeys } from "../../src/privacy/subject-keys.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { logger } from "../../src/telemetry/index.ts";
import { testKeyRing, subjectsDatabase, wholeDatabase } from "./data-subjects.ts";
import type { TemporaryDatabase } from "./database.ts";
import { until } from "./relays.ts";
import { recordedTraces, tracesText } from "./traces.ts";

/** Texts that occur nowhere else on this machine. */
export function newCanaries() {
  const mark = (what: string): string => `${what}${randomBytes(9).toString("hex")}`;
  return { email: mark("canary-mail-"), iban: mark("canary-iban-"), guest: mark("canary-guest-") };
}

/** Which of the texts are in the files below a folder, as bytes. */
export function foundInFiles(
  folder: string,
  texts: readonly string[],
  wanted: (path: string) => boolean = () => true,
): Set<string> {
  const found = new Set<string>();
  const needles = texts.map((text) => ({ text, bytes: Buffer.from(text) }));
  for (const path of filesBelow(folder)) {
    if (!wanted(path)) continue;
    const content = readIfThere(path);
    for (const { text, bytes } of needles) if (content.includes(bytes)) found.add(text);
  }
  return found;
}

// Servers rename and delete their files while we look.
export function filesBelow(folder: string): string[] {
  const entries = ifThere(() => readdirSync(folder, { withFileTypes: true })) ?? [];
  return entries.flatMap((entry) => {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) return filesBelow(path);
    return entry.isFile() ? [path] : [];
  });
}

export function readIfThere(path: string): Buffer {
  return ifThere(() => readFileSync(path)) ?? Buffer.alloc(0);
}

function ifThere<T>(look: () => T): T | undefined {
  try {
    return look();
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw error;
  }
}

/** The files in which the server keeps this database and what was written to its log since `lsn`. */
export async function databaseFiles(
  pool: pg.Pool,
  lsn: string,
): Promise<{ readonly folder: string; readonly isOurs: (path: string) => boolean }> {
  await pool.query("checkpoint");
  const { rows } = await pool.query<{ folder: string; oid: string; first: string; last: string }>(
    `select current_setting('data_directory') as folder, pg_walfile_name($1::pg_lsn) as first,
            pg_walfile_name(pg_current_wal_lsn()) as last,
            (select oid::text from pg_database where datname = current_database()) as oid`,
    [lsn],
  );
  const [{ folder, oid, first, last }] = rows as [(typeof rows)[number]];
  const isOurs = (path: string): boolean => {
    if (path.startsWith(join(folder, "base", oid))) return true;
    const segment = /pg_wal\/([0-9A-F]{24})$/.exec(path)?.[1];
    return segment !== undefined && segment >= first && segment <= last;
  };
  return { folder, isOurs };
}

/** Where copies lie: folders by name. The tables are looked through anyway. */
type Folders = Readonly<Record<string, string | undefined>>;

interface Attempt {
  readonly binding: Binding;
  readonly place: readonly (string | number)[];
}

const TOKEN = /1\.([A-Za-z0-9_-]{22})\.[A-Za-z0-9_-]{16}\.[A-Za-z0-9_-]{22,}/g;
const fields = [["email"], ["bank"], ["guests", 0, "name"], ["scan"]] as const;
const sagaTexts = ["state", "note", "cause", "metadata", "old_state", "new_state"];
const VERSIONS = 10;

/**
 * What any key that still exists can open, for every key that an encrypted value names and every copy of it: by the id of
 * the key it names, each as `table: field` or `folder: field`.
 */
export async function openable(
  { pool }: Pick<TemporaryDatabase, "pool">,
  folders: Folders,
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const { rows } = await pool.query<{ id: string }>("select key_id as id from sagabox.subject_key");
  const ids = rows.map(({ id }) => id);
  const keys = await liveKeys(pool, ids);
  const attempts = await attemptsAt(pool);
  const opened = new Map<string, Set<string>>();
  for (const [token, sources] of await findEncryptedValues(pool, folders, new Set(ids))) {
    const [, keyId = ""] = token.split(".");
    const place = openedAt(token, keyId, keys, attempts);
    const found = opened.get(keyId) ?? new Set<string>();
    if (place !== undefined) for (const source of sources) found.add(`${source}: ${place}`);
    opened.set(keyId, found);
  }
  return opened;
}

function openedAt(
  token: string,
  keyId: string,
  keys: readonly DataKey[],
  attempts: readonly Attempt[],
): string | undefined {
  for (const { binding, place } of attempts) {
    for (const key of keys) {
      try {
        findCipher({ ...key, keyId }, binding).decryptText({ $sealed: token }, place);
        return place.map((part) => (typeof part === "number" ? "n" : part)).join(".");
      } catch {
        // Not with this key, or not from here.
      }
    }
  }
  return undefined;
}

const ciphers = new WeakMap<Binding, Map<string, FieldCipher>>();

function findCipher(key: DataKey, binding: Binding): FieldCipher {
  const known = ciphers.get(binding) ?? new Map<string, FieldCipher>();
  ciphers.set(binding, known);
  const name = `${key.keyId} ${Buffer.from(key.bytes).toString("hex")}`;
  const sealer = known.get(name) ?? new FieldCipher(key, binding);
  known.set(name, sealer);
  return sealer;
}

async function liveKeys(
  pool: TemporaryDatabase["pool"],
  ids: readonly string[],
): Promise<readonly DataKey[]> {
  const store = new SubjectKeys({
    database: pgDatabase(pool),
    sql: privacyStatements("sagabox"),
    wrapper: testKeyRing(),
    cache: new KeyCache({ ttlMs: 0, size: 1 }),
    guard: { note: () => Promise.resolve() },
    wrapperMs: 5_000,
  });
  const found = await Promise.all(ids.map((id) => store.find(id)));
  return found.filter((key) => typeof key !== "string");
}

/** Everything that a sealed value can be bound to here. */
async function attemptsAt(pool: TemporaryDatabase["pool"]): Promise<readonly Attempt[]> {
  const messages = await pool.query<{ id: string; type: string }>(
    `select id, type from sagabox.message union select id, type from sagabox.scheduled
      union select message_id, type from sagabox.dead_letter`,
  );
  const sagas = await pool.query<{ id: string }>("select id from sagabox.saga_instance");
  const versions = Array.from({ length: VERSIONS }, (_, version) => version);
  return [
    ...messages.rows.flatMap(({ id, type }) => {
      const binding = { purpose: "message", id: JSON.stringify([id, type]) };
      return fields.map((place) => ({ binding, place }));
    }),
    ...sagas.rows.flatMap(({ id }) => {
      const binding = { purpose: "saga", id };
      const texts = sagaTexts.flatMap((text) => versions.map((version) => [text, version]));
      return [["input"], ["pending_input"], ...texts].map((place) => ({ binding, place }));
    }),
  ];
}

/** Every sealed value of the persons of this database, with the names of the places that hold a copy of it. */
async function findEncryptedValues(
  pool: TemporaryDatabase["pool"],
  folders: Folders,
  ids: ReadonlySet<string>,
): Promise<ReadonlyMap<string, ReadonlySet<string>>> {
  const found = new Map<string, Set<string>>();
  const look = (source: string, text: string): void => {
    for (const [token, id = ""] of text.matchAll(TOKEN))
      if (ids.has(id)) found.set(token, (found.get(token) ?? new Set()).add(source));
  };
  const tables = await pool.query<{ name: string }>(
    `select relname as name from pg_class
      where relnamespace = 'sagabox'::regnamespace and relkind in ('r', 'p') and not relispartition`,
  );
  for (const { name } of tables.rows) {
    const { rows } = await pool.query<{ line: string }>(
      `select row_to_json(t)::text as line from sagabox.${name} t`,
    );
    look(name, rows.map(({ line }) => line).join("\n"));
  }
  for (const [name, folder] of Object.entries(folders)) {
    if (folder !== undefined)
      for (const path of filesBelow(folder)) look(name, readIfThere(path).toString("latin1"));
  }
  return found;
}

const EACH = 12;
const subject = ({ who }: { who: string }): string => who;
const Person = z.object({ who: z.string(), email: z.string() });

const Booked = event("canary.booked", {
  schema: Person.extend({
    n: z.number(),
    plan: z.string(),
    bank: z.object({ iban: z.string() }),
    guests: z.array(z.object({ name: z.string(), seat: z.number() })),
    scan: z.string().optional(),
  }),
  key: ({ who }) => who,
  personal: { subject, fields: ["email", "bank", "guests.*.name", "scan"] },
});
const Check = command("canary.check", {
  schema: Person,
  reply: z.object({ ok: z.boolean() }),
  personal: { subject, fields: ["email"] },
});
const checking = saga("canary-checking", { version: 1, input: Person, key: subject, personal: { subject } })
  .send("check", Check, ({ input }) => input)
  .noUndo("nothing was done")
  .run("card", ({ input }) => {
    if (input.who === "ada") throw permanent(`the card of ${input.email} was declined`);
    return { charged: input.email };
  })
  .noUndo("a measurement");

export interface CanaryFixture {
  readonly transport?: Transport;
  /** Where the broker keeps its data. */
  readonly brokerFolder?: string;
}

/**
 * Personal values are planted in everything that can carry them, and looked for in clear in everything that is written:
 * tables, the files and the log of the database, the broker's files, the blobs, log lines, metrics, spans. Beside them travels a
 * text that is not personal: where it is not found, the search itself would be worth nothing.
 */
export function canarySuite(place: () => CanaryFixture): void {
  test(
    "C6, C-15: planted personal values appear nowhere in clear, and after an erasure no key opens them",
    { timeout: 180_000 },
    async () => {
      const { transport, brokerFolder } = place();
      const database = await subjectsDatabase(40);
      const { rows } = await database.pool.query<{ lsn: string }>("select pg_current_wal_lsn()::text as lsn");
      const plain = newCanaries();
      const open = `open-${plain.email}`.replace("canary-mail-", ""); // not personal
      const secrets = Object.values(plain);
      const harness = await openHarness(database, transport);
      const createData = (who: string, n: number) => ({
        who,
        n,
        plan: open,
        email: plain.email,
        bank: { iban: plain.iban },
        guests: [{ name: plain.guest, seat: n }],
      });
      const { bus } = harness;
      for (let n = 0; n < EACH; n++) {
        for (const who of ["ada", "bob"])
          await bus.transaction((tx) => tx.publish(Booked, createData(who, n)));
      }
      const scan = `${plain.guest} `.repeat(4_000);
      await bus.transaction(async (tx) => {
        await tx.publish(Booked, { ...createData("ada", EACH), scan });
        await tx.publish(Booked, { ...createData("ada", -1) }, { delay: "1h" });
        for (const who of ["ada", "bob"]) await bus.start(tx, checking, { who, email: plain.email });
      });
      await bus.request(Check, { who: "ada", email: plain.email }, { timeout: "30s" });
      await harness.settled({ steady: 2 * EACH + 1, letters: 2 * EACH + 1 });

      const lists = await harness.seen("steady");
      const digest = createHash("sha256").update(plain.email).digest("hex");
      expect(lists.filter(({ who }) => who === "bob").map(({ n }) => n)).toEqual(count(EACH));
      expect(lists.filter(({ who }) => who === "ada").map(({ n }) => n)).toEqual(count(EACH + 1));
      expect(new Set(lists.map(({ email }) => email))).toEqual(new Set([digest]));

      const tables = await wholeDatabase(database);
      const told = `${harness.lines.join("")}\n${bus.metrics()}`;
      const spans = tracesText(harness.traces.spans());
      const letters = JSON.stringify(
        await Promise.all(
          (await bus.deadLetters.list({ limit: 100 })).map((one) => bus.deadLetters.show(one.id)),
        ),
      );
      for (const secret of secrets)
        expect([tables, told, letters, spans].filter((sink) => sink.includes(secret))).toEqual([]);
      expect(spans).toContain("[personal]"); // there were errors that named a person
      expect(tables).toContain(open);
      expect(letters).toContain("[personal]");
      const files = await databaseFiles(database.pool, rows[0]?.lsn ?? "0/0");
      expect([...foundInFiles(files.folder, [...secrets, open], files.isOurs)]).toEqual([open]);
      expect([...foundInFiles(harness.blobs, [...secrets, open])]).toEqual([open]);
      if (brokerFolder !== undefined) {
        expect([...foundInFiles(brokerFolder, [...secrets, open])]).toEqual([open]);
      }

      const folders = { blobs: harness.blobs, broker: brokerFolder };
      const before = await openable(database, folders);
      const because = { reason: "the test", actor: "canary" };
      const { erasure } = await bus.privacy.erase("ada", { ...because, force: true });
      const adas = erasure?.keyIds ?? [];
      const openedBefore = new Set(adas.flatMap((id) => [...(before.get(id) ?? [])]));
      // All of this could be read, so that not being able to means something.
      expect(
        encryptedFieldPaths(brokerFolder !== undefined).filter((where) => !openedBefore.has(where)),
      ).toEqual([]);
      harness.repair();
      const after = await openable(database, folders);
      expect(adas.flatMap((id) => [...(after.get(id) ?? ["nothing of it was found"])])).toEqual([]);
      const others = [...before.keys()].filter((id) => !adas.includes(id));
      expect(others.some((id) => after.get(id)?.has("message: email"))).toBe(true);
      for (const letter of (await bus.deadLetters.list({ limit: 100 })).toReversed())
        await bus.deadLetters.replay(letter.id);
      await harness.settled({ strict: 2 * EACH + 1, letters: 0 });
      const again = await harness.seen("strict");
      expect(again.filter(({ who }) => who === "ada").map(({ n, email, plan }) => [n, email, plan])).toEqual(
        count(EACH + 1).map((n) => [n, "erased", open]),
      );
      expect(again.filter(({ who }) => who === "bob").map(({ n, email }) => [n, email])).toEqual(
        count(EACH).map((n) => [n, digest]),
      );
      const left = await database.pool.query<{ type: string; count: string }>(
        "select type, count(*) from sagabox.message where type = 'canary.booked' group by type",
      );
      expect(left.rows).toEqual([{ type: "canary.booked", count: String(2 * EACH + 1) }]);
      expect(await bus.audit.verify()).toMatchObject({ ok: true });
    },
  );
}

/** Where what was sealed for ada lies. */
function encryptedFieldPaths(hasBroker: boolean): string[] {
  const ofBooking = ["email", "bank", "guests.n.name"];
  return [
    ...["message", "scheduled", "dead_letter", "blobs", ...(hasBroker ? ["broker"] : [])].flatMap((where) =>
      ofBooking.map((field) => `${where}: ${field}`),
    ),
    "blobs: scan",
    "saga_instance: input",
    "saga_instance: state.n",
    "saga_audit_log: cause.n",
  ];
}

function count(to: number): number[] {
  return Array.from({ length: to }, (_, n) => n);
}

async function openHarness(database: TemporaryDatabase, transport: Transport | undefined) {
  const blobs = mkdtempSync(join(tmpdir(), "sagabox-canary-"));
  onTestFinished(() => rmSync(blobs, { recursive: true, force: true }));
  const lines: string[] = [];
  const traces = recordedTraces();
  let repaired = false;
  const options: BusOptions = {
    service: "canary",
    database: database.pool,
    log: false,
    observers: [logger({ level: "debug", format: "json", write: (line) => void lines.push(line) })],
    telemetry: traces.telemetry,
    privacy: { keys: testKeyRing() },
    claimCheck: { store: fileStore({ folder: blobs }), threshold: 20_000 },
    ...(transport === undefined ? {} : { transport }),
  };
  const bus: Bus = createBus(options);
  onTestFinished(async () => void (await bus.stop()));
  await database.pool.query(
    "create table seen (nr serial, consumer text, who text, n integer, email text, plan text)",
  );
  const note = "insert into seen (consumer, who, n, email, plan) values ($1, $2, $3, $4, $5)";
  const computeDigest = (email: unknown): string =>
    typeof email === "string"
      ? createHash("sha256").update(email).digest("hex")
      : isErased(email)
        ? "erased"
        : "sealed";
  bus.on(Booked, { consumer: "steady" }, async ({ data: { who, n, email, plan } }, { tx, attempt }) => {
    if (attempt === 1 && n % 4 === 1) throw new Error(`mail to ${JSON.stringify(email)} bounced`);
    await tx.query(note, ["steady", who, n, computeDigest(email), plan]);
  });
  bus.on(Booked, { consumer: "strict" }, async ({ data: { who, n, email, bank, guests, plan } }, { tx }) => {
    const whose = [
      email,
      ...guests.map(({ name }) => name),
      isErased(bank) || !("iban" in bank) ? "" : bank.iban,
    ];
    if (!repaired) throw permanent(`no account for ${JSON.stringify(whose)}`);
    await tx.query(note, ["strict", who, n, computeDigest(email), plan]);
  });
  bus.on(Check, { consumer: "checker" }, () => ({ ok: true }));
  bus.register(checking);
  await bus.run();
  const seen = async (consumer: string) => {
    const sql = "select who, n, email, plan from seen where consumer = $1 order by nr";
    type Row = { readonly who: string; readonly n: number; readonly email: string; readonly plan: string };
    return (await database.pool.query<Row>(sql, [consumer])).rows;
  };
  return {
    bus,
    blobs,
    lines,
    traces,
    seen,
    repair: () => void (repaired = true),
    settled: ({ letters, ...counts }: Readonly<Record<string, number>>) =>
      until(async () => {
        for (const [consumer, wanted] of Object.entries(counts))
          if ((await seen(consumer)).length !== wanted) return false;
        const sagas = await bus.sagas.list();
        return (
          (await bus.deadLetters.list({ limit: 100, open: true })).length === letters &&
          sagas.every(({ status }) => ["completed", "compensated", "failed"].includes(status))
        );
      }, 90_000),
  };
}
