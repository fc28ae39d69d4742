import type { Message } from "../../src/message/index.ts";
import { order } from "./order-placed.ts";

/** The everyday event as a transport is given it. */
export function orderMessage(n: number): Message {
  const data = order(n);
  return {
    id: `message-${n}`,
    kind: "event",
    type: "order.placed",
    schemaVersion: 1,
    topic: "events.order.placed",
    key: data.customerId,
    data: JSON.stringify(data),
    headers: {},
    correlationId: `message-${n}`,
    causationId: null,
    traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
    sagaId: null,
    aggregateType: null,
    aggregateId: null,
    source: "bench",
    target: null,
    priority: 5,
    writtenAt: "2026-02-03T04:05:06.789012Z",
    expiresAt: null,
  };
}
