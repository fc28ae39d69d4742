import { KeyCache, type DataKey } from "../../src/privacy/key-cache.ts";
import { FieldCipher, type Binding } from "../../src/privacy/field-cipher.ts";
import { privacyStatements } from "../../src/privacy/statements.ts";
import { SubjectKeys } from "../../src/privacy/subject-keys.ts";
import { pgDatabase } from "../../src/storage/index.ts";
import { filesBelow, readIfThere } from "./canary.ts";
import type { TemporaryDatabase } from "./database.ts";
import { testKeyRing } from "./data-subjects.ts";

/** Where copies lie: folders by name. The tables are looked through anyway. */
type Folders = Readonly<Record<string, string | undefined>>;

interface Attempt {
  readonly binding: Binding;
  readonly place: readonly (string | number)[];
}

const TOKEN = /1\.([A-Za-z0-9_-]{22})\.[A-Za-z0-9_-]{16}\.[A-Za-z0-9_-]{22,}/g;
const fields = [["email"], ["bank"], ["guests", 0, "name"], ["scan"]] as const;
const sagaTexts = ["state", "note", "cause", "drawn", "changes"];
const VERSIONS = 10;

/**
 * What any key that still exists can open, whatever key a sealed value names and wherever a copy of it lies: by the id of
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
      return [["input"], ["mail"], ...texts].map((place) => ({ binding, place }));
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
