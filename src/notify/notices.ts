import { createHmac } from "node:crypto";
import { errorText } from "../errors/index.ts";
import { retryWithBackoff, systemClock, withDeadline } from "../runtime/index.ts";
import type { Observer, TelemetryContext, TelemetryEvents, TelemetryName } from "../telemetry/index.ts";
import type { NoticeSettings, WebhookSettings } from "./options.ts";

export interface NoticesOptions {
  readonly service: string;
  readonly settings: NoticeSettings;
  /** Gets the events notice.sent, notice.failed and notice.dropped. */
  readonly observer: Observer;
}

const HOOK_DEADLINE_MS = 10_000;
const WEBHOOK_ATTEMPTS = 5;
const CLOSING_MS = 3_000;

/** An observer that reports every dead letter to the hook and the webhook. */
export class Notices implements Observer {
  readonly #service: string;
  readonly #queues: readonly NoticeQueue[];

  constructor({ service, settings, observer }: NoticesOptions) {
    this.#service = service;
    const { onDeadLetter, webhook } = settings;
    const queues: NoticeQueue[] = [];
    if (onDeadLetter !== null) {
      queues.push(
        new NoticeQueue({
          via: "hook",
          observer,
          deadlineMs: HOOK_DEADLINE_MS,
          attempts: 1,
          deliver: async (notice) => onDeadLetter(notice),
        }),
      );
    }
    if (webhook !== null) {
      queues.push(
        new NoticeQueue({
          via: "webhook",
          observer,
          deadlineMs: webhook.timeoutMs,
          attempts: WEBHOOK_ATTEMPTS,
          deliver: (notice, missed, signal) => postNotice(webhook, noticeBody(notice, missed), signal),
        }),
      );
    }
    this.#queues = queues;
  }

  emit<Name extends TelemetryName>(
    name: Name,
    fields: TelemetryEvents[Name],
    context?: TelemetryContext,
  ): void {
    if (name !== "dead_letter.buried" || this.#queues.length === 0) return;
    const buried = fields as TelemetryEvents["dead_letter.buried"];
    const notice = toNotice(this.#service, buried, context, systemClock.wallMs());
    for (const queue of this.#queues) queue.push(notice);
  }

  async close(): Promise<void> {
    await Promise.all(this.#queues.map((queue) => queue.close(CLOSING_MS)));
  }
}

/** The posted body. It omits the error's text, which may quote the payload. */
function noticeBody(notice: DeadLetterNotice, missed: number): string {
  return JSON.stringify({
    event: "dead_letter",
    service: notice.service,
    origin: notice.origin,
    consumer: notice.consumer,
    message_id: notice.messageId,
    message_type: notice.type,
    topic: notice.topic,
    reason: notice.reason,
    trace_id: notice.traceId,
    at: notice.at,
    missed,
  });
}

/**
 * Returns `t` in seconds and the HMAC-SHA256 of `t`, a dot and the body, so that a receiver can reject forged
 * or old requests.
 */
function signBody(secret: string, body: string, seconds: number): string {
  const digest = createHmac("sha256", secret).update(`${seconds}.${body}`).digest("hex");
  return `t=${seconds},v1=${digest}`;
}

/** Makes one attempt. Redirects are not followed: headers and signature are meant for this address alone. */
async function postNotice(
  { url, headers, secret }: WebhookSettings,
  body: string,
  signal: AbortSignal,
): Promise<void> {
  const seconds = Math.floor(systemClock.wallMs() / 1_000);
  const signature = secret === null ? {} : { "sagabox-signature": signBody(secret, body, seconds) };
  const response = await fetch(url, {
    method: "POST",
    headers: { ...headers, "content-type": "application/json", ...signature },
    body,
    redirect: "manual",
    signal,
  }).catch((error: unknown) => {
    throw new Error(`the address could not be reached: ${describeCause(error)}`);
  });
  await response.body?.cancel();
  if (response.ok) return;
  const text = `it answered ${response.status}`;
  throw isRetryable(response.status) ? new Error(text) : new PermanentNoticeError(text);
}

function isRetryable(status: number): boolean {
  return status >= 500 || status === 408 || status === 425 || status === 429;
}

// Reports only the code: the runtime's message may contain the address.
function describeCause(error: unknown): string {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const { code } = cause as { code?: unknown };
  if (typeof code === "string") return code;
  return cause instanceof Error ? cause.name : "unknown failure";
}

/** Thrown by `deliver` when a retry cannot help. */
class PermanentNoticeError extends Error {}

interface NoticeQueueOptions {
  readonly via: "hook" | "webhook";
  readonly observer: Observer;
  readonly deadlineMs: number;
  readonly attempts: number;
  readonly firstWaitMs?: number;
  /** The number of concurrent deliveries. Default 4. */
  readonly concurrency?: number;
  /** The maximum number of waiting notices; further ones are dropped and counted. Default 1,000. */
  readonly capacity?: number;
  /** `missed` is the number of notices dropped or failed since the last successful one. */
  readonly deliver: (notice: DeadLetterNotice, missed: number, signal: AbortSignal) => Promise<void>;
}

const MAX_WAIT_MS = 30_000;

/** Delivers notices to one receiver, a few at a time, each within its deadline. Never throws. */
export class NoticeQueue {
  readonly #options: NoticeQueueOptions;
  readonly #waiting: DeadLetterNotice[] = [];
  readonly #running = new Set<Promise<void>>();
  readonly #closing = new AbortController();
  #active = 0;
  #missed = 0;

  constructor(options: NoticeQueueOptions) {
    this.#options = options;
  }

  push(notice: DeadLetterNotice): void {
    const { concurrency = 4, capacity = 1_000 } = this.#options;
    if (this.#waiting.length >= capacity || this.#closing.signal.aborted) return this.#drop(notice);
    this.#waiting.push(notice);
    if (this.#active >= concurrency) return;
    this.#active += 1;
    const run = this.#work().finally(() => this.#running.delete(run));
    this.#running.add(run);
  }

  /** Keeps delivering for at most `withinMs`, then drops the rest. */
  async close(withinMs: number): Promise<void> {
    await withDeadline(Promise.all(this.#running), withinMs, () => undefined);
    this.#closing.abort();
    for (const notice of this.#waiting.splice(0)) this.#drop(notice);
    await withDeadline(Promise.all(this.#running), 100, () => undefined);
  }

  async #work(): Promise<void> {
    for (let notice = this.#waiting.shift(); notice !== undefined; notice = this.#waiting.shift()) {
      await this.#deliverWithRetries(notice);
    }
    this.#active -= 1; // before the promise settles, so that the next push starts a new worker
  }

  async #deliverWithRetries(notice: DeadLetterNotice): Promise<void> {
    const { via, observer, attempts, firstWaitMs = 1_000 } = this.#options;
    let [attempt, error] = [0, ""];
    const deliver = async (): Promise<"sent" | "refused"> => {
      try {
        attempt += 1;
        await this.#deliver(notice);
        return "sent";
      } catch (thrown) {
        error = errorText(thrown).slice(0, 500);
        if (thrown instanceof PermanentNoticeError) return "refused";
        throw thrown;
      }
    };
    const outcome = await retryWithBackoff(deliver, {
      backoff: { firstMs: firstWaitMs, maxMs: MAX_WAIT_MS },
      maxTries: attempts,
      signal: this.#closing.signal,
    });
    if (outcome === "sent") return observer.emit("notice.sent", { via, id: notice.messageId });
    this.#missed += 1;
    observer.emit("notice.failed", { via, id: notice.messageId, attempt, error });
  }

  async #deliver(notice: DeadLetterNotice): Promise<void> {
    const { deliver, deadlineMs } = this.#options;
    const missed = this.#missed;
    const abort = new AbortController();
    // Catches a hook that throws synchronously.
    const work = Promise.resolve().then(() => deliver(notice, missed, abort.signal));
    await withDeadline(work, deadlineMs, () => {
      abort.abort();
      throw new Error(`no end within ${deadlineMs} ms`);
    });
    this.#missed -= missed;
  }

  #drop({ messageId: id }: DeadLetterNotice): void {
    this.#missed += 1;
    this.#options.observer.emit("notice.dropped", { via: this.#options.via, id });
  }
}

/** Describes a dead letter without its payload. */
export interface DeadLetterNotice {
  readonly service: string;
  /** Whether sending or handling failed. */
  readonly origin: "outbox" | "consumer";
  /** Null for a dead letter of the outbox. */
  readonly consumer: string | null;
  readonly messageId: string;
  readonly type: string;
  readonly topic: string;
  readonly reason: string;
  /** The text of the error. It may quote data, so it is never posted to the webhook. */
  readonly error: string;
  readonly traceId: string | null;
  /** ISO 8601, from this process's clock. */
  readonly at: string;
}

const TRACEPARENT = /^[0-9a-f]{2}-([0-9a-f]{32})-/;

export function toNotice(
  service: string,
  fields: TelemetryEvents["dead_letter.buried"],
  context: TelemetryContext | undefined,
  wallMs: number,
): DeadLetterNotice {
  const { origin, consumer, id, type, topic, reason, error } = fields;
  const traceId = TRACEPARENT.exec(context?.traceparent ?? "")?.[1] ?? null;
  const at = new Date(wallMs).toISOString();
  return { service, origin, consumer, messageId: id, type, topic, reason, error, traceId, at };
}
