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

/** Error codes of the JetStream API that mean something to this transport. */
export const apiCodes = {
  /** No leader at the moment. */
  temporarilyUnavailable: 10_008,
  consumerNotFound: 10_014,
  streamNotFound: 10_059,
  /** The nodes that hold it are down. */
  streamOffline: 10_118,
  consumerOffline: 10_119,
} as const;

/** NATS counts time in billionths of a second. */
export const nanos = (ms: number): number => ms * 1_000_000;
