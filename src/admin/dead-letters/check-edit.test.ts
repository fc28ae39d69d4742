import { expect, test } from "vitest";
import { findPersonalProblem } from "./dead-letter-actions.ts";

const sealed = { $sealed: "1.key.nonce.bytes" };
const before = { id: "c1", email: sealed, guests: [{ name: sealed, seat: 1 }], gone: { $erased: true } };
const problem = (after: object, fields: string[] = []) =>
  findPersonalProblem(before, after as never, {}, fields);

test("an edit may change only values that are neither encrypted nor erased", () => {
  expect(problem({ ...before, id: "c2" })).toBeUndefined();
  expect(problem({ ...before, email: "eve@example.org" })).toContain("email is personal and encrypted");
  expect(problem({ ...before, email: { $sealed: "1.key.nonce.other" } })).toContain("email is personal");
  expect(problem({ ...before, guests: [{ seat: 2 }, { name: sealed, seat: 1 }] })).toContain("guests.0.name");
  expect(problem({ ...before, gone: "back" })).toContain("gone is personal");
});

test("foreign encrypted values and unencrypted personal fields are refused", () => {
  expect(problem({ ...before, copy: sealed })).toBe("copy is an encrypted value that was not there before");
  expect(problem({ ...before, phone: "123" }, ["phone"])).toContain(
    "phone is personal, and an edit cannot store it unencrypted",
  );
});
