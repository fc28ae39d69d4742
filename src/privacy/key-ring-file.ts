import { readFileSync, statSync } from "node:fs";
import { SagaboxError } from "../errors/index.ts";
import { systemClock } from "../runtime/index.ts";
import { KeyRing } from "./key-ring.ts";
import { parseKeyRing, type RingKeys } from "./key-ring-text.ts";

const CHECK_EVERY_MS = 1_000;
const MAX_BYTES = 65_536;

/**
 * A ring in a file, read again when the file changes or when a key is asked for that it did not hold. A file that
 * became unreadable or wrong later on changes nothing: the keys that were read last stay in use.
 */
export function keyRingFile(path: string): KeyRing {
  let known: { readonly keys: RingKeys; readonly version: string } | undefined;
  let lookedMs = 0;
  let isWarned = false;
  // A rotation that went wrong should not wait for the next start to be noticed.
  const warnOnce = (): void => {
    if (isWarned) return;
    isWarned = true;
    process.emitWarning(
      "The file of the key ring has become unreadable or wrong; the keys read before stay in use.",
      {
        code: "SAGABOX_KEY_RING_FILE",
      },
    );
  };
  return new KeyRing((unknownId) => {
    const nowMs = systemClock.monotonicMs();
    if (known !== undefined && unknownId === undefined && nowMs - lookedMs < CHECK_EVERY_MS)
      return known.keys;
    lookedMs = nowMs;
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
