import { expect, test } from "vitest";
import { sampleMessage } from "../../test/support/messages.ts";
import { SagaboxError } from "../errors/index.ts";
import { aRow } from "../../test/support/lanes.ts";
import { isWhole, messageFor, packedMessages, PackedRow } from "./lane-row.ts";

const packed = (...fields: readonly (string | number | null)[]): string => fields.join("\u001f");

const row = packed(
  3,
  "9007199254740991",
  "-8446744073709551615",
  sampleMessage.topic,
  sampleMessage.type,
  sampleMessage.id,
  "2026-11-15",
  "(12,34)",
  "2/12",
  -5,
  "",
  1,
  "2026-11-15 08:09:10.5",
);

const usual = [
  sampleMessage.id,
  "2026-11-15",
  sampleMessage.key,
  sampleMessage.correlationId,
  sampleMessage.traceparent,
  sampleMessage.source,
  sampleMessage.writtenAt.replace("T", " ").replace("Z", ""),
];

const message = packed(
  ...usual,
  sampleMessage.kind,
  sampleMessage.priority,
  sampleMessage.schemaVersion,
  sampleMessage.causationId,
  sampleMessage.sagaId,
  sampleMessage.aggregateType,
  sampleMessage.aggregateId,
  sampleMessage.target,
  JSON.stringify(sampleMessage.headers),
  sampleMessage.data,
);

const { id: messageId, topic, type } = sampleMessage;
const own = { messageId, writtenOn: "2026-11-15", topic, type, expiresAt: null };

const origin = { atMs: 5, server: "s" };
const bare = (text: string): PackedRow => new PackedRow(text.split("\u001f"), packedMessages([]), origin);

test("a message is parsed unchanged, with the expiry of its row", () => {
  const messages = packedMessages([{ messages: message }]);
  expect(messageFor(own, messages).message).toEqual({ ...sampleMessage, expiresAt: null });
  expect(messageFor({ ...own, expiresAt: sampleMessage.expiresAt }, messages).message).toEqual(sampleMessage);
  expect(messageFor(aRow(2), messages)).toEqual({ message: null });
});

test("a message with default details is sent without them", () => {
  const messages = packedMessages([{ messages: packed(...usual, "", sampleMessage.data) }]);
  expect(messageFor(own, messages).message).toEqual({
    ...sampleMessage,
    kind: "event",
    priority: 5,
    schemaVersion: 1,
    headers: {},
    causationId: null,
    sagaId: null,
    aggregateType: null,
    aggregateId: null,
    target: null,
    expiresAt: null,
  });
});

test("a row gets the copy of its message from its own day", () => {
  const edited = message.replace("2026-11-15", "2026-11-16").replace(sampleMessage.data, '{"edited":true}');
  const messages = packedMessages([{ messages: `${edited}\u001e${message}` }]);
  const dataOf = (writtenOn: string) => messageFor({ ...own, writtenOn }, messages).message?.data;
  expect(["2026-11-15", "2026-11-16", "2026-11-17"].map(dataOf)).toEqual([
    sampleMessage.data,
    '{"edited":true}',
    undefined,
  ]);
});

test("a row keeps numbers beyond the safe integer range as strings", () => {
  expect(bare(row)).toMatchObject({
    lane: 3,
    seq: 9007199254740991,
    stream: "-8446744073709551615",
    attempts: 2,
    maxAttempts: 12,
    waitMs: -5,
    expired: true,
    leased: false,
    messageId: sampleMessage.id,
    writtenOn: "2026-11-15",
    ctid: "(12,34)",
    expiresAt: "2026-11-15T08:09:10.500000Z",
    message: null,
  });
});

test("a row that is due, not leased and without expiry is sent without these fields", () => {
  const plain = `${row.split("\u001f").slice(0, 8).join("\u001f")}\u001f\u001f`;
  expect(bare(plain)).toMatchObject({
    attempts: 0,
    maxAttempts: 10,
    waitMs: 0,
    leased: false,
    expired: false,
    expiresAt: null,
  });
});

test("a row that was read with its message has the copy of its day", () => {
  const whole = new PackedRow(row.split("\u001f"), packedMessages([{ messages: message }]), origin);
  expect([isWhole(whole), isWhole(bare(row))]).toEqual([true, false]);
  expect(whole.message).toEqual({ ...sampleMessage, expiresAt: "2026-11-15T08:09:10.500000Z" });
});

test.each(["{", "[]", "null", '"a"'])(
  "headers like %s make a message unreadable: the row reports why, without throwing",
  (headers) => {
    const damaged = packedMessages([
      { messages: message.replace(JSON.stringify(sampleMessage.headers), headers) },
    ]);
    const read = new PackedRow(row.split("\u001f"), damaged, origin);
    expect([read.isWhole, read.message, read.flaw]).toEqual([true, null, expect.any(SagaboxError)]);
    expect(messageFor(own, damaged)).toMatchObject({ message: null, flaw: { code: "ENVELOPE_INVALID" } });
  },
);
