import { SagaboxError } from "../../errors/index.ts";
import { laneSettings, WakeUp } from "../../lanes/index.ts";
import type { Message } from "../../message/index.ts";
import {
  assertMigrated,
  type Database,
  type OwnedTransaction,
  type Queryable,
  quoteSchema,
  toArrayLiteral,
} from "../../storage/index.ts";
import type {
  Beginning,
  Capabilities,
  Consumption,
  Delivery,
  GuestConsumption,
  GuestTerms,
  HomeDatabase,
  Lag,
  LocalHop,
  LocalTransport,
  PlannedGroup,
  PublishOptions,
  PublishOutcome,
  Subscription,
  TopicRequest,
} from "../../transport/index.ts";
import { blockLocalHops, readHorizon } from "./block-local-hops.ts";
import { measureQueueLags } from "./lag.ts";
import {
  postgresSettings,
  type PostgresTransportOptions,
  type PostgresTransportSettings,
} from "./options.ts";
import { ParkedKeys } from "./parked-keys.ts";
import { publishToQueue } from "./publisher.ts";
import { hopStatements } from "./statements.ts";
import { subscribeStatements, type SubscribeStatements } from "./subscribe-statements.ts";
import { Subscriber } from "./subscriber.ts";

const CAPABILITIES: Capabilities = Object.freeze({
  ordersByKey: true,
  ordersRetries: true,
  failsLaterOfKey: true,
  delaysRedelivery: true,
  keepsUnrouted: true,
  rejectsUnrouted: false,
  replays: true,
  replaysFromTime: true,
  reportsLag: true,
  maxBytes: 256 * 1_048_576,
});

/**
 * The transport that keeps messages in tables of the bus's own database. The bus passes that database to `attach`.
 */
export class PostgresTransport implements LocalTransport {
  readonly name = "postgres";
  readonly capabilities = CAPABILITIES;
  readonly #settings: PostgresTransportSettings;
  readonly #subscribers = new Set<Subscriber>();
  readonly #writing = new Set<Promise<unknown>>();
  #home: HomeDatabase | undefined;
  #wakeUp: WakeUp | undefined;
  #closed = false;

  constructor(settings: PostgresTransportSettings) {
    this.#settings = settings;
  }

  attach(home: HomeDatabase): LocalHop {
    this.#home = home;
    const { database, channel, schema } = home;
    const wakeUp = new WakeUp({ database, channel, local: (lanes) => this.#hintSubscribers(lanes) });
    this.#wakeUp = wakeUp;
    return { ...hopStatements(quoteSchema(schema)), wake: (lanes) => wakeUp.notifyNow(lanes) };
  }

  async open(): Promise<void> {
    const { database, schema } = this.#requireHome();
    await assertMigrated(database, schema);
    this.#closed = false;
  }

  async publish(batch: readonly Message[], { signal }: PublishOptions): Promise<readonly PublishOutcome[]> {
    if (this.#closed) return batch.map(() => ({ kind: "unreachable", error: closedError() }));
    const writing = publishToQueue(this.#requireHome(), batch).then(({ outcomes, woken }) => {
      this.#writing.delete(writing);
      if (woken.length > 0) this.#wakeUp?.notifyNow(woken);
      return outcomes;
    });
    this.#writing.add(writing);
    return unknownOnAbort(writing, batch.length, signal);
  }

  async subscribe(subscription: Subscription, receive: (delivery: Delivery) => void): Promise<Consumption> {
    const { subscriber, begun } = await this.#subscribe(subscription, receive);
    return {
      begun,
      pause: () => subscriber.pause(),
      health: () => subscriber.health(),
      close: () => this.#close(subscriber),
    };
  }

  async subscribeAsGuest(
    subscription: Subscription,
    guest: GuestTerms,
    receive: (delivery: Delivery) => void,
  ): Promise<GuestConsumption> {
    const { subscriber, begun } = await this.#subscribe(subscription, receive, guest);
    return {
      begun,
      get view() {
        return subscriber.view;
      },
      get isIdle() {
        return subscriber.isIdle;
      },
      get inFlight() {
        return subscriber.inFlight;
      },
      sweep: () => subscriber.sweep(),
      isMoreDue: () => subscriber.isMoreDue(),
      pause: () => subscriber.pause(),
      health: () => subscriber.health(),
      close: () => this.#close(subscriber),
    };
  }

  async #subscribe(
    subscription: Subscription,
    receive: (delivery: Delivery) => void,
    guest?: GuestTerms,
  ): Promise<{ readonly subscriber: Subscriber; readonly begun: readonly Beginning[] }> {
    const { database, schema, leaseMs, observer } = this.#requireHome();
    const { id, begun } = await subscribeGroup(database, schema, subscription.group, subscription.topics);
    const subscriber = new Subscriber({
      database: guest?.database ?? database,
      schema,
      group: id,
      subscription,
      lanes: laneSettings({ lease: leaseMs }),
      pollMs: this.#settings.pollIntervalMs,
      observer,
      receive,
      ...(guest === undefined ? {} : { guest }),
    });
    await subscriber.start();
    this.#subscribers.add(subscriber);
    return { subscriber, begun };
  }

  async #close(subscriber: Subscriber): Promise<void> {
    this.#subscribers.delete(subscriber);
    await subscriber.close();
  }

  /** Returns the parked keys of a broker's group. Creates the group if it does not exist. */
  async openParkedKeys(group: string): Promise<ParkedKeys> {
    const home = this.#requireHome();
    const { id } = await subscribeGroup(home.database, home.schema, group, []);
    return new ParkedKeys(home, id, (lanes) => this.#wakeUp?.notifyNow(lanes));
  }

  async lags(groups: readonly PlannedGroup[]): Promise<readonly Lag[]> {
    const { database, schema } = this.#requireHome();
    return measureQueueLags(
      database,
      schema,
      groups.map(({ group }) => group),
    );
  }

  hint(lanes: readonly number[] | undefined, changed = false): void {
    for (const subscriber of this.#subscribers) {
      if (changed && lanes !== undefined) subscriber.recheck(lanes);
      else subscriber.hint(lanes);
    }
  }

  async close(): Promise<void> {
    this.#closed = true;
    await Promise.allSettled(this.#writing);
    await this.#wakeUp?.close();
    await Promise.all([...this.#subscribers].map((subscriber) => subscriber.close()));
    this.#subscribers.clear();
  }

  #hintSubscribers(lanes: readonly number[]): boolean {
    const left = new Set(lanes);
    for (const subscriber of this.#subscribers) for (const lane of subscriber.hint(lanes)) left.delete(lane);
    return left.size === 0;
  }

  #requireHome(): HomeDatabase {
    if (this.#home !== undefined) return this.#home;
    throw new SagaboxError(
      "TRANSPORT_UNREACHABLE",
      "The Postgres transport works inside a bus: pass it to createBus().",
    );
  }
}

// When the sender gives up, the statement may still succeed or fail on the server.
function unknownOnAbort(
  writing: Promise<readonly PublishOutcome[]>,
  count: number,
  signal: AbortSignal,
): Promise<readonly PublishOutcome[]> {
  const error = new SagaboxError("TRANSPORT_TIMEOUT", "PostgreSQL did not confirm the messages in time.");
  return new Promise((resolve, reject) => {
    const giveUp = (): void => resolve(Array.from({ length: count }, () => ({ kind: "unknown", error })));
    if (signal.aborted) giveUp();
    signal.addEventListener("abort", giveUp, { once: true });
    writing.then(resolve, reject).finally(() => signal.removeEventListener("abort", giveUp));
  });
}

function closedError(): SagaboxError {
  return new SagaboxError("TRANSPORT_UNREACHABLE", "The Postgres transport is closed.");
}

/**
 * Creates the Postgres transport. It is the default, so `createBus({ transport: postgres() })` is only needed to set
 * options.
 */
export function postgres(options: PostgresTransportOptions = {}): PostgresTransport {
  return new PostgresTransport(postgresSettings(options));
}

interface SubscribeContext {
  readonly database: Database;
  readonly schema: string;
  readonly sql: SubscribeStatements;
  readonly group: number;
  /** Read once per subscribe call: an earlier day is also correct for the topics that follow. */
  readonly horizon: { day?: string };
}

/** The id of a group and the topics it newly subscribed to. */
interface GroupSubscription {
  readonly id: number;
  readonly begun: readonly Beginning[];
}

/** Creates the group and its lanes if they do not exist, and subscribes it to these topics. */
export async function subscribeGroup(
  database: Database,
  schema: string,
  group: string,
  topics: readonly TopicRequest[],
): Promise<GroupSubscription> {
  const sql = subscribeStatements(quoteSchema(schema));
  await database.run(sql.createGroup, [group]);
  const { rows } = await database.run<{ id: number }>(sql.findGroup, [group]);
  const id = rows[0]?.id;
  if (id === undefined) throw new Error(`consumer group ${group} was deleted while it was being created`);
  await database.run(sql.createLanes, [id]);
  const context = { database, schema, sql, group: id, horizon: {} };
  const begun: Beginning[] = [];
  for (const request of topics) begun.push(...(await subscribeTopic(context, request)));
  return { id, begun };
}

async function subscribeTopic(
  context: SubscribeContext,
  { topic, from }: TopicRequest,
): Promise<Beginning[]> {
  const { database, sql, group } = context;
  const state = await readSubscriptionState(database, context, topic);
  if (state.now === "subscribed") return [];
  if (from !== "now" && needsHistory(from, state)) {
    const past = await subscribeWithHistory(context, topic, from);
    if (past !== "others came first") return [{ topic, from: past }];
  }
  const { rows } = await database.run(sql.subscribe, [topic, group]);
  return rows.length > 0 ? [{ topic, from: "now" }] : [];
}

interface SubscriptionState {
  readonly now: "subscribed" | "claimed by others" | "unclaimed";
  /** When the topic's last consumer was retired, or null. */
  readonly retiredAt: string | null;
}
type WithHistory = Exclude<TopicRequest["from"], "now">;

async function readSubscriptionState(
  connection: Queryable,
  { sql, group }: SubscribeContext,
  topic: string,
): Promise<SubscriptionState> {
  const [row] = (await connection.run<SubscriptionStateRow>(sql.standing, [topic, group])).rows;
  const others = row?.claimed === true ? "claimed by others" : "unclaimed";
  return { now: row?.present === true ? "subscribed" : others, retiredAt: row?.retired_at ?? null };
}

interface SubscriptionStateRow {
  readonly present: boolean;
  readonly claimed: boolean;
  readonly retired_at: string | null;
}

function needsHistory(from: WithHistory, { now }: SubscriptionState): boolean {
  return now === "unclaimed" || (now === "claimed by others" && from !== "unclaimed");
}

// Commands sent before a consumer was retired went to that consumer. Copying them would run them a second time.
function findHistoryStart(from: WithHistory, { retiredAt }: SubscriptionState): string {
  if (typeof from === "object") return from.time.toISOString();
  return from === "unclaimed" ? (retiredAt ?? "-infinity") : "-infinity";
}

/**
 * Copies history in the transaction that makes the subscription visible, so every message is either in the copy or
 * matched by the subscription, never both and never neither. The long copy blocks nothing. Only messages that left
 * the outbox since are copied while local hops are blocked, and only the last days are searched for them.
 */
async function subscribeWithHistory(
  context: SubscribeContext,
  topic: string,
  from: WithHistory,
): Promise<Beginning["from"] | "others came first"> {
  const { database, schema, sql, group, horizon } = context;
  const tx = await database.begin();
  try {
    await tx.run(sql.inTurn, [schema]);
    const state = await readSubscriptionState(tx, context, topic);
    if (!needsHistory(from, state)) return await rollBackLateJoin(tx);
    const since = findHistoryStart(from, state);
    const day = (horizon.day ??= await readHorizon(tx, sql));
    const past = await tx.run<{ stayed: readonly string[] }>(sql.copyPast, [topic, group, since, day]);
    await blockLocalHops(tx, sql);
    const { rows: made } = await tx.run<{ others: number }>(sql.subscribe, [topic, group]);
    const [mine] = made;
    if (mine === undefined || (from === "unclaimed" && mine.others > 0)) return await rollBackLateJoin(tx);
    const stayed = toArrayLiteral(past.rows[0]?.stayed ?? []);
    await tx.run(sql.copyRest, [topic, group, since, day, stayed]);
    await tx.commit();
    return since === "-infinity" ? "beginning" : { time: new Date(since) };
  } catch (error) {
    await tx.rollback();
    throw error;
  }
}

// Another member of this group subscribed first, or another group claimed the topic: nothing is copied.
async function rollBackLateJoin(tx: OwnedTransaction): Promise<"others came first"> {
  await tx.rollback();
  return "others came first";
}

/** The number of rows deleted for a retired group. */
export interface RetiredGroup {
  readonly subscriptions: number;
  readonly deliveries: number;
}

/**
 * Deletes a group's subscriptions and deliveries in the caller's transaction. Most are deleted while hops continue;
 * the deliveries of hops that were running are deleted while hops are blocked. Returns undefined if a member of the
 * group is alive; the caller then rolls back.
 */
export async function retireGroup(
  tx: OwnedTransaction,
  schema: string,
  group: number,
): Promise<RetiredGroup | undefined> {
  const sql = subscribeStatements(quoteSchema(schema));
  const [most] = (await tx.run<RetiredGroup>(sql.retire, [group])).rows;
  if (most === undefined) return undefined;
  await blockLocalHops(tx, sql);
  const [rest] = (await tx.run<RetiredGroup>(sql.retire, [group])).rows;
  if (rest === undefined) return undefined;
  return {
    subscriptions: most.subscriptions + rest.subscriptions,
    deliveries: most.deliveries + rest.deliveries,
  };
}
