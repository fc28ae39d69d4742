import { ClientLoader } from "../../transport/index.ts";

/** The packages of NATS, which are there only if the user has installed them. */
export const natsClient = new ClientLoader({
  broker: "NATS",
  install: ["@nats-io/transport-node@3", "@nats-io/jetstream@3"],
  load: async () => ({
    node: await import("@nats-io/transport-node"),
    jetstream: await import("@nats-io/jetstream"),
  }),
});

/** What the server answers when it does not know what was asked for. */
export const apiCodes = { consumerNotFound: 10_014, streamNotFound: 10_059 } as const;

/** NATS counts time in billionths of a second. */
export const nanos = (ms: number): number => ms * 1_000_000;
