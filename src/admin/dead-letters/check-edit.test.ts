import { expect, test } from "vitest";
import { findPersonalProblem } from "./edit-dead-letter.ts";

const sealed = { $sealed: "1.key.nonce.bytes" };
const before = { id: "c1", email: sealed, guests: [{ name: sealed, seat: 1 }], gone: { $erased: true } };
const problem = (after: object, fields: string[] = []) =>
  findPersonalProblem(before, after as never, {}, fields);

test("what is not personal may change, what is sealed or erased may not, be moved, or be left out", () => {
  expect(problem({ ...before, id: "c2" })).toBeUndefined();
  expect(problem({ ...before, email: "eve@example.org" })).toContain("email is personal and sealed");
  expect(problem({ ...before, email: { $sealed: "1.key.nonce.other" } })).toContain("email is personal");
  expect(problem({ ...before, guests: [{ seat: 2 }, { name: sealed, seat: 1 }] })).toContain("guests.0.name");
  expect(problem({ ...before, gone: "back" })).toContain("gone is personal");
});

test("a seal from somewhere else, and a personal field in clear, are refused", () => {
  expect(problem({ ...before, copy: sealed })).toBe("copy is a sealed value that was not there before");
  expect(problem({ ...before, phone: "123" }, ["phone"])).toContain(
    "phone is personal, and cannot be written",
  );
});
