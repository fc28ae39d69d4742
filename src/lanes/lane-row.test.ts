import { expect, test } from "vitest";
import { sampleMessage } from "../../test/support/sample-message.ts";
import { laneRow, type RawRow } from "./lane-row.ts";

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
  kind: sampleMessage.kind,
  type: sampleMessage.type,
  topic: sampleMessage.topic,
  key: sampleMessage.key,
  data: sampleMessage.data,
  headers: JSON.stringify(sampleMessage.headers),
  priority: sampleMessage.priority,
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
    sampleMessage.expiresAt,
  ].join("\u001f"),
};

test("a row carries its message unchanged, and keeps numbers too big for a number as text", () => {
  const row = laneRow(raw);
  expect(row.message).toEqual(sampleMessage);
  expect(row).toMatchObject({ lane: 3, seq: 9007199254740991, stream: "-8446744073709551615", attempts: 2 });
  expect(row).toMatchObject({ waitMs: -5, expired: true, leased: false, maxAttempts: 10 });
});

test("a row whose message is gone, or was not asked for, has none", () => {
  expect(laneRow({ ...raw, kind: null }).message).toBeNull();
  const { kind: _, ...bare } = raw;
  expect(laneRow(bare).message).toBeNull();
});
