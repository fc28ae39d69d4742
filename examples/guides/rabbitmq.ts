// #region connect
import { createBus } from "sagabox";
import { rabbitmq } from "sagabox/rabbitmq";
import { billOrders } from "./consuming.ts";

export const bus = createBus({
  service: "billing",
  transport: rabbitmq({ url: "amqp://guest:guest@127.0.0.1:5672" }),
});
billOrders(bus);
// #endregion connect

// #region cluster
import { readFile } from "node:fs/promises";

export const inProduction = rabbitmq({
  url: ["amqps://rabbit-1.example.com", "amqps://rabbit-2.example.com", "amqps://rabbit-3.example.com"],
  vhost: "production",
  // Asked for at each connection: a rotated password is used at the next one.
  credentials: async () => ({
    username: "billing",
    password: (await readFile("/run/secrets/rabbitmq", "utf8")).trim(),
  }),
  maxLength: 1_000_000,
});
// #endregion cluster

// #region permissions
import { rabbitPermissions } from "sagabox/rabbitmq";

export function grantBilling(): string {
  const { configure, write, read } = rabbitPermissions({
    service: "billing",
    publishes: [{ topic: "events.invoice.sent" }],
    consumes: [{ group: "invoices", topics: [{ topic: "events.order.placed" }] }],
  });
  return `rabbitmqctl set_permissions -p production billing '${configure}' '${write}' '${read}'`;
}
// #endregion permissions
