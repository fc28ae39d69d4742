import { event, type Transport } from "sagabox";
import { z } from "zod";
import type { BrokerKind } from "../support/brokers/broker-server.ts";
import { brokerTransport } from "../support/brokers/broker-transport.ts";
import { ChaosTransport } from "./chaos-transport.ts";

/** What the load publishes: the n-th thing that happened to one aggregate. */
export const Happened = event("chaos.happened", {
  schema: z.object({ key: z.string(), kseq: z.number() }),
  key: (data) => data.key,
});

/** Two effects per message, each of which must happen once. */
export const HANDLERS = ["billing", "mail"] as const;

/** The instructions for a child process, as JSON in the variable CHAOS. */
export interface ChildOptions {
  readonly id: string;
  readonly url: string;
  readonly leaseMs: number;
  /** Of the harness's broker; undefined for the Postgres transport. */
  readonly brokerPort: number | undefined;
  /** A real broker instead. */
  readonly broker?: { readonly kind: BrokerKind; readonly url: string };
  /** The share of first attempts that fail, so that retries are pending when a fault happens. */
  readonly failures?: number;
  readonly optimisticTimeoutMs: number;
}

export interface LoadOptions extends ChildOptions {
  /** The load ends when this many messages are committed, by whomever. */
  readonly target: number;
  readonly keys: number;
  /** It pauses while more effects than this are outstanding. */
  readonly backlog: number;
  readonly writers: number;
  /** How long each writer rests between two transactions. Default 0. */
  readonly restMs?: number;
}

/** Undefined: the Postgres transport. */
export function createTransport({ id, brokerPort, broker }: ChildOptions): {
  readonly transport?: Transport;
} {
  if (broker !== undefined) return { transport: brokerTransport(broker.kind, broker.url, { quickly: true }) };
  return brokerPort === undefined ? {} : { transport: new ChaosTransport(brokerPort, id) };
}

/**
 * Every session of the process carries the worker's name, so that triggers know which worker wrote a row. The path is given
 * because the embedded server's user is called like our schema, which would catch the harness's tables.
 */
export function signedUrl(url: string, id: string): string {
  const signed = new URL(url);
  signed.searchParams.set("options", `-c chaos.worker=${id} -c search_path=public`);
  return signed.href;
}
