import { ClientLoader } from "../../transport/index.ts";

/** Loads the NATS client packages, which are optional peer dependencies. */
export const natsClient = new ClientLoader({
  broker: "NATS",
  install: ["@nats-io/transport-node@3", "@nats-io/jetstream@3"],
  load: async () => ({
    node: await import("@nats-io/transport-node"),
    jetstream: await import("@nats-io/jetstream"),
  }),
});

/** The JetStream API error codes that this transport handles. */
export const apiCodes = {
  /** The stream has no leader at the moment. */
  temporarilyUnavailable: 10_008,
  consumerNotFound: 10_014,
  streamNotFound: 10_059,
  /** The nodes that hold the stream are down. */
  streamOffline: 10_118,
  consumerOffline: 10_119,
} as const;

/** Converts milliseconds to nanoseconds, the unit of the JetStream API. */
export const nanos = (ms: number): number => ms * 1_000_000;
