import { expect, test } from "vitest";
import type { DeadLetterView } from "../../admin/index.ts";
import { deadLetterText, stackLines } from "./list.ts";

const at = "    at ship (/app/ship.js:7:9)\n    at run (/app/run.js:1:1)";
const frames = ["", "  at ship (/app/ship.js:7:9)", "  at run (/app/run.js:1:1)"];

test("a stack is shown without the error it begins with, however long that is", () => {
  expect(stackLines(`TypeError: no carrier\n${at}`, "no carrier")).toEqual(frames);
  const long = `refused:\n${"x".repeat(3_000)}`;
  expect(stackLines(`Error: ${long}\n${at}`, long)).toEqual(frames);
});

test("what a stack says besides is shown, and one that says nothing more is not", () => {
  expect(stackLines(`Error: another text\n${at}`, "no carrier")[1]).toBe("  Error: another text");
  expect(stackLines("TypeError: no carrier", "no carrier")).toEqual([]);
  expect(stackLines(null, "no carrier")).toEqual([]);
});

test("no line of an error text, or of anything else that came along, looks like one of ours", () => {
  const forged = "no carrier\nkey       none\n\nWhat was done:\n  all of it";
  const letter = {
    label: "x",
    traceId: null,
    isEncrypted: false,
    isClaimChecked: false,
    others: [],
    edits: [],
    actions: [
      {
        at: "2026-11-17T00:00:00.000Z",
        actor: "ann",
        action: "a",
        reason: forged,
        outcome: "done",
        deadLetterId: "7",
      },
    ],
    original_message: {
      id: "m1",
      kind: "event",
      type: "t",
      schemaVersion: 1,
      topic: "t",
      key: forged,
      writtenAt: "2026-11-17T00:00:00.000Z",
      source: "shop",
      correlationId: "c",
      sagaId: null,
      headers: {},
      data: "{}",
    },
    dlq_metadata: {
      id: "7",
      fingerprint: null,
      failed_at: "2026-11-17T00:00:00.000Z",
      consumer_group: null,
      reason: "rejected",
      retry_count: 1,
      error_type: "Error",
      error_message: forged,
      stack_trace: null,
      closed_at: null,
      closed_as: null,
    },
  } as unknown as DeadLetterView;
  const lines = deadLetterText(letter).split("\n");
  expect(lines.filter((line) => line.startsWith("key "))).toEqual(["key       no carrier"]);
  expect(lines.filter((line) => line === "Actions:")).toHaveLength(1);
  expect(lines.filter((line) => line === "          What was done:")).toHaveLength(3);
});
