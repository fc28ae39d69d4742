import { SagaboxError, toError } from "../../errors/index.ts";
import type { Message } from "../../message/index.ts";
import { after } from "../../runtime/index.ts";
import type { PublishOutcome } from "../../transport/index.ts";
import { declareRoute, withDeclareChannel } from "./declare.ts";
import { InFlight, type SentMessage, timeoutError } from "./in-flight.ts";
import { type Link, type LiveConnection, unreachableError } from "./link.ts";
import type { RabbitSettings } from "./options.ts";
import { encodeMessage, type OutgoingMessage } from "./properties.ts";
import { type Route, routeFor, routingKeyFor, type TopologySettings } from "./topology.ts";

/** What holds as long as one channel lives. */
interface Session {
  readonly live: LiveConnection;
  readonly inFlight: InFlight;
  readonly declared: Map<string, Promise<void>>;
  /** Those of them that are done. */
  readonly ready: Set<string>;
}

type Item =
  { readonly parcel: OutgoingMessage; readonly route?: Route } | { readonly outcome: PublishOutcome };

/** One call of publish: when its time is over, what was sent is unknown and nothing more is sent. */
interface PublishCall {
  readonly sent: SentMessage[];
  readonly over: AbortSignal;
  readonly ended: Promise<void>;
  /** Rejects then, for what must not be waited for any longer. */
  readonly late: Promise<never>;
}

/** Sends with confirms, a bounded number at once, and tells what became of each message. */
export class Publisher {
  readonly #link: Link;
  readonly #settings: RabbitSettings;
  readonly #addresses: MessageRoutes;
  #session: Promise<Session> | undefined;
  #inUse: Session | undefined;

  constructor(link: Link, settings: RabbitSettings) {
    this.#link = link;
    this.#settings = settings;
    this.#addresses = new MessageRoutes(settings);
  }

  publish(batch: readonly Message[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    return this.#sendAll(
      batch.map((message) => this.#prepare(message)),
      signal,
    );
  }

  /** A copy of something that came from the broker, to a place that is declared. Throws unless it was confirmed. */
  async forward(parcel: OutgoingMessage): Promise<void> {
    const [outcome] = await this.#sendAll([{ parcel }], new AbortController().signal);
    if (outcome !== undefined && outcome.kind !== "published") throw outcome.error;
  }

  #prepare(message: Message): Item {
    const { maxBytes, format, unrouted } = this.#settings;
    const bytes = Buffer.byteLength(message.data);
    if (bytes > maxBytes) {
      const text = `The data of the message has ${bytes} bytes; at most ${maxBytes} are sent to RabbitMQ.`;
      return { outcome: { kind: "refused", error: new SagaboxError("PAYLOAD_TOO_LARGE", text) } };
    }
    const { route, routingKey } = this.#addresses.findRoute(message);
    const mandatory = message.kind !== "event" || unrouted === "reject";
    const { body, properties } = encodeMessage(message, format, mandatory);
    return { route, parcel: { body, properties, exchange: route.exchange, routingKey } };
  }

  async #sendAll(items: readonly Item[], signal: AbortSignal): Promise<readonly PublishOutcome[]> {
    const over = new AbortController();
    const sent: SentMessage[] = [];
    let end = (): void => undefined;
    const ended = new Promise<void>((resolve) => (end = resolve));
    const late = ended.then(() => Promise.reject<never>(tooLateError()));
    late.catch(() => undefined);
    const stop = (): void => {
      over.abort();
      end();
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
      // One after the other up to the wire, so that they arrive in the order given; confirms are awaited together.
      for (const item of items) {
        const round = { sent, over: over.signal, ended, late };
        const { outcome } = this.#sendNow(item, round) ?? (await this.#send(item, round));
        outcomes.push(outcome);
      }
      return await Promise.all(outcomes);
    } finally {
      cancel();
      signal.removeEventListener("abort", stop);
    }
  }

  /** If nothing has to be waited for, which is the rule. */
  #sendNow(item: Item, { sent, over }: PublishCall): SentMessage | undefined {
    const session = this.#inUse;
    if ("outcome" in item || session === undefined || over.aborted) return undefined;
    const { live, blocked } = this.#link;
    if (live !== session.live || blocked !== undefined || !session.inFlight.open) return undefined;
    if (item.route !== undefined && !session.ready.has(routeKey(item.route))) return undefined;
    if (!session.inFlight.hasRoom(this.#settings.maxInFlight)) return undefined;
    const one = session.inFlight.send(item.parcel);
    sent.push(one);
    return one;
  }

  async #send(item: Item, round: PublishCall): Promise<{ readonly outcome: Promise<PublishOutcome> }> {
    if ("outcome" in item) return { outcome: Promise.resolve(item.outcome) };
    try {
      // What is being opened or declared goes on: the next round finds it done, or is told why it was not.
      const session = await Promise.race([this.#prepareSession(item.route), round.late]);
      await this.#waitForRoom(session, round);
      const one = session.inFlight.send(item.parcel);
      round.sent.push(one);
      return { outcome: one.outcome };
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
      const unhear = this.#link.onChange(() => inFlight.wake());
      const session: Session = { live, inFlight, declared: new Map(), ready: new Set() };
      channel.on("close", () => {
        unhear();
        if (this.#inUse === session) this.#dropSession();
      });
      this.#inUse = session;
      return session;
    } catch (error) {
      this.#session = undefined;
      throw error;
    }
  }

  // One queue that does not answer holds up its channel, and with it all others.
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

  async #waitForRoom({ inFlight }: Session, { over, ended }: PublishCall): Promise<void> {
    while (!inFlight.hasRoom(this.#settings.maxInFlight) && inFlight.open && !over.aborted) {
      await Promise.race([inFlight.waitForChange(), ended]);
      this.#assertUsable();
    }
    if (over.aborted) throw tooLateError();
    if (!inFlight.open) throw unreachableError("The connection to RabbitMQ was lost before it was sent.");
    this.#assertUsable();
  }

  // A blocked broker reads nothing: what was written now would only pile up here.
  #assertUsable(): void {
    const { live, blocked, trouble } = this.#link;
    if (live === undefined) throw unreachableError(`RabbitMQ cannot be reached: ${trouble}`);
    if (blocked !== undefined)
      throw unreachableError(`RabbitMQ takes no messages at the moment: ${blocked}.`);
  }
}

const routeKey = ({ exchange, streamQueue }: Route): string => `${exchange} ${streamQueue ?? ""}`;

function tooLateError(): SagaboxError {
  return unreachableError("The time to publish was over before it was this message's turn.");
}

interface MessageRoute {
  readonly route: Route;
  readonly routingKey: string;
}

const MAX_CACHED_ROUTES = 1_000;

/** Where messages go. They are many and their addresses few, so these are remembered. */
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
