import type { Message } from "../../src/message/index.ts";

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
