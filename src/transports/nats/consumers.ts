import type { ConsumerConfig, ConsumerInfo } from "@nats-io/jetstream";
import { apiCodes, nanos } from "./client.ts";
import type { Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { isApiError } from "./streams.ts";

/**
 * Start of a new consumer: a stream sequence (`at`), a server time (`since`), only new messages, or the whole stream.
 */
export type Start = { readonly at: number } | { readonly since: string } | "now" | "beginning";

export interface ConsumerRequest {
  readonly stream: string;
  readonly name: string;
  readonly filter: string;
  readonly start: Start;
  /** Maximum number of unacknowledged messages. Default: no limit. */
  readonly window?: number;
}

/** Creates a durable pull consumer. A consumer that exists under this name is returned unchanged. */
export async function createConsumer(
  { jsm }: Session,
  { ackWaitMs }: NatsSettings,
  { stream, name, filter, start, window = -1 }: ConsumerRequest,
): Promise<ConsumerInfo> {
  const config: Partial<ConsumerConfig> = {
    durable_name: name,
    filter_subject: filter,
    ack_policy: "explicit",
    ack_wait: nanos(ackWaitMs),
    // The transport counts attempts. With a limit at the broker, JetStream would drop messages without a trace.
    max_deliver: -1,
    max_ack_pending: window,
    ...toStartConfig(start),
  };
  try {
    return await jsm.consumers.add(stream, config);
  } catch (error) {
    const found = await findConsumer(jsm, stream, name);
    if (found === undefined) throw error;
    return found; // It was created earlier, with another start or window.
  }
}

/**
 * Heartbeat interval of an idle pull, in milliseconds. Two missed heartbeats mean that the consumer's leader is gone.
 */
export function heartbeatMsFor({ leaseMs }: NatsSettings): number {
  return Math.min(5_000, Math.max(500, Math.floor(leaseMs / 4)));
}

function toStartConfig(start: Start): Partial<ConsumerConfig> {
  if (start === "now") return { deliver_policy: "new" };
  if (start === "beginning") return { deliver_policy: "all" };
  if ("since" in start) return { deliver_policy: "by_start_time", opt_start_time: start.since };
  return { deliver_policy: "by_start_sequence", opt_start_seq: start.at };
}

/** Reads a consumer's state from the server. Returns undefined if the stream has no consumer of this name. */
export async function findConsumer(
  jsm: Session["jsm"],
  stream: string,
  name: string,
): Promise<ConsumerInfo | undefined> {
  try {
    return await jsm.consumers.info(stream, name);
  } catch (error) {
    if (isApiError(error, apiCodes.consumerNotFound)) return undefined;
    throw error;
  }
}

/** Returns the first sequence that a consumer delivers, if nothing was read from it yet. */
export function firstSequence(info: ConsumerInfo): number {
  return info.delivered.stream_seq + 1;
}
