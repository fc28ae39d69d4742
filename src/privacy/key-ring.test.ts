import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inspect } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { isSagaboxError } from "../errors/index.ts";
import { keyRing, keyRingFile, parseKeyRing } from "./key-ring.ts";

const key = (): string => randomBytes(32).toString("base64");

function problemsOf(text: string): string {
  try {
    parseKeyRing(text);
    return "none";
  } catch (error) {
    if (!isSagaboxError(error, "PRIVACY_KEYS_INVALID")) throw error;
    return error.message;
  }
}

test("C6: the first key is current, `index` is for blind indexes, comments and empty lines are ignored", () => {
  const ring = parseKeyRing(`# keys\n\nb ${key()}\r\na ${key()}\nindex ${key()}\n`);
  expect([ring.current, [...ring.keys.keys()], ring.index.length]).toEqual(["b", ["b", "a"], 32]);
  expect(parseKeyRing(`a ${key()},index ${key()}`).current).toBe("a");
});

test("C6: every problem of a ring is listed with its position, and no key is shown", () => {
  const [good, short] = [key(), randomBytes(16).toString("base64")];
  const text = `a ${good}\na ${key()}\n!! ${key()}\nb ${short}\nc\nd ${good}\ne ${Buffer.alloc(32).toString("base64")}`;
  const said = problemsOf(text);
  for (const place of ["line 2", "line 3", "line 4", "line 5", "line 6", "line 7", '"index" is missing']) {
    expect(said).toContain(place);
  }
  expect([good, short].some((secret) => said.includes(secret))).toBe(false);
  expect(problemsOf("")).toContain("no key that wraps");
});

test("C6: a printed ring does not show its keys", () => {
  const secret = key();
  const ring = keyRing({ current: "a", keys: { a: secret }, index: key() });
  const printed = inspect(ring, { depth: 9, showHidden: true }) + JSON.stringify(ring);
  expect(printed).not.toContain(secret);
  expect(() => keyRing({ current: "z", keys: { a: secret }, index: key() })).toThrowError(/current/);
});

test("SEC-39: a wrapped key is unwrapped in its own row only, and a changed one not at all", async () => {
  const ring = keyRing({ current: "a", keys: { a: key(), b: key() }, index: key() });
  const dataKey = randomBytes(32);
  const wrapped = await ring.wrap(dataKey, "row 1");
  expect(Buffer.from((await ring.unwrap(wrapped, "row 1")) ?? [])).toEqual(dataKey);
  expect(await ring.unwrap(wrapped, "row 2")).toBeUndefined();
  const changed = Uint8Array.from(wrapped.wrapped);
  changed[30] = (changed[30] ?? 0) ^ 1;
  expect(await ring.unwrap({ ...wrapped, wrapped: changed }, "row 1")).toBeUndefined();
  expect(await ring.unwrap({ ...wrapped, wrapped: new Uint8Array(0) }, "row 1")).toBeUndefined();
});

test("C-11: another key under the same id, or no key, is a configuration error and not a broken encryption", async () => {
  const wrapped = await keyRing({ current: "a", keys: { a: key() }, index: key() }).wrap(randomBytes(32), "");
  for (const keys of [{ a: key() }, { b: key() }]) {
    const [current = ""] = Object.keys(keys);
    const other = keyRing({ current, keys, index: key() });
    await expect(other.unwrap(wrapped, "")).rejects.toMatchObject({ code: "PRIVACY_KEYS_UNAVAILABLE" });
  }
});

test("C-11: a file is read again when a key is missing; an invalid file changes nothing", async () => {
  const folder = mkdtempSync(join(tmpdir(), "ring-"));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const path = join(folder, "ring");
  const [a, b, index] = [key(), key(), key()];
  writeFileSync(path, `a ${a}\nindex ${index}`);
  const ring = keyRingFile(path);
  const elsewhere = keyRing({ current: "b", keys: { a, b }, index });
  const wrapped = await elsewhere.wrap(randomBytes(32), "");
  await expect(ring.unwrap(wrapped, "")).rejects.toMatchObject({ code: "PRIVACY_KEYS_UNAVAILABLE" });
  writeFileSync(path, `b ${b}\na ${a}\nindex ${index}`);
  expect(await ring.unwrap(wrapped, "")).toHaveLength(32);
  expect(ring.currentKeyId()).toBe("b");
  writeFileSync(path, "nonsense");
  const warning = once(process, "warning");
  expect(await ring.unwrap(wrapped, "")).toHaveLength(32);
  await expect(ring.unwrap({ ...wrapped, keyId: "c" }, "")).rejects.toThrow();
  expect(await warning).toMatchObject([{ code: "SAGABOX_KEY_RING_FILE" }]);
  expect(() => keyRingFile(join(folder, "none"))).toThrowError(/SAGABOX_KEY_RING_FILE/);
});
