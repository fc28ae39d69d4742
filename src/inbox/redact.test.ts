import { expect, test } from "vitest";
import { describeFailure } from "../dead-letter/index.ts";
import { permanent, readVerdict } from "../errors/index.ts";
import { toHandlerError } from "./receive-once.ts";
import { redact } from "./redact.ts";

test("C-15: personal data is removed from the message, the stack and the causes, and the error keeps its class", () => {
  const cause = Object.assign(new Error("duplicate key"), { detail: "Key (mail)=(ada@example.org) exists" });
  const error = permanent("no account for ada@example.org", { cause });
  redact(error, ["ada@example.org"]);
  expect(`${error.message} ${error.stack} ${cause.detail}`).not.toContain("ada@");
  expect(error.message).toBe("no account for [personal]");
  expect(readVerdict(error)).toMatchObject({ kind: "permanent" });
});

test("very short texts are kept: without every «a» an error would be unreadable", () => {
  const error = new Error("a b c");
  redact(error, ["a"]);
  expect(error.message).toBe("a b c");
});

test("C-15: personal data is removed from a cause that is not an error", () => {
  const error = new Error("mail failed", { cause: "no mailbox ada@example.org" });
  expect(describeFailure(redact(error, ["ada@example.org"])).errorMessage).toBe(
    "mail failed ← no mailbox [personal]",
  );
});

test("C-15: a thrown string is shown like the message of an error", () => {
  const error = redact(toHandlerError("no mailbox ada@example.org"), ["ada@example.org"]);
  expect(describeFailure(error)).toMatchObject({
    errorType: "HANDLER_FAILED",
    errorMessage: "A handler threw a string instead of an error: no mailbox [personal]",
  });
  expect(error.stack).not.toContain("ada@");
  expect(toHandlerError({ card: "4111" }).message).toBe(
    "A handler threw something that is not an error (object).",
  );
});

test("an error that cannot be changed is replaced", () => {
  const error = Object.freeze(new Error("about ada@example.org"));
  expect(redact(error, ["ada@example.org"]).message).toBe("about [personal]");
  expect(redact(error, [])).toBe(error);
});
