import { expect, test } from "vitest";
import { fitNote } from "./subscriber.ts";
import { headerBytes } from "./header-mapping.ts";

const note = {
  error_type: "TypeError",
  error_message: "no ".repeat(500),
  stack_trace: "at x\n".repeat(1_000),
  retry_count: "4",
  failed_at: "2026-01-02T03:04:05.678Z",
  source_topic: "events.order.placed",
  consumer_group: "billing",
  original_timestamp: "2026-01-02T03:04:05.678Z",
};

test("E3: the dead-letter headers are complete if there is room", () => {
  expect(fitNote(note, 100_000)).toEqual(note);
});

test("E3: with less room the stack is shortened, never the facts; with no room the message is copied without them", () => {
  for (const room of [6_000, 1_500, 400]) {
    const kept = fitNote(note, room);
    expect(headerBytes(kept)).toBeLessThanOrEqual(room);
    expect(kept).toMatchObject({ error_type: "TypeError", retry_count: "4", consumer_group: "billing" });
    expect(note.stack_trace.startsWith(kept["stack_trace"] ?? "?")).toBe(true);
  }
  expect(fitNote(note, 50)).toEqual({});
});
