import { expect, test } from "vitest";
import { permanent, verdictOf } from "../errors/index.ts";
import { redact } from "./redact.ts";

test("C-15: personal texts leave the message, the stack and the causes, and the error stays what it was", () => {
  const cause = Object.assign(new Error("duplicate key"), { detail: "Key (mail)=(ada@example.org) exists" });
  const error = permanent("no account for ada@example.org", { cause });
  redact(error, ["ada@example.org"]);
  expect(`${error.message} ${error.stack} ${cause.detail}`).not.toContain("ada@");
  expect(error.message).toBe("no account for [personal]");
  expect(verdictOf(error)).toMatchObject({ kind: "permanent" });
});

test("very short texts are left alone: taking every «a» out would make an error unreadable", () => {
  const error = new Error("a b c");
  redact(error, ["a"]);
  expect(error.message).toBe("a b c");
});

test("a frozen error is no reason to fail", () => {
  const error = Object.freeze(new Error("about ada@example.org"));
  expect(() => redact(error, ["ada@example.org"])).not.toThrow();
});
