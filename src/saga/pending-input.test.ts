import { expect, test } from "vitest";
import type { Queryable } from "../storage/index.ts";
import type { SagaInput } from "./input.ts";
import { encodePendingInput, decodePendingInput, withoutFields } from "./pending-input.ts";
import type { UnreadableReason, SubjectCipher, SagaVault } from "./subject-cipher.ts";

const seal: SubjectCipher = {
  subject: "bob",
  encrypt: (text) => ({ $sealed: Buffer.from(text).toString("base64") }),
  decrypt: (sealed) => Buffer.from((sealed as { $sealed: string }).$sealed, "base64").toString(),
};
const vault = (found: SubjectCipher | UnreadableReason): SagaVault => ({
  forPerson: () => Promise.resolve(seal),
  find: () => Promise.resolve(found),
});
const tx: Queryable = { run: () => Promise.reject(new Error("nothing is asked here")) };
const by = { actor: "clerk", reason: "asked" };
const erased = { $erased: true };
const work = { kind: "worked", stepPath: "pay", undo: false, epoch: 1, attempt: 2 } as const;

const inputs: [SagaInput, SagaInput][] = [
  [
    { kind: "child", childId: "c", end: "completed", results: { to: "Bob" } },
    { kind: "child", childId: "c", end: "completed", results: erased },
  ],
  [
    { kind: "child", childId: "c", end: "compensated" },
    { kind: "child", childId: "c", end: "compensated" },
  ],
  [
    { kind: "reply", requestId: "r", outcome: { kind: "done", result: "Bob" } },
    { kind: "reply", requestId: "r", outcome: { kind: "done", result: erased } },
  ],
  [
    { ...work, outcome: { kind: "failed", error: "Bob is out", certain: true } },
    { ...work, outcome: { kind: "failed", error: "[erased]", certain: true } },
  ],
  [
    { kind: "event", id: "e", type: "t", data: { name: "Bob" } },
    { kind: "event", id: "e", type: "t", data: erased },
  ],
  [
    { kind: "settle", stepPath: "pay", result: "Bob", by },
    { kind: "settle", stepPath: "pay", result: erased, by },
  ],
];

test.each(inputs)("pending input %j keeps its frame when its subject is erased", async (input, left) => {
  const text = encodePendingInput(seal, "l", input);
  expect(text).not.toContain("Bob");
  expect(await decodePendingInput(vault(seal), "l", text, tx)).toEqual(input);
  expect(await decodePendingInput(vault("erased"), "l", text, tx)).toEqual(left);
  await expect(decodePendingInput(vault("sealed"), "l", text, tx)).rejects.toMatchObject({
    code: "PRIVACY_KEYS_UNAVAILABLE",
  });
});

test("personal fields are erased wherever their paths lead, and nothing else", () => {
  const data = { a: { b: 1, c: 2 }, list: [{ n: "x", s: 1 }, "y"], map: { k: { v: 1 } }, plain: null };
  expect(withoutFields(data, ["a.b", "list.*.n", "map.*", "plain.x", "none", "list.1"])).toEqual({
    a: { b: erased, c: 2 },
    list: [{ n: erased, s: 1 }, erased],
    map: { k: erased },
    plain: null,
  });
});
