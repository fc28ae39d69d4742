import { maintainMonths } from "../audit/index.ts";
import { forgetDeadLetters } from "../dead-letter/index.ts";
import { forgetInbox, inboxRetentionMs } from "../inbox/index.ts";
import { forgetReplies } from "../requests/index.ts";
import { Loop, type Service } from "../runtime/index.ts";
import { forgetSagas } from "../saga/index.ts";
import type { Parts } from "./parts.ts";

const EVERY_MS = 3_600_000;
/** Replies are kept for one day, for callers that repeat a request with the same id. */
const REPLIES_MS = 86_400_000;

/**
 * Deletes dead letters, dedupe rows, replies, flow events and sagas past their retention, once an hour. A dedupe row
 * outlives every message that could still be replayed.
 */
export class Janitor implements Service {
  readonly #loop: Loop;

  constructor({ database, deadLetters, inbox, settings, outbox, observer, flows }: Parts) {
    const olderThanMs = inboxRetentionMs({
      retention: settings.inboxRetentionMs,
      deadLetters: settings.deadLetterRetentionMs,
      archive: outbox.retentionMs,
    });
    this.#loop = new Loop({
      step: async (signal) => {
        const letters = await forgetDeadLetters(deadLetters, {
          olderThanMs: settings.deadLetterRetentionMs,
          signal,
        });
        if (letters.count > 0) observer.emit("history.cleaned", { table: "dead_letter", ...letters });
        await forgetInbox({ ...inbox, database }, { olderThanMs, signal });
        const replies = await forgetReplies(database, settings.schema, { olderThanMs: REPLIES_MS, signal });
        if (replies > 0) observer.emit("history.cleaned", { table: "reply", count: replies });
        const events = await flows.forgetEvents({ olderThanMs: outbox.retentionMs, signal });
        if (events > 0) observer.emit("history.cleaned", { table: "flow_event", count: events });
        const { retentionMs } = settings.sagas;
        const sagas = await forgetSagas(database, settings.schema, { olderThanMs: retentionMs, signal });
        if (sagas.instances > 0)
          observer.emit("history.cleaned", { table: "saga_instance", count: sagas.instances });
        if (sagas.mail > 0) observer.emit("history.cleaned", { table: "saga_mail", count: sagas.mail });
        const audit = { retentionMs: settings.audit.retentionMs, observer, signal };
        await maintainMonths(database, settings.schema, audit);
        return EVERY_MS;
      },
      maxBackoffMs: 60_000,
    });
  }

  start(): Promise<void> {
    return this.#loop.start();
  }

  stop(): Promise<void> {
    return this.#loop.stop();
  }
}
