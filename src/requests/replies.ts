import { errorText } from "../errors/index.ts";
import { Consumer, type ConsumerParts, HandlerRegistry } from "../inbox/index.ts";
import {
  decodeJson,
  encodeJson,
  type Json,
  type ReplyBody,
  replyContract,
  replyTopicFor,
} from "../message/index.ts";
import { Loop, type Service } from "../runtime/index.ts";
import { type Database, quoteSchema, toArrayLiteral } from "../storage/index.ts";
import type { Observer } from "../telemetry/index.ts";
import { requestStatements } from "./statements.ts";

export interface RepliesOptions {
  readonly database: Database;
  readonly schema: string;
  readonly observer: Observer;
  /** Milliseconds between polls without a notification. Default 500. */
  readonly pollMs?: number;
}

/** The outcome of a request. */
export type Answer =
  | { readonly outcome: "done"; readonly reply?: Json; readonly sealed?: string }
  | { readonly outcome: "failed"; readonly reason: string; readonly error: string };

interface Row {
  readonly request_id: string;
  readonly outcome: "done" | "failed";
  readonly body: string | null;
  readonly reason: string | null;
  readonly error: string | null;
}

const NOTICE_PREFIX = "reply:";

/** The payload of the notification for a stored reply. */
export function replyNotice(requestId: string): string {
  return NOTICE_PREFIX + requestId;
}

/** The request id in a notification payload. Undefined if the payload is not about a reply. */
export function parseReplyNotice(payload: string): string | undefined {
  return payload.startsWith(NOTICE_PREFIX) ? payload.slice(NOTICE_PREFIX.length) : undefined;
}

/**
 * The requests of this process that wait for a reply. Reads all their replies in one statement, woken by a notification;
 * also polls, because a notification can be lost.
 */
export class Replies implements Service {
  readonly #options: RepliesOptions;
  readonly #sql: ReturnType<typeof requestStatements>;
  readonly #waiting = new Map<string, Set<(answer: Answer | Error) => void>>();
  readonly #loop: Loop;

  constructor(options: RepliesOptions) {
    this.#options = options;
    this.#sql = requestStatements(quoteSchema(options.schema));
    this.#loop = new Loop({
      step: () => this.#readReplies(),
      onError: (error) =>
        options.observer.emit("storage.failed", {
          doing: "looking for replies",
          error: errorText(error).slice(0, 500),
          retryInMs: 100,
        }),
      maxBackoffMs: 2_000,
    });
  }

  /** How many requests wait for a reply. */
  get size(): number {
    return this.#waiting.size;
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }

  /** Rejects all waiting requests with this error. */
  giveUp(error: Error): void {
    for (const requestId of this.#waiting.keys()) this.#settle(requestId, error);
  }

  /** Signals that a reply to this request was stored, or to any request if no id is given. */
  wake(requestId?: string): void {
    if (requestId === undefined ? this.#waiting.size > 0 : this.#waiting.has(requestId)) this.#loop.wake();
  }

  /** Waits for the reply without a timeout. The caller must call `forget` when it stops waiting. */
  expect(requestId: string): { readonly answer: Promise<Answer>; readonly forget: () => void } {
    let settle: (answer: Answer | Error) => void = () => undefined;
    const answer = new Promise<Answer>((resolve, reject) => {
      settle = (result) => (result instanceof Error ? reject(result) : resolve(result));
    });
    answer.catch(() => undefined); // the caller may have timed out
    const others = this.#waiting.get(requestId);
    if (others === undefined) this.#waiting.set(requestId, new Set([settle]));
    else others.add(settle);
    const forget = (): void => {
      const own = this.#waiting.get(requestId);
      own?.delete(settle);
      if (own?.size === 0) this.#waiting.delete(requestId);
    };
    this.#loop.wake();
    return { answer, forget };
  }

  async #readReplies(): Promise<number> {
    if (this.#waiting.size === 0) return Infinity;
    const ids = toArrayLiteral([...this.#waiting.keys()]);
    const { rows } = await this.#options.database.run<Row>(this.#sql.find, [ids]);
    for (const row of rows) this.#settle(row.request_id, toAnswer(row));
    return this.#waiting.size === 0 ? Infinity : (this.#options.pollMs ?? 500);
  }

  #settle(requestId: string, answer: Answer | Error): void {
    const waiting = this.#waiting.get(requestId);
    this.#waiting.delete(requestId);
    for (const settle of waiting ?? []) settle(answer);
  }
}

function toAnswer({ outcome, body, reason, error }: Row): Answer {
  if (body === null) return { outcome: "failed", reason: reason ?? "unknown", error: error ?? "" };
  const kept = decodeJson(body) as unknown as ReplyBody;
  return outcome === "done" && kept.outcome === "done"
    ? {
        outcome,
        ...(kept.reply === undefined ? {} : { reply: kept.reply }),
        ...(kept.sealed === undefined ? {} : { sealed: kept.sealed }),
      }
    : (kept as Answer);
}

export type ReplyConsumerParts = Omit<ConsumerParts, "definition" | "ledger"> & {
  readonly schema: string;
  /** Notification channel for stored replies. */
  readonly channel: string;
};

/** Makes the consumer that stores replies to this service in the `reply` table. All workers of the service share it. */
export function replyConsumer({ schema, channel, ...parts }: ReplyConsumerParts): Consumer {
  const topic = replyTopicFor(parts.service);
  const { keep } = requestStatements(quoteSchema(schema));
  const registry = new HandlerRegistry();
  registry.on(replyContract(topic), {
    consumer: `${topic.slice("replies.".length)}.replies`,
    ordered: false,
    from: "beginning", // a reply may arrive before the consumer first starts
    statement: ({ data }) => ({
      text: keep,
      params: [data.requestId, data.outcome, encodeJson(data), channel, replyNotice(data.requestId)],
    }),
  });
  const [definition] = registry.consumers();
  if (definition === undefined) throw new Error("a consumer was registered");
  return new Consumer({ ...parts, definition });
}

const BATCH = 5_000;

export interface ForgetRepliesOptions {
  readonly olderThanMs: number;
  /** Stops between two batches. */
  readonly signal?: AbortSignal;
}

/** Deletes replies older than `olderThanMs`. Resolves with the number of deleted rows. */
export async function forgetReplies(
  database: Database,
  schema: string,
  { olderThanMs, signal }: ForgetRepliesOptions,
): Promise<number> {
  const { forget } = requestStatements(quoteSchema(schema));
  let total = 0;
  while (signal?.aborted !== true) {
    const { rowCount } = await database.run(forget, [olderThanMs, BATCH]);
    total += rowCount;
    if (rowCount < BATCH) break;
  }
  return total;
}
