import { createHmac, timingSafeEqual } from "node:crypto";
import { readFileSync, statSync } from "node:fs";
import { SagaboxError } from "../errors/index.ts";
import { randomBytes, systemClock } from "../runtime/index.ts";
import { decrypt, encrypt, KEY_BYTES, NONCE_BYTES } from "./cipher.ts";

/** A data key as stored in the database: encrypted by a wrapping key that is never stored there. */
export interface WrappedKey {
  /** The id of the wrapping key. */
  readonly keyId: string;
  readonly wrapped: Uint8Array;
}

/**
 * Wraps and unwraps data keys: a `KeyRing`, or a key management service. Its errors count as outages, not as attempts of
 * a message. `context` is not secret: pass it as the encryption context, so that a wrapped key is bound to its row.
 */
export interface KeyWrapper {
  /** The id of the key that wraps new data keys. Read again by each rewrap. */
  currentKeyId(): string | Promise<string>;
  wrap(dataKey: Uint8Array, context: string): Promise<WrappedKey>;
  /** Returns undefined if the wrapped key was changed, or was wrapped with another context. */
  unwrap(wrapped: WrappedKey, context: string): Promise<Uint8Array | undefined>;
}

export interface RingKeys {
  readonly current: string;
  readonly keys: ReadonlyMap<string, Uint8Array>;
  readonly index: Uint8Array;
}

const NAME = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/;
const INDEX = "index";

/** Reads and checks a key ring given as options. Throws PRIVACY_KEYS_INVALID. */
export function readKeyRing({ current, keys, index }: KeyRingOptions): RingKeys {
  const entries = Object.entries(keys).map(([id, key], index) => ({
    id,
    key,
    where: `keys, index ${index + 1}`,
  }));
  return checkKeyRing(current, [...entries, { id: INDEX, key: index, where: "index" }]);
}

/**
 * Parses a key ring from lines of `id base64`. The first key is current, the key named `index` is for blind indexes, and
 * lines with `#` are comments. Throws PRIVACY_KEYS_INVALID.
 */
export function parseKeyRing(text: string): RingKeys {
  const lines = text
    .split(/[\n,;]/)
    .map((line, index) => ({ line: line.trim(), where: `line ${index + 1}` }))
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

// Error messages do not contain ids, because an operator may have swapped the id and the key of a line.
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

const FORMAT = 1;
const FINGERPRINT_BYTES = 8;

/** Options of `keyRing()`. Each key has 32 bytes, given as bytes or base64. */
export interface KeyRingOptions {
  /** The id of the key that wraps new data keys. */
  readonly current: string;
  /** All wrapping keys that are still needed, by id. */
  readonly keys: Readonly<Record<string, string | Uint8Array>>;
  /** The key of blind indexes. With another key, the data of existing subjects is not found. */
  readonly index: string | Uint8Array;
}

/** Wraps data keys with keys that this process has, from options, the environment or a file. */
export class KeyRing implements KeyWrapper {
  readonly #read: (unknownId?: string) => RingKeys;

  /** `read` is called for each use, and again with the id if a key is not found. */
  constructor(read: (unknownId?: string) => RingKeys) {
    this.#read = read;
    read();
  }

  get indexKey(): Uint8Array {
    return this.#read().index;
  }

  currentKeyId(): string {
    return this.#read().current;
  }

  // oxlint-disable-next-line typescript/require-await -- the port is asynchronous, for services that are far away
  async wrap(dataKey: Uint8Array, context: string): Promise<WrappedKey> {
    const { current } = this.#read();
    const key = this.#key(current);
    const nonce = randomBytes(NONCE_BYTES);
    const encrypted = encrypt({ key, nonce, bound: bindingText(current, context) }, dataKey);
    return {
      keyId: current,
      wrapped: Buffer.concat([Buffer.from([FORMAT]), fingerprint(key), nonce, encrypted]),
    };
  }

  // oxlint-disable-next-line typescript/require-await
  async unwrap({ keyId, wrapped }: WrappedKey, context: string): Promise<Uint8Array | undefined> {
    const key = this.#key(keyId);
    if (wrapped[0] !== FORMAT || wrapped.length < 1 + FINGERPRINT_BYTES + NONCE_BYTES) return undefined;
    const print = wrapped.subarray(1, 1 + FINGERPRINT_BYTES);
    if (!timingSafeEqual(print, fingerprint(key))) throw wrongKeyError(keyId);
    const nonce = wrapped.subarray(1 + FINGERPRINT_BYTES, 1 + FINGERPRINT_BYTES + NONCE_BYTES);
    const encrypted = wrapped.subarray(1 + FINGERPRINT_BYTES + NONCE_BYTES);
    return decrypt({ key, nonce, bound: bindingText(keyId, context) }, encrypted);
  }

  #key(id: string): Uint8Array {
    const key = this.#read().keys.get(id) ?? this.#read(id).keys.get(id);
    if (key !== undefined) return key;
    throw new SagaboxError(
      "PRIVACY_KEYS_UNAVAILABLE",
      `The key ring of this process has no key ${JSON.stringify(id)}. Add it to the ring. Old keys must stay until all data keys are rewrapped.`,
    );
  }
}

/** Creates a key ring. Throws PRIVACY_KEYS_INVALID with all problems at once, without the keys themselves. */
export function keyRing(options: KeyRingOptions): KeyRing {
  const keys = readKeyRing(options);
  return new KeyRing(() => keys);
}

function bindingText(keyId: string, context: string): string {
  return JSON.stringify(["sagabox.data-key", FORMAT, keyId, context]);
}

// Distinguishes a wrong key under the same id, which is a configuration error, from a wrapped key that was changed.
function fingerprint(key: Uint8Array): Uint8Array {
  return createHmac("sha256", key).update("sagabox.key-fingerprint").digest().subarray(0, FINGERPRINT_BYTES);
}

function wrongKeyError(id: string): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_UNAVAILABLE",
    `Key ${JSON.stringify(id)} of this process is not the key that wrapped the data keys under this id. Restore the old key under its id.`,
  );
}

const CHECK_EVERY_MS = 1_000;
const MAX_BYTES = 65_536;

/**
 * Reads a key ring from a file, and again when the file changes or a key is not found. If the file becomes unreadable or
 * invalid later, a warning is emitted and the last keys stay in use. Throws PRIVACY_KEYS_INVALID at the first read.
 */
export function keyRingFile(path: string): KeyRing {
  let known: { readonly keys: RingKeys; readonly version: string } | undefined;
  let checkedMs = 0;
  let isWarned = false;
  // Reports a failed key rotation before the next start.
  const warnOnce = (): void => {
    if (isWarned) return;
    isWarned = true;
    process.emitWarning(
      "The key ring file has become unreadable or invalid. The keys read before stay in use.",
      {
        code: "SAGABOX_KEY_RING_FILE",
      },
    );
  };
  return new KeyRing((unknownId) => {
    const nowMs = systemClock.monotonicMs();
    if (known !== undefined && unknownId === undefined && nowMs - checkedMs < CHECK_EVERY_MS)
      return known.keys;
    checkedMs = nowMs;
    try {
      const version = readVersion(path);
      if (known?.version !== version) known = { keys: parseKeyRing(readContents(path)), version };
      isWarned = false;
    } catch (error) {
      if (known === undefined) throw error instanceof SagaboxError ? error : unreadableFile(error);
      warnOnce();
    }
    return known.keys;
  });
}

function readVersion(path: string): string {
  const { mtimeMs, size, ino } = statSync(path);
  if (size > MAX_BYTES) throw unreadableFile(undefined);
  return `${mtimeMs}/${size}/${ino}`;
}

function readContents(path: string): string {
  return readFileSync(path, "utf8");
}

function unreadableFile(cause: unknown): SagaboxError {
  return new SagaboxError(
    "PRIVACY_KEYS_INVALID",
    "The file of the key ring cannot be read. See SAGABOX_KEY_RING_FILE.",
    cause === undefined ? {} : { cause },
  );
}
