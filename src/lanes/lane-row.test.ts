import { expect, test } from "vitest";
import { sampleMessage } from "../../test/support/sample-message.ts";
import { laneRow, messageOf, type RawMessage, type RawRow } from "./lane-row.ts";

const raw: RawRow = {
  horizon: "1",
  tail: "9",
  express: false,
  lane: 3,
  seq: "9007199254740991",
  stream: "-8446744073709551615",
  message_id: sampleMessage.id,
  attempts: 2,
  max_attempts: 10,
  wait_ms: -5,
  leased: false,
  expired: true,
  type: sampleMessage.type,
  topic: sampleMessage.topic,
  priority: sampleMessage.priority,
  written_on: "2026-11-15",
  expires_at: sampleMessage.expiresAt,
};

const rawMessage: RawMessage = {
  id: sampleMessage.id,
  kind: sampleMessage.kind,
  type: sampleMessage.type,
  topic: sampleMessage.topic,
  key: sampleMessage.key,
  priority: sampleMessage.priority,
  data: sampleMessage.data,
  headers: JSON.stringify(sampleMessage.headers),
  meta: [
    sampleMessage.schemaVersion,
    sampleMessage.correlationId,
    sampleMessage.causationId,
    sampleMessage.traceparent,
    sampleMessage.sagaId,
    sampleMessage.aggregateType,
    sampleMessage.aggregateId,
    sampleMessage.source,
    sampleMessage.target,
    sampleMessage.writtenAt,
  ].join("\u001f"),
};

test("a message is put together again unchanged, and expires when its row says so", () => {
  expect(messageOf(rawMessage, sampleMessage.expiresAt)).toEqual(sampleMessage);
  expect(messageOf(rawMessage, null)).toEqual({ ...sampleMessage, expiresAt: null });
});

test("a row keeps numbers too big for a number as text", () => {
  const row = laneRow(raw);
  expect(row).toMatchObject({ lane: 3, seq: 9007199254740991, stream: "-8446744073709551615", attempts: 2 });
  expect(row).toMatchObject({ waitMs: -5, expired: true, leased: false, maxAttempts: 10, message: null });
});
