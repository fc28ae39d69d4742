import { expect, test } from "vitest";
import { readAttempt, deadLetterHeaders, readDueMs, toTextHeaders, retryHeaders } from "./record-headers.ts";

const raw = (headers: Record<string, string | Buffer>) =>
  Object.entries(headers).map(([name, value]) => [Buffer.from(name), Buffer.from(value)] as const);

test("a record without retry headers is at its first attempt and due at once", () => {
  expect([readAttempt([]), readDueMs([])]).toEqual([1, 0]);
});

test.each(["", "0", "-3", "x", "1.5", "Infinity"])("an invalid attempt header (%j) is ignored", (value) => {
  expect(readAttempt(raw({ "sagabox-attempt": value }))).toBe(1);
});

test("a retry replaces the headers of an earlier retry and keeps all other bytes", () => {
  const bytes = Buffer.from([0, 255]);
  const before = raw({ "x-raw": bytes, "sagabox-attempt": "2", "sagabox-due": "5" });
  const after = [...retryHeaders(before, 3, 1_000.4)];
  expect(after.map(([name]) => name.toString())).toEqual(["x-raw", "sagabox-attempt", "sagabox-due"]);
  expect(after[0]?.[1]).toEqual(bytes);
  expect([readAttempt(after), readDueMs(after)]).toEqual([3, 1_001]);
});

test("retry headers are not passed to handlers", () => {
  expect(toTextHeaders(raw({ a: "1", "sagabox-attempt": "2", "sagabox-due": "5" }))).toEqual({ a: "1" });
});

test("E3: a dead letter has the headers of its note and no retry headers", () => {
  const note = { error_type: "E", error_message: "m", stack_trace: "s", retry_count: "4", failed_at: "f" };
  const rest = { source_topic: "t", consumer_group: "g", original_timestamp: "o" };
  const headers = deadLetterHeaders(raw({ a: "1", "sagabox-attempt": "5" }), { ...note, ...rest });
  expect(toTextHeaders([...headers])).toEqual({ a: "1", ...note, ...rest });
  expect(readAttempt([...headers])).toBe(1);
});

test("C2, D-08: a CloudEvents attribute that is not valid UTF-8 is marked as unreadable", () => {
  const headers = raw({ ce_id: Buffer.from([0x61, 0xff]), other: Buffer.from([0x61, 0xff]), ce_type: "t" });
  expect(toTextHeaders(headers)).toEqual({ ce_id: "\u0080a\uFFFD", other: "a\uFFFD", ce_type: "t" });
});
