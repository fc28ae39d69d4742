import { expect, test } from "vitest";
import { checkHeaders } from "./headers.ts";
import { replyContract, replyHeader, readReplyTopic, replyTopicFor } from "./reply.ts";
import { isValidTopic } from "./contract.ts";
import { validate } from "./validate.ts";

test.each(["orders", "Bestellungen & Größen", "a/b", "x".repeat(255)])(
  "B8: the replies of service %s have a topic that every transport can carry",
  (service) => {
    expect(isValidTopic(replyTopicFor(service))).toBe(true);
  },
);

test("B8: replies are sent only to reply topics, and callers cannot set one", () => {
  expect(readReplyTopic({ [replyHeader]: "replies.orders" })).toBe("replies.orders");
  for (const topic of ["commands.stock.reserve", "replies.a b", "", undefined]) {
    expect(readReplyTopic(topic === undefined ? {} : { [replyHeader]: topic })).toBeUndefined();
  }
  expect(() => checkHeaders({ [replyHeader]: "replies.orders" })).toThrow("reserved");
});

test.each([
  [{ requestId: "r", outcome: "done" }, true],
  [{ requestId: "r", outcome: "done", reply: { any: ["thing"] } }, true],
  [{ requestId: "r", outcome: "failed", reason: "exhausted", error: "no" }, true],
  [{ requestId: "r", outcome: "failed" }, false],
  [{ requestId: "r", outcome: "perhaps" }, false],
  [{ requestId: "", outcome: "done" }, false],
  [null, false],
])("B8: %j is a reply: %s", (body, good) => {
  const check = () => validate(replyContract("replies.x"), body);
  if (good) expect(check()).toEqual(body);
  else expect(check).toThrow("must be a reply");
});
