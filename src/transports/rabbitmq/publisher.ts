import type { ConfirmChannel } from "amqplib";
import { SagaboxError, toError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { after, systemClock } from "../../runtime/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { declareRoute, withDeclareChannel } from "./declare.ts";
import { type Link, type LiveConnection, unreachableError } from "./link.ts";
import type { RabbitSettings } from "./options.ts";
import { encodeMessage, type OutgoingMessage } from "./properties.ts";
import { type Route, routeFor, routingKeyFor, type TopologySettings } from "./topology.ts";

/** A confirm channel and what was declared for it. */
interface Session {
  readonly live: LiveConnection;
  readonly inFlight: InFlight;
  readonly declared: Map<string, Promise<void>>;
  /** The declared routes whose declaration has finished. */
  readonly ready: Set<string>;
}

type Item =
  { readonly outgoing: OutgoingMessage; readonly route?: Route } | { readonly outcome: PublishOutcome };

/** One call of publish. At its deadline, unconfirmed messages become unknown and nothing more is sent. */
interface PublishCall {
  readonly sent: SentMessage[];
  /** Aborted at the deadline. */
  readonly expired: AbortSignal;
  /** Resolves at the deadline. */
  readonly deadline: Promise<void>;
  /** Rejects at the deadline. */
  readonly late: Promise<never>;
}

/** Publishes with confirms, with a limited number of messages in flight, and returns the outcome of each message. */
export class Publisher {
  readonly #link: Link;
  readonly #settings: RabbitSettings;
  readonly #routes: MessageRoutes;
  #session: Promise<Session> | undefined;
  #inUse: Session | undefined;

  constructor(link: Link, settings: RabbitSettings) {
    this.#link = link;
    this.#settings = settings;
    this.#routes = new MessageRoutes(settings);
  }

  publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    return this.#sendAll(
      batch.map((message) => this.#prepare(message)),
      signal,
    );
  }

  /** Publishes a copy of a received message to an exchange that is already declared. Throws if it is not confirmed. */
  async forward(outgoing: OutgoingMessage): Promise<void> {
    const [outcome] = await this.#sendAll([{ outgoing }], new AbortController().signal);
    if (outcome !== undefined && outcome.kind !== "published") throw outcome.error;
  }

  #prepare(message: Message): Item {
    const { maxBytes, format, unrouted } = this.#settings;
    const bytes = Buffer.byteLength(message.data);
    if (bytes > maxBytes) {
      const text = `The message data has ${bytes} bytes; the transport allows ${maxBytes} (rabbitmq.maxBytes).`;
      return { outcome: { kind: "refused", error: new SagaboxError("PAYLOAD_TOO_LARGE", text) } };
    }
    const { route, routingKey } = this.#routes.findRoute(message);
    const mandatory = message.kind !== "event" || unrouted === "reject";
    const { body, properties } = encodeMessage(message, format, mandatory);
    return { route, outgoing: { body, properties, exchange: route.exchange, routingKey } };
  }

  async #sendAll(items: readonly Item[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const expiry = new AbortController();
    const sent: SentMessage[] = [];
    let resolveDeadline = (): void => undefined;
    const deadline = new Promise<void>((resolve) => (resolveDeadline = resolve));
    const late = deadline.then(() => Promise.reject<never>(tooLateError()));
    late.catch(() => undefined);
    const stop = (): void => {
      expiry.abort();
      resolveDeadline();
      for (const one of sent) one.settleUnknown(timeoutError("RabbitMQ did not confirm in time."));
    };
    const cancel = after(this.#settings.confirmTimeoutMs, () => {
      stop();
      void this.#dropStuck();
    });
    signal.addEventListener("abort", stop, { once: true });
    if (signal.aborted) stop();
    try {
      const outcomes: Promise<PublishOutcome>[] = [];
      // Messages are sent one after another to keep their order. Their confirms are awaited together.
      for (const item of items) {
        const call = { sent, expired: expiry.signal, deadline, late };
        const { outcome } = this.#sendNow(item, call) ?? (await this.#send(item, call));
        outcomes.push(outcome);
      }
      return await Promise.all(outcomes);
    } finally {
      cancel();
      signal.removeEventListener("abort", stop);
    }
  }

  /** Sends without waiting, the usual case. Returns undefined if sending has to wait or the item has an outcome. */
  #sendNow(item: Item, { sent, expired }: PublishCall): SentMessage | undefined {
    const session = this.#inUse;
    if ("outcome" in item || session === undefined || expired.aborted) return undefined;
    const { live, blocked } = this.#link;
    if (live !== session.live || blocked !== undefined || !session.inFlight.open) return undefined;
    if (item.route !== undefined && !session.ready.has(routeKey(item.route))) return undefined;
    if (!session.inFlight.hasRoom(this.#settings.maxInFlight)) return undefined;
    const message = session.inFlight.send(item.outgoing);
    sent.push(message);
    return message;
  }

  async #send(item: Item, call: PublishCall): Promise<{ readonly outcome: Promise<PublishOutcome> }> {
    if ("outcome" in item) return { outcome: Promise.resolve(item.outcome) };
    try {
      // After the deadline, opening and declaring continue in the background, and the next call uses the result.
      const session = await Promise.race([this.#prepareSession(item.route), call.late]);
      await this.#waitForRoom(session, call);
      const message = session.inFlight.send(item.outgoing);
      call.sent.push(message);
      return { outcome: message.outcome };
    } catch (error) {
      return { outcome: Promise.resolve({ kind: "unreachable", error: toError(error) }) };
    }
  }

  async #prepareSession(route: Route | undefined): Promise<Session> {
    this.#assertUsable();
    this.#session ??= this.#openSession();
    const session = await this.#session;
    if (route === undefined) return session;
    const name = routeKey(route);
    let declared = session.declared.get(name);
    if (declared === undefined) {
      declared = withDeclareChannel(this.#link, session.live, (channel) =>
        declareRoute(channel, route, this.#settings),
      );
      session.declared.set(name, declared);
      declared.then(
        () => session.ready.add(name),
        () => session.declared.delete(name),
      );
    }
    await declared;
    return session;
  }

  async #openSession(): Promise<Session> {
    try {
      const { live } = this.#link;
      if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${this.#link.trouble}`);
      const channel = await this.#link.openConfirmChannel(live);
      const inFlight = new InFlight(channel);
      const stopListening = this.#link.onChange(() => inFlight.wake());
      const session: Session = { live, inFlight, declared: new Map(), ready: new Set() };
      channel.on("close", () => {
        stopListening();
        if (this.#inUse === session) this.#dropSession();
      });
      this.#inUse = session;
      return session;
    } catch (error) {
      this.#session = undefined;
      throw error;
    }
  }

  // A queue that does not confirm blocks its channel, and with it the messages for all other queues.
  async #dropStuck(): Promise<void> {
    const session = await this.#session?.catch(() => undefined);
    if (session?.inFlight.isStuck(this.#settings.confirmTimeoutMs) !== true) return;
    this.#dropSession();
    session.inFlight.abandon();
  }

  #dropSession(): void {
    this.#session = undefined;
    this.#inUse = undefined;
  }

  async #waitForRoom({ inFlight }: Session, { expired, deadline }: PublishCall): Promise<void> {
    while (!inFlight.hasRoom(this.#settings.maxInFlight) && inFlight.open && !expired.aborted) {
      await Promise.race([inFlight.waitForChange(), deadline]);
      this.#assertUsable();
    }
    if (expired.aborted) throw tooLateError();
    if (!inFlight.open)
      throw unreachableError("The connection to RabbitMQ was lost before the message was sent.");
    this.#assertUsable();
  }

  // A blocked broker reads nothing, so messages sent now would only fill the socket's buffer.
  #assertUsable(): void {
    const { live, blocked, trouble } = this.#link;
    if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${trouble}`);
    if (blocked !== undefined)
      throw unreachableError(`RabbitMQ accepts no messages at the moment: ${blocked}.`);
  }
}

const routeKey = ({ exchange, streamQueue }: Route): string => `${exchange} ${streamQueue ?? ""}`;

function tooLateError(): SagaboxError {
  return unreachableError("The deadline for publishing passed before the message was sent.");
}

interface MessageRoute {
  readonly route: Route;
  readonly routingKey: string;
}

const MAX_CACHED_ROUTES = 1_000;

/** Finds the exchange and routing key of a message, and caches them, because many messages share few addresses. */
export class MessageRoutes {
  readonly #settings: TopologySettings;
  readonly #known = new Map<string, MessageRoute>();

  constructor(settings: TopologySettings) {
    this.#settings = settings;
  }

  findRoute(message: Message): MessageRoute {
    const { kind, topic, source, headers } = message;
    const name = `${kind}\0${topic}\0${source}\0${headers["severity"] ?? ""}`;
    const known = this.#known.get(name);
    if (known !== undefined) return known;
    if (this.#known.size >= MAX_CACHED_ROUTES) this.#known.clear();
    const route = routeFor(topic, kind, this.#settings);
    const address = { route, routingKey: routingKeyFor(message, route) };
    this.#known.set(name, address);
    return address;
  }
}

const PUBLISHED: PublishOutcome = Object.freeze({ kind: "published" });

/** A message that was sent and has no outcome yet. Only the first outcome counts. */
class SentMessage {
  readonly outgoing: OutgoingMessage;
  readonly outcome: Promise<PublishOutcome>;
  returned: string | undefined;
  #settle: (outcome: PublishOutcome) => void = () => undefined;

  constructor(outgoing: OutgoingMessage) {
    this.outgoing = outgoing;
    this.outcome = new Promise((resolve) => (this.#settle = resolve));
  }

  /** Settles with the broker's answer; null means confirmed. */
  settleWithAnswer(error: unknown): void {
    if (error === null)
      this.#settle(this.returned === undefined ? PUBLISHED : unroutedOutcome(this.returned));
    else if (error instanceof Error && error.message === "message nacked") this.#settle(nackedOutcome());
    else this.settleUnknown(timeoutError("The connection to RabbitMQ was lost before it confirmed.", error));
  }

  settleRefused(cause: Error): void {
    const text = `AMQP cannot encode this message: ${cause.message}`;
    this.#settle({ kind: "refused", error: new SagaboxError("ENVELOPE_INVALID", text, { cause }) });
  }

  settleUnknown(error: SagaboxError): void {
    this.#settle({ kind: "unknown", error });
  }
}

/** The messages of one confirm channel that the broker has not confirmed yet. */
export class InFlight {
  readonly #channel: ConfirmChannel;
  readonly #unanswered = new Set<SentMessage>();
  #full = false;
  #isOpen = true;
  #answeredAtMs = systemClock.monotonicMs();
  #wake: (() => void)[] = [];

  constructor(channel: ConfirmChannel) {
    this.#channel = channel;
    channel.on("return", ({ fields, properties }) => {
      const { exchange, routingKey } = fields;
      const reason = `exchange ${exchange}, routing key ${routingKey}`;
      for (const sent of this.#unanswered)
        if (isSame(sent.outgoing, { exchange, routingKey, properties })) sent.returned = reason;
    });
    channel.on("drain", () => {
      this.#full = false;
      this.wake();
    });
    channel.on("close", () => {
      this.#isOpen = false;
      this.wake();
    });
  }

  get open(): boolean {
    return this.#isOpen;
  }

  /** Whether messages are unconfirmed and the broker has answered none for `silenceMs`. */
  isStuck(silenceMs: number): boolean {
    return this.#unanswered.size > 0 && systemClock.monotonicMs() - this.#answeredAtMs >= silenceMs;
  }

  /** Closes the channel. The outcome of all unconfirmed messages becomes unknown. */
  abandon(): void {
    if (this.#isOpen) this.#channel.close().catch(() => undefined);
  }

  hasRoom(maxInFlight: number): boolean {
    return !this.#full && this.#unanswered.size < maxInFlight;
  }

  /** Resolves when a message may be sent again: after a confirm, a drain, or the loss of the channel. */
  waitForChange(): Promise<void> {
    return new Promise((resolve) => this.#wake.push(resolve));
  }

  wake(): void {
    if (this.#wake.length === 0) return;
    for (const wake of this.#wake.splice(0)) wake();
  }

  send(outgoing: OutgoingMessage): SentMessage {
    const sent = new SentMessage(outgoing);
    this.#unanswered.add(sent);
    try {
      const { exchange, routingKey, body, properties } = outgoing;
      // False means that the client's buffer is full: this message was accepted, the next one has to wait.
      if (this.#unanswered.size === 1) this.#answeredAtMs = systemClock.monotonicMs();
      this.#full = !this.#channel.publish(exchange, routingKey, body, properties, (error: unknown) => {
        this.#answeredAtMs = systemClock.monotonicMs();
        this.#forget(sent);
        sent.settleWithAnswer(error);
      });
    } catch (error) {
      this.#forget(sent);
      // The client throws these when it cannot encode the message, such as a header that is too long.
      if (error instanceof RangeError || error instanceof TypeError) sent.settleRefused(error);
      else sent.settleWithAnswer(error);
    }
    return sent;
  }

  #forget(sent: SentMessage): void {
    if (this.#unanswered.delete(sent)) this.wake();
  }
}

export type { SentMessage };

type ReturnedFields = Pick<OutgoingMessage, "exchange" | "routingKey" | "properties">;

// A returned message is matched by its id and address. Two messages that are equal in these are both unroutable.
function isSame(one: ReturnedFields, other: ReturnedFields): boolean {
  return (
    (one.properties.messageId ?? "") === (other.properties.messageId ?? "") &&
    one.routingKey === other.routingKey &&
    one.exchange === other.exchange
  );
}

export function timeoutError(message: string, cause?: unknown): SagaboxError {
  return new SagaboxError("TRANSPORT_TIMEOUT", message, cause === undefined ? {} : { cause });
}

function unroutedOutcome(where: string): PublishOutcome {
  const text = `RabbitMQ has no queue for the message: no consumer group has subscribed to it (${where}).`;
  return { kind: "rejected", error: new SagaboxError("TRANSPORT_UNROUTABLE", text) };
}

function nackedOutcome(): PublishOutcome {
  const text = "RabbitMQ did not accept the message: one of its queues is full or not available.";
  return { kind: "unreachable", error: unreachableError(text) };
}
