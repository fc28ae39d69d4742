import type { Message } from "../../src/message/index.ts";

let count = 0;

/** A message as it comes from a transport; say only what the test is about. */
export function aMessage(change: Partial<Message> = {}): Message {
  count += 1;
  const id = change.id ?? `m-${count}`;
  return {
    id,
    kind: "event",
    type: "order.placed",
    schemaVersion: 1,
    topic: "events.order.placed",
    key: null,
    data: "{}",
    headers: {},
    correlationId: `c-${id}`,
    causationId: null,
    traceparent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    sagaId: null,
    aggregateType: null,
    aggregateId: null,
    source: "test",
    target: null,
    priority: 5,
    writtenAt: "2026-01-02T03:04:05.678901Z",
    expiresAt: null,
    ...change,
  };
}
