import { randomBytes } from "node:crypto";
import { isSagaboxError } from "sagabox";
import { keyRing } from "sagabox/privacy";
import { expect, test } from "vitest";
import { Payloads } from "../../src/app/payloads.ts";
import { isValidId, type AnyContract, type Message } from "../../src/message/index.ts";
import { BlindIndex } from "../../src/privacy/blind-index.ts";
import { KeyCache } from "../../src/privacy/key-cache.ts";
import { MessageCipher } from "../../src/privacy/message-cipher.ts";
import { privacyStatements } from "../../src/privacy/statements.ts";
import { SubjectKeys } from "../../src/privacy/subject-keys.ts";
import type { Queryable } from "../../src/storage/index.ts";
import {
  cloudEventBindings,
  fromWire,
  toWire,
  type WireForm,
  type WireMessage,
} from "../../src/transport/index.ts";
import { aMessage } from "../support/messages.ts";
import { seededRandom, withoutStacks } from "../support/random-data.ts";

/** A tenth of them in a quick run. */
const RUNS = process.env["TEST_REQUIRE"] === "all" ? 100_000 : 10_000;
const clear = { who: "ada", email: "ada@example.org", plan: "gold", list: [1, 2, 3] };
const contract = {
  personal: { subject: () => "ada", fields: ["email"] },
  name: "order.placed",
  kind: "event",
};

/** Keys in memory, in the place of the table. */
function seal(): MessageCipher {
  const rows: Record<string, unknown>[] = [];
  const database: Queryable = {
    run: (statement, params = []) => {
      if (statement.name.includes("add")) {
        const [key_id, subject, wrapped, kek_id] = params;
        rows.push({ key_id, subject, wrapped, kek_id, own: false });
      }
      const asked = JSON.stringify(params);
      const found = rows.filter(
        (row) => asked.includes(String(row["key_id"])) || asked.includes(String(row["subject"])),
      );
      return Promise.resolve({ rows: found as never[], rowCount: found.length, command: "SELECT" });
    },
  };
  const ring = keyRing({ current: "k", keys: { k: randomBytes(32) }, index: randomBytes(32) });
  const cache = new KeyCache({ ttlMs: 60_000, size: 10 });
  const sql = privacyStatements("sagabox");
  const guard = { note: () => Promise.resolve() };
  const keys = new SubjectKeys({ database, sql, wrapper: ring, cache, guard, wrapperMs: 1_000 });
  return new MessageCipher(keys, new BlindIndex(() => ring.indexKey));
}

async function sealedMessage(by: MessageCipher): Promise<Message> {
  const names = { id: "m-1", type: "order.placed" };
  const sealed = await by.seal(contract as unknown as AnyContract, names, clear, undefined);
  return aMessage({
    id: names.id,
    data: JSON.stringify(sealed.data),
    headers: { ...sealed.headers, "x-a": "b" },
  });
}

/** A flipped bit, something cut out, doubled, moved or put in, once or a few times. */
function damageBytes(bytes: Buffer, random: () => number): Buffer {
  let body = Buffer.from(bytes);
  for (let times = 1 + Math.floor(random() * 3); times > 0; times--) {
    const at = Math.floor(random() * body.length);
    const to = Math.min(body.length, at + Math.floor(random() * 12));
    const way = Math.floor(random() * 5);
    if (way === 0) body.writeUInt8((body[at] ?? 0) ^ (1 << Math.floor(random() * 8)), at);
    else if (way === 1) body = Buffer.concat([body.subarray(0, at), body.subarray(to)]);
    else if (way === 2) body = Buffer.concat([body.subarray(0, to), body.subarray(at)]);
    else if (way === 3)
      body = Buffer.concat([
        body.subarray(0, at),
        Buffer.from(pieces[to % pieces.length] ?? ""),
        body.subarray(at),
      ]);
    else body = Buffer.concat([body.subarray(to), body.subarray(0, at)]);
    if (body.length === 0) return Buffer.from("{");
  }
  return body;
}

const pieces = [
  '"',
  "{",
  "}",
  "\\u0000",
  "\ud83d",
  '"$sealed":',
  '"__proto__":1,',
  "null",
  "1e999",
  "\0",
  ",",
];
const forms: readonly (WireForm | undefined)[] = [
  undefined,
  { format: "cloudevents-structured", binding: cloudEventBindings.kafka },
  { format: "cloudevents-binary", binding: cloudEventBindings.kafka },
];

test(
  `C1, C2, C6: ${RUNS} damaged messages: none crashes, none is opened to something that was not sealed`,
  { timeout: 300_000 },
  async () => {
    withoutStacks();
    const by = seal();
    const message = await sealedMessage(by);
    const noShelf = {
      maxBytes: 1_048_576,
      deposit: () => ({ data: "", headers: {} }),
      fetch: () => Promise.reject(new Error("none")),
    };
    const payloads = new Payloads(noShelf, by);
    const wires = forms.map((form) => toWire(message, form));
    const random = seededRandom(5);
    const ends = new Map<string, number>();
    const count = (end: string): void => void ends.set(end, (ends.get(end) ?? 0) + 1);
    for (let n = 0; n < RUNS; n++) {
      const wire = wires[n % wires.length] as WireMessage;
      const received = fromWire({ ...wire, body: damageBytes(wire.body, random), topic: "t", key: null });
      if (!isValidId(received.message.id)) count("no id");
      if (received.flaw !== undefined) {
        count(isSagaboxError(received.flaw) ? "flaw" : "untyped flaw");
        continue;
      }
      try {
        const { data, hidden } = await payloads.unpack(contract as unknown as AnyContract, received.message);
        const { email } = (data ?? {}) as { email?: unknown };
        if (hidden.length > 0) count("hidden");
        else if (email === undefined) count("without");
        else if (email === clear.email && received.message.id === message.id) count("opened");
        else if (typeof email === "object") count("still sealed");
        else expect(received.message.headers).not.toHaveProperty("sagabox-sealed"); // in clear, and no header claims otherwise
      } catch (error) {
        if (!isSagaboxError(error)) throw error;
        count(error.code);
      }
    }
    expect([ends.get("no id"), ends.get("untyped flaw")]).toEqual([undefined, undefined]);
    expect(ends.get("flaw")).toBeGreaterThan(RUNS / 4);
    expect(ends.get("PRIVACY_SEAL_BROKEN")).toBeGreaterThan(100);
    expect(ends.get("opened")).toBeGreaterThan(100); // damage elsewhere does not hurt what is sealed
    expect(Object.keys(Object.prototype)).toEqual([]);
  },
);
