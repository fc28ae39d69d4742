import type { Message as RawMessage } from "amqplib";
import { isSagaboxError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { systemClock } from "../../runtime/index.ts";
import type { DeadLetterNote } from "../../transport/index.ts";
import { unreachableError, type Link } from "./link.ts";
import { declareWaiting, withDeclareChannel } from "./declare.ts";
import { immediateRoutingKey, roundToDelayStep, planWaitingQueue, type WaitingQueue } from "./delay-steps.ts";
import { toWord } from "./names.ts";
import type { RabbitSettings } from "./options.ts";
import {
  attemptHeader,
  userHeaders,
  encodeMessage,
  topicHeader,
  type OutgoingMessage,
} from "./properties.ts";
import type { Publisher } from "./publisher.ts";
import { sharedExchanges } from "./topology.ts";

interface MessageCopierParts {
  /** The one that publishes. */
  readonly link: Link;
  readonly publisher: Publisher;
  readonly settings: RabbitSettings;
}

/** Carries copies of received messages: to where they wait for another try, and to where they rest for good. */
export class MessageCopier {
  readonly #parts: MessageCopierParts;
  readonly #declared = new Map<string, Promise<void>>();

  constructor(parts: MessageCopierParts) {
    this.#parts = parts;
    parts.link.onChange(() => this.#declared.clear());
  }

  /** The copy is at the broker when this returns, and comes to the queue after the delay, rounded up to a rung. */
  async copyToRetry(
    raw: RawMessage,
    to: { readonly service: string; readonly queue: string },
    again: { readonly attempt: number; readonly delayMs: number; readonly topic: string },
  ): Promise<void> {
    const { prefix } = this.#parts.settings;
    const { retry, back } = sharedExchanges(prefix);
    const contents = copyMessage(raw, {
      [attemptHeader]: String(again.attempt),
      [topicHeader]: again.topic,
    });
    const stepMs = roundToDelayStep(again.delayMs);
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

  /** Straight into a queue, for what a group writes down for itself. */
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

  /** The same for a message that was acknowledged already. */
  async copyMessageToDeadLetters(message: Message, groupId: string, note: DeadLetterNote): Promise<void> {
    const exchange = sharedExchanges(this.#parts.settings.prefix).deadLetter;
    const { body, properties } = encodeMessage(message, this.#parts.settings.format);
    const { BCC: _, headers, ...others } = properties;
    const noted = { ...headers, ...fitNote(note, headers) };
    const parcel = { exchange, routingKey: groupId, body, properties: { ...others, headers: noted } };
    await this.#parts.publisher.forward(parcel);
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

// All headers together must fit into one frame; those of the message go before the longer words of the note.
function fitNote(note: DeadLetterNote, headers: object = {}): Record<string, string> {
  const room = 60_000 - Buffer.byteLength(JSON.stringify(headers));
  const stack = { ...note, stack_trace: note.stack_trace.slice(0, 8_192) };
  const short = { ...note, stack_trace: "", error_message: note.error_message.slice(0, 200) };
  const fits = [stack, short].find((one) => Buffer.byteLength(JSON.stringify(one)) <= room);
  return fits ?? {};
}

// Body and headers stay; the broker's notes about earlier deaths go, or it would take the next one for a circle.
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
