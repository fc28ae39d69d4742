import type { JsMsg } from "@nats-io/jetstream";
import { withDeadline } from "../../runtime/index.ts";
import type { Message } from "../../message/index.ts";
import { cloudEventBindings, toWire, type DeadLetterNote } from "../../transport/index.ts";
import { fromNatsHeaders, headerBytes, toNatsHeaders, transportHeaders } from "./header-mapping.ts";
import { unreachableError, type Session } from "./link.ts";
import type { NatsSettings } from "./options.ts";
import { tooLargeError } from "./outcome.ts";
import { streamNames, type GroupNames } from "./topology.ts";

/** For the headers that the server reads, such as the id of the copy. */
const SERVER_HEADER_BYTES = 1_024;

interface MessageCopy {
  readonly body: Uint8Array;
  /** The same for each copy of one original. */
  readonly original: string;
}

// The time tells it from a message with the same number in a stream that was deleted and made anew.
function toCopy(msg: JsMsg): MessageCopy {
  return { body: msg.data, original: `${msg.info.stream}/${msg.seq}/${msg.timestampNanos}` };
}

type HeaderTexts = Readonly<Record<string, string>>;

/**
 * Copies of a message for one group: its body as it came and its headers with a few more. A copy is confirmed before
 * the original is acknowledged; made again after a crash in between, it has the same id and is kept once.
 */
export class MessageCopier {
  readonly #settings: NatsSettings;
  readonly #names: GroupNames;

  constructor(settings: NatsSettings, names: GroupNames) {
    this.#settings = settings;
    this.#names = names;
  }

  async copyToRetry(
    session: Session,
    msg: JsMsg,
    topic: string,
    attempt: number,
    delayMs: number,
  ): Promise<void> {
    const headers = {
      ...fromNatsHeaders(msg.headers),
      [transportHeaders.attempt]: String(attempt),
      [transportHeaders.delay]: String(Math.ceil(delayMs)),
    };
    const bytes = msg.data.length + headerBytes(headers) + SERVER_HEADER_BYTES;
    if (bytes > session.maxPayload) throw tooLargeError(bytes, session.maxPayload);
    const { retries } = streamNames(this.#settings.prefix);
    await this.#publishCopy(session, toCopy(msg), this.#names.retry(topic), retries, headers);
  }

  copyToDeadLetters(session: Session, msg: JsMsg, note: DeadLetterNote): Promise<void> {
    return this.#publishDeadLetter(session, toCopy(msg), fromNatsHeaders(msg.headers), note);
  }

  /** For a message that is no longer at the server. */
  copyMessageToDeadLetters(session: Session, message: Message, note: DeadLetterNote): Promise<void> {
    const { body, headers } = toWire(message, {
      format: this.#settings.format,
      binding: cloudEventBindings.nats,
    });
    return this.#publishDeadLetter(session, { body, original: message.id }, headers, note);
  }

  #publishDeadLetter(
    session: Session,
    copy: MessageCopy,
    own: HeaderTexts,
    note: DeadLetterNote,
  ): Promise<void> {
    const room = session.maxPayload - copy.body.length - headerBytes(own) - SERVER_HEADER_BYTES;
    const { dead } = streamNames(this.#settings.prefix);
    return this.#publishCopy(session, copy, this.#names.dead, dead, {
      ...own,
      ...fitNote({ ...note }, room),
    });
  }

  async #publishCopy(
    session: Session,
    copy: MessageCopy,
    subject: string,
    stream: string,
    headers: HeaderTexts,
  ): Promise<void> {
    const { timeoutMs } = this.#settings;
    const confirmed = session.js.publish(subject, copy.body, {
      headers: toNatsHeaders(headers),
      msgID: `${subject}/${copy.original}`,
      expect: { streamName: stream },
      timeout: timeoutMs,
    });
    await withDeadline(confirmed, timeoutMs + 100, () => {
      throw unreachableError(`NATS did not confirm a copy to ${subject}.`);
    }).catch((error: unknown) => {
      throw unreachableError(`NATS did not take a copy to ${subject}.`, error);
    });
  }
}

const uncutFields = [
  "error_type",
  "retry_count",
  "failed_at",
  "source_topic",
  "consumer_group",
  "original_timestamp",
];

/** The note within so many bytes: a long story is cut, and left out where there is no room at all. */
export function fitNote(note: HeaderTexts, room: number): HeaderTexts {
  const entries = Object.entries(note);
  const kept = Object.fromEntries(
    entries.map(([name, value]) => [name, uncutFields.includes(name) ? value : ""]),
  );
  for (const name of ["error_message", "stack_trace"]) {
    let value = note[name] ?? "";
    while (value !== "" && headerBytes({ ...kept, [name]: value }) > room) {
      value = value.slice(0, Math.floor(value.length / 2));
    }
    kept[name] = value;
  }
  return headerBytes(kept) > room ? {} : kept;
}
