import type { Message as RawMessage } from "amqplib";
import { isSagaboxError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { systemClock } from "../../runtime/index.ts";
import type { DeadLetterNote } from "../../transport/index.ts";
import { unreachableError, type Link } from "./link.ts";
import { declareWaiting, withDeclareChannel } from "./declare.ts";
import {
  immediateRoutingKey,
  planWaitingQueue,
  roundToDelayStep,
  sharedExchanges,
  toWord,
  type WaitingQueue,
} from "./topology.ts";
import type { RabbitSettings } from "./options.ts";
import {
  attemptHeader,
  userHeaders,
  encodeMessage,
  topicHeader,
  type OutgoingMessage,
} from "./properties.ts";
import type { Publisher } from "./publisher.ts";

interface MessageCopierParts {
  /** The publishing connection. */
  readonly link: Link;
  readonly publisher: Publisher;
  readonly settings: RabbitSettings;
}

/** Copies received messages to retry queues and dead-letter queues. */
export class MessageCopier {
  readonly #parts: MessageCopierParts;
  readonly #declared = new Map<string, Promise<void>>();

  constructor(parts: MessageCopierParts) {
    this.#parts = parts;
    parts.link.onChange(() => this.#declared.clear());
  }

  /** Publishes a copy that returns to the queue after the delay (rounded up). Resolves when the copy is confirmed. */
  async copyToRetry(
    raw: RawMessage,
    to: { readonly service: string; readonly queue: string },
    options: { readonly attempt: number; readonly delayMs: number; readonly topic: string },
  ): Promise<void> {
    const { prefix } = this.#parts.settings;
    const { retry, back } = sharedExchanges(prefix);
    const contents = copyMessage(raw, {
      [attemptHeader]: String(options.attempt),
      [topicHeader]: options.topic,
    });
    const stepMs = roundToDelayStep(options.delayMs);
    if (stepMs === 0) {
      await this.#parts.publisher.forward({
        ...contents,
        exchange: back,
        routingKey: immediateRoutingKey(to.queue),
      });
      return;
    }
    const waiting = planWaitingQueue(prefix, toWord(to.service), stepMs, systemClock.wallMs());
    await this.#declareWaiting(waiting);
    try {
      const routingKey = waiting.routingKey(to.queue);
      await this.#parts.publisher.forward({ ...contents, exchange: retry, routingKey });
    } catch (error) {
      if (isSagaboxError(error, "TRANSPORT_UNROUTABLE")) this.#declared.delete(waiting.queue);
      throw error;
    }
  }

  /** Writes a group's stream position into its offset queue. */
  async writePosition(queue: string, body: Buffer, messageId: string): Promise<void> {
    const { back } = sharedExchanges(this.#parts.settings.prefix);
    const properties = { messageId, persistent: true, mandatory: true };
    await this.#parts.publisher.forward({
      exchange: back,
      routingKey: immediateRoutingKey(queue),
      body,
      properties,
    });
  }

  async copyToDeadLetters(raw: RawMessage, groupId: string, note: DeadLetterNote): Promise<void> {
    const exchange = sharedExchanges(this.#parts.settings.prefix).deadLetter;
    const contents = copyMessage(raw, fitNote(note, userHeaders(raw.properties.headers)));
    await this.#parts.publisher.forward({ ...contents, exchange, routingKey: groupId });
  }

  /** Writes a dead letter for a message whose delivery was already acknowledged. */
  async copyMessageToDeadLetters(message: Message, groupId: string, note: DeadLetterNote): Promise<void> {
    const exchange = sharedExchanges(this.#parts.settings.prefix).deadLetter;
    const { body, properties } = encodeMessage(message, this.#parts.settings.format);
    const { BCC: _, headers, ...others } = properties;
    const noted = { ...headers, ...fitNote(note, headers) };
    await this.#parts.publisher.forward({
      exchange,
      routingKey: groupId,
      body,
      properties: { ...others, headers: noted },
    });
  }

  #declareWaiting(waiting: WaitingQueue): Promise<void> {
    const { link, settings } = this.#parts;
    const { live } = link;
    if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${link.trouble}`);
    let declared = this.#declared.get(waiting.queue);
    if (declared === undefined) {
      declared = withDeclareChannel(link, live, (channel) => declareWaiting(channel, waiting, settings));
      this.#declared.set(waiting.queue, declared);
      declared.catch(() => this.#declared.delete(waiting.queue));
    }
    return declared;
  }
}

// All headers must fit into one frame, so the note's long fields are shortened if the message's headers need the space.
function fitNote(note: DeadLetterNote, headers: object = {}): Record<string, string> {
  const maxBytes = 60_000 - Buffer.byteLength(JSON.stringify(headers));
  const stack = { ...note, stack_trace: note.stack_trace.slice(0, 8_192) };
  const short = { ...note, stack_trace: "", error_message: note.error_message.slice(0, 200) };
  const fits = [stack, short].find((one) => Buffer.byteLength(JSON.stringify(one)) <= maxBytes);
  return fits ?? {};
}

// Keeps body and headers, but not the broker's x-death headers: it would treat the next dead-lettering as a cycle.
function copyMessage(
  raw: RawMessage,
  more: Readonly<Record<string, string>>,
): Pick<OutgoingMessage, "body" | "properties"> {
  const { properties } = raw;
  return {
    body: raw.content,
    properties: {
      contentType: properties.contentType as string,
      contentEncoding: properties.contentEncoding as string,
      correlationId: properties.correlationId as string,
      messageId: properties.messageId as string,
      type: properties.type as string,
      appId: properties.appId as string,
      timestamp: properties.timestamp as number,
      replyTo: properties.replyTo as string,
      priority: properties.priority as number,
      headers: { ...userHeaders(properties.headers), ...more },
      persistent: true,
      mandatory: true,
    },
  };
}
