import { SagaboxError } from "../errors/index.ts";
import { KEY_BYTES } from "./cipher.ts";
import type { KeyRingOptions } from "./key-ring.ts";

export interface RingKeys {
  readonly current: string;
  readonly keys: ReadonlyMap<string, Uint8Array>;
  readonly index: Uint8Array;
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const INDEX = "index";

/** Checks keys that are in hand. */
export function readKeyRing({ current, keys, index }: KeyRingOptions): RingKeys {
  const entries = Object.entries(keys).map(([id, key], nr) => ({ id, key, where: `keys, nr ${nr + 1}` }));
  return checkKeyRing(current, [...entries, { id: INDEX, key: index, where: "index" }]);
}

/** Reads lines of `id base64`: the first is current, the one named `index` is for blind indexes, `#` begins a remark. */
export function parseKeyRing(text: string): RingKeys {
  const lines = text
    .split(/[\n,;]/)
    .map((line, nr) => ({ line: line.trim(), where: `line ${nr + 1}` }))
    .filter(({ line }) => line !== "" && !line.startsWith("#"));
  const entries = lines.map(({ line, where }) => {
    const [id = "", key = "", ...rest] = line.split(/\s+/);
    return { id, key: rest.length > 0 ? "" : key, where };
  });
  return checkKeyRing(entries.find(({ id }) => id !== INDEX)?.id, entries);
}

interface Entry {
  readonly id: string;
  readonly key: string | Uint8Array;
  readonly where: string;
}

// Ids are not repeated in what is said: somebody may have swapped the two words of a line.
function checkKeyRing(current: string | undefined, entries: readonly Entry[]): RingKeys {
  const problems: string[] = [];
  const keys = new Map<string, Uint8Array>();
  const seen = new Map<string, string>();
  for (const { id, key, where } of entries) {
    const bytes = keyBytes(key);
    if (!NAME.test(id)) problems.push(`${where}: the name must match ${String(NAME)}`);
    if (keys.has(id)) problems.push(`${where}: the name occurs twice`);
    if (bytes === undefined) problems.push(`${where}: the key must be ${KEY_BYTES} bytes in base64`);
    else {
      const text = Buffer.from(bytes).toString("base64");
      if (new Set(bytes).size < 8) problems.push(`${where}: the key is not random`);
      const twin = seen.get(text);
      if (twin !== undefined) problems.push(`${where}: the key is the same as in ${twin}`);
      seen.set(text, where);
      keys.set(id, bytes);
    }
  }
  const index = keys.get(INDEX);
  keys.delete(INDEX);
  if (!entries.some(({ id }) => id === INDEX)) problems.push(`the key named "${INDEX}" is missing`);
  if (entries.every(({ id }) => id === INDEX)) problems.push("there is no key that wraps data keys");
  else if (current === undefined || (problems.length === 0 && !keys.has(current)))
    problems.push("`current` names none of the keys");
  if (problems.length > 0 || index === undefined || current === undefined) throw invalid(problems);
  return { current, keys, index };
}

function keyBytes(key: unknown): Uint8Array | undefined {
  if (key instanceof Uint8Array) return key.length === KEY_BYTES ? Uint8Array.from(key) : undefined;
  if (typeof key !== "string" || !/^[A-Za-z0-9+/_-]{43}=?$/.test(key)) return undefined;
  const bytes = Buffer.from(key, "base64");
  return bytes.length === KEY_BYTES ? bytes : undefined;
}

function invalid(problems: readonly string[]): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_INVALID",
    `The key ring cannot be used:\n- ${problems.join("\n- ")}\nMake a key with: openssl rand -base64 32`,
  );
}
