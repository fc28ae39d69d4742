// #region connect
import { createBus } from "sagabox";
import { nats } from "sagabox/nats";
import { billOrders } from "./consuming.ts";

export const bus = createBus({
  service: "billing",
  transport: nats({ servers: "nats://127.0.0.1:4222" }),
});
billOrders(bus);
// #endregion connect

// #region cluster
import { readFile } from "node:fs/promises";

export const inProduction = nats({
  servers: ["tls://nats-1.example.com", "tls://nats-2.example.com", "tls://nats-3.example.com"],
  tls: true,
  credentials: async () => ({ creds: await readFile("/run/secrets/billing.creds", "utf8") }),
  prefix: "prod",
  replicas: 3,
  inboxPrefix: "_INBOX_billing",
});
// #endregion cluster

// #region permissions
import { natsPermissions } from "sagabox/nats";

export function billingUser(password: string): string {
  const permissions = natsPermissions({
    service: "billing",
    role: "worker",
    prefix: "prod",
    inboxPrefix: "_INBOX_billing",
  });
  return JSON.stringify({ user: "billing", password, permissions }, null, 2);
}
// #endregion permissions
