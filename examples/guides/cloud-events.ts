// #region format
import { kafka } from "sagabox/kafka";

export const transport = kafka({ brokers: ["127.0.0.1:9092"], format: "cloudevents-binary" });
// #endregion format

// #region forward
import { toCloudEventJson, type Bus } from "sagabox";
import { OrderPlaced } from "./contracts.ts";

/** Sends each order to a partner, as a CloudEvent over HTTP. */
export function notifyPartner(bus: Bus, partnerUrl: string): void {
  bus.on(OrderPlaced, { consumer: "partner" }, async (order, { signal }) => {
    const response = await fetch(partnerUrl, {
      method: "POST",
      headers: { "content-type": "application/cloudevents+json; charset=utf-8" },
      body: toCloudEventJson({ ...order, data: JSON.stringify(order.data), headers: {} }),
      signal,
    });
    if (!response.ok) throw new Error(`the partner answered ${response.status}`);
  });
}
// #endregion forward

// #region webhook
import { fromCloudEvent, type Processed } from "sagabox";

/** For the body of a request with a CloudEvent in structured mode: answer when this has resolved, never before. */
export function receiveCloudEvent(bus: Bus, body: string): Promise<Processed<void>> {
  const event = fromCloudEvent(body, { topic: "partner.orders" });
  const data = JSON.parse(event.data) as { readonly orderId: string };
  return bus.inbox.process({ ...event, consumer: "partner-orders", data }, async (message, { tx }) => {
    await tx.query("insert into guide_bill (order_id, cents) values ($1, 0)", [message.data.orderId]);
  });
}
// #endregion webhook
