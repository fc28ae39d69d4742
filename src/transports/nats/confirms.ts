import type { ApiError } from "@nats-io/jetstream";
import type { Msg, MsgHdrs, NatsConnection } from "@nats-io/transport-node";
import type { PublishOutcome } from "../../transport/index.ts";
import { natsClient } from "./client.ts";
import { toFailedOutcome } from "./outcome.ts";

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });

/** A message that was sent and not yet heard of. */
interface PendingConfirm {
  readonly subject: string;
  readonly settle: (outcome: PublishOutcome) => void;
}

/**
 * Publishes and hears what the stream says of each message, through one subscription for all of them. The client's own
 * way makes an error with its stack and a timer for every message, which costs as much as sending it.
 */
export class Confirms {
  readonly #nc: NatsConnection;
  readonly #inbox: string;
  readonly #waiting = new Map<string, PendingConfirm>();
  #count = 0;

  constructor(nc: NatsConnection, inboxPrefix: string) {
    this.#nc = nc;
    this.#inbox = `${natsClient.client.node.createInbox(inboxPrefix)}.`;
    nc.subscribe(`${this.#inbox}*`, { callback: (error, msg) => this.#onConfirm(error, msg) });
    void this.#watch();
  }

  /** Settles when the stream has answered; whoever waits no longer says so with `forget`. */
  send(
    subject: string,
    body: Uint8Array,
    headers: MsgHdrs,
  ): { token: string; outcome: Promise<PublishOutcome> } {
    const token = (this.#count++).toString(36);
    const outcome = new Promise<PublishOutcome>((settle) => this.#waiting.set(token, { subject, settle }));
    try {
      this.#nc.publish(subject, body, { headers, reply: this.#inbox + token });
    } catch (error) {
      this.#settle(token, toFailedOutcome(error));
    }
    return { token, outcome };
  }

  forget(token: string): void {
    this.#waiting.delete(token);
  }

  #onConfirm(error: Error | null, msg: Msg): void {
    if (error !== null) return this.#settleAll(toFailedOutcome(error));
    const token = msg.subject.slice(this.#inbox.length);
    const sent = this.#waiting.get(token);
    if (sent !== undefined) this.#settle(token, toOutcome(msg, sent.subject));
  }

  // The server tells of a subject that is denied to the connection, not to the message.
  async #watch(): Promise<void> {
    const { errors } = natsClient.client.node;
    for await (const status of this.#nc.status()) {
      if (status.type !== "error" || !(status.error instanceof errors.PermissionViolationError)) continue;
      const { operation, subject } = status.error;
      if (operation !== "publish") continue;
      for (const [token, sent] of this.#waiting) {
        if (sent.subject === subject) this.#settle(token, toFailedOutcome(status.error));
      }
    }
  }

  #settleAll(outcome: PublishOutcome): void {
    for (const token of this.#waiting.keys()) this.#settle(token, outcome);
  }

  #settle(token: string, outcome: PublishOutcome): void {
    this.#waiting.get(token)?.settle(outcome);
    this.#waiting.delete(token);
  }
}

function toOutcome(msg: Msg, subject: string): PublishOutcome {
  if (msg.data.length === 0 && msg.headers?.code === 503) {
    return toFailedOutcome(new natsClient.client.node.errors.NoRespondersError(subject));
  }
  try {
    const { error, stream } = msg.json<{ readonly error?: ApiError; readonly stream?: string }>();
    if (error !== undefined) return toFailedOutcome(new natsClient.client.jetstream.JetStreamApiError(error));
    return typeof stream === "string" && stream !== ""
      ? PUBLISHED
      : toFailedOutcome(new Error("no stream answered"));
  } catch (error) {
    return toFailedOutcome(error);
  }
}
