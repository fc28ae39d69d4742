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

/** A message with every field set. */
export const sampleMessage: Message = {
  id: "0190b2f4-7c00-7abc-8def-0123456789ab",
  kind: "event",
  type: "orders.order.placed",
  schemaVersion: 2,
  topic: "events.orders.order.placed",
  key: "ORD-12345",
  data: '{"orderId":"ORD-12345","total":129.50,"note":"Straße \\"7\\" 😀"}',
  headers: { "x-tenant": "acme" },
  correlationId: "checkout-7",
  causationId: "cmd-1",
  traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
  sagaId: "saga-1",
  aggregateType: "order",
  aggregateId: "ORD-12345",
  source: "orders",
  target: null,
  priority: 5,
  writtenAt: "2026-07-14T09:30:15.123456Z",
  expiresAt: "2026-07-15T09:30:15Z",
};
