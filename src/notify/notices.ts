import { systemClock } from "../runtime/index.ts";
import type { Observer, TelemetryContext, TelemetryEvents, TelemetryName } from "../telemetry/index.ts";
import { toNotice } from "./dead-letter-notice.ts";
import { NoticeQueue } from "./notice-queue.ts";
import type { NoticeSettings } from "./options.ts";
import { noticeBody, postNotice } from "./webhook.ts";

export interface NoticesOptions {
  readonly service: string;
  readonly settings: NoticeSettings;
  /** Hears how the telling went. */
  readonly observer: Observer;
}

const HOOK_DEADLINE_MS = 10_000;
const WEBHOOK_ATTEMPTS = 5;
const CLOSING_MS = 3_000;

/** An observer that passes on every dead letter, whatever killed it, to those who asked to hear of it. */
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
