import { deadLetterStore, type DeadLetterStore } from "../dead-letter/index.ts";
import { Flows } from "../flow/index.ts";
import { HandlerRegistry, inboxEngine, type InboxEngine, type OutgoingScope } from "../inbox/index.ts";
import { laneSettings, WakeUp } from "../lanes/index.ts";
import { type Attachment, createIdSource, type IdSource, poolRandomBytes } from "../message/index.ts";
import {
  Admission,
  compose,
  type Compose,
  DepthWatch,
  Destinations,
  Flusher,
  History,
  OptimisticSender,
  type OutboxSettings,
  OutboxWriter,
  PollingRelay,
  type PollingRelayOptions,
  ScheduleMover,
  type ScopeParts,
  TransactionScope,
} from "../outbox/index.ts";
import { ParkingTransport } from "../parking/index.ts";
import {
  attachmentVault,
  createPrivacyEngine,
  createSagaVault,
  MessageCipher,
  PersonalTypes,
  type PrivacyEngine,
  type ReplyCipher,
  withoutKeys,
} from "../privacy/index.ts";
import { Replies, replyConsumer, Requests } from "../requests/index.ts";
import { randomBytes, systemClock } from "../runtime/index.ts";
import { SagaResults, Sagas } from "../saga/index.ts";
import {
  type Database,
  leasedStatementMs,
  limitStatements,
  beginInLibrary,
  type OwnedTransaction,
  type TransactionOptions,
  pgDatabase,
  type Queryable,
  toArrayLiteral,
  toQueryable,
  withBriefSessions,
} from "../storage/index.ts";
import { type Observer, Spans, type Tracing } from "../telemetry/index.ts";
import {
  type BrokerTopology,
  type HomeDatabase,
  isLocalTransport,
  type LocalHop,
  type PlannedGroup,
  type Transport,
} from "../transport/index.ts";
import { postgres, type PostgresTransport } from "../transports/postgres/index.ts";
import type { BusSettings } from "./bus-options.ts";
import { handOver, type StartInScope } from "./bus-transaction.ts";
import { type BusClaimCheck, type PayloadCipher, Payloads, wireClaimCheck } from "./payloads.ts";
import { createOpenTransaction, sagaTransactionFor, startInScope } from "./saga-transaction.ts";
import type { SagaWatch } from "./saga-watch.ts";

type GuestRelay = Required<Pick<PollingRelayOptions, "database" | "observer" | "guest">>;

/** The components of one bus. `wireParts` builds them once; this file only wires and decides nothing. */
export interface Parts {
  readonly settings: BusSettings;
  readonly outbox: OutboxSettings;
  readonly database: Database;
  /** `database` with a statement timeout well below the lease. */
  readonly leased: Database;
  /** Where a worker listens and keeps sessions: `leased`, unless that goes through a pooler and there is a `directUrl`. */
  readonly direct: Database;
  readonly transport: Transport;
  /** With a broker that cannot keep the order of retries: the tables that hold the failed messages of a key. */
  readonly tables: PostgresTransport | undefined;
  readonly channel: string;
  readonly observer: Observer;
  readonly compose: Compose;
  readonly admission: Admission;
  readonly writer: OutboxWriter;
  /** Joins the open transaction of a caller. Throws if `tx` is not one. */
  readonly join: (tx: unknown) => Queryable;
  readonly sender: OptimisticSender;
  readonly flusher: Flusher;
  readonly wakeUp: WakeUp;
  readonly relay: PollingRelay;
  /** Creates the relay of a drain. */
  readonly openRelay: (guest: GuestRelay) => PollingRelay;
  readonly destinations: Destinations;
  readonly depthWatch: DepthWatch | undefined;
  readonly mover: ScheduleMover;
  readonly history: History;
  readonly inbox: InboxEngine;
  readonly deadLetters: DeadLetterStore;
  readonly claimCheck: BusClaimCheck;
  readonly scope: (tx: OwnedTransaction) => TransactionScope;
  /** Begins a transaction for code of the user: in the user's library, or in `database`. */
  readonly beginForUser: Database["begin"];
  readonly startIn: StartInScope;
  readonly replies: Replies;
  readonly requests: Requests;
  readonly sagas: Sagas;
  readonly sagaWatch: SagaWatch;
  readonly sagaResults: SagaResults;
  readonly flows: Flows;
  readonly personalTypes: PersonalTypes;
  /** Undefined without a key ring. */
  readonly privacy: PrivacyEngine | undefined;
}

export function wireParts(
  settings: BusSettings,
  chosenTransport: Transport,
  observer: Observer,
  registry: HandlerRegistry,
  { tracing, watch }: { readonly tracing?: Tracing | undefined; readonly watch: SagaWatch },
): Parts {
  const { schema, worker } = settings;
  const spans = new Spans(tracing, chosenTransport.name);
  const { outbox } = settings;
  const { directUrl } = settings;
  const isPooled = directUrl !== undefined;
  const database = openDatabase(settings.database, isPooled);
  // Used by work that holds a lease, and where a message or a caller waits. Upkeep has no such limit.
  const statementMs = leasedStatementMs(settings.leaseMs);
  const leased = limitStatements(database, statementMs);
  const direct =
    isPooled && directUrl !== false ? limitStatements(pgDatabase(directUrl), statementMs) : leased;
  const channel = `sagabox_${schema}`.slice(0, 63); // PostgreSQL truncates longer names
  const home = { database: direct, schema, channel, leaseMs: settings.leaseMs, observer };
  const hop = createLocalHop(chosenTransport, home);
  const { transport, tables } = addParking(chosenTransport, home);
  const destinations = new Destinations({ breaker: outbox.breaker, observer });
  const shared = {
    database: leased,
    schema,
    worker,
    transport,
    hop,
    settings: outbox,
    destinations,
    observer,
    spans,
  };
  const lanes = laneSettings({ lease: settings.leaseMs });
  const relay = new PollingRelay({ ...shared, lanes, database: direct });
  const openRelay = (guest: GuestRelay): PollingRelay => new PollingRelay({ ...shared, lanes, ...guest });
  const wakeUp = new WakeUp({
    database: leased,
    channel,
    local: (lanes) => relay.hint(lanes),
    owns: (lanes) => relay.owns(lanes),
  });
  const sender = new OptimisticSender({ ...shared, onReleased: (lanes) => wakeUp.notifyNow(lanes) });
  const mover = new ScheduleMover({
    database: leased,
    schema,
    observer,
    onMoved: (lanes) => wakeUp.notifyNow(lanes),
  });
  const writer = new OutboxWriter(schema, observer);
  const admission = new Admission({ database: leased, schema, overflow: outbox.overflow, observer });
  const newId = createIdSource({ wallMs: () => systemClock.wallMs(), randomBytes });
  const privacy = createPrivacyEngine({ database, schema, settings: settings.privacy });
  const seal: PayloadCipher & ReplyCipher =
    privacy === undefined ? withoutKeys : new MessageCipher(privacy.keys, privacy.index);
  const claimCheck = wireClaimCheck(
    settings,
    outbox,
    chosenTransport,
    { ...home, database },
    attachmentVault(privacy),
  );
  const { service } = settings;
  const personalTypes = new PersonalTypes({ database: leased, schema, service });
  const payloads = new Payloads(claimCheck.shelf, seal, (contract) => personalTypes.registerSoon(contract));
  const composeOne = createCompose(settings, outbox, newId, payloads, spans);
  const scopeParts: ScopeParts = {
    compose: composeOne,
    admit: (outgoing) => (admission.active ? admission.admit(outgoing) : outgoing),
    writer,
    sender,
    wakeUp,
    observer,
    onScheduled: () => mover.wake(),
  };
  const scope = (tx: OwnedTransaction): TransactionScope => new TransactionScope(tx, scopeParts);
  // Sagas are wired below. Nothing can be started before this function has returned.
  const startIn: StartInScope = (tx, within, saga, input) => startInScope(sagas, tx, within, saga, input);
  const { transactions } = settings;
  const beginForUser = (from: Database, limits: TransactionOptions = {}): Promise<OwnedTransaction> =>
    transactions === undefined ? from.begin(limits) : beginInLibrary(transactions, from, limits);
  const inbox = inboxEngine({
    database: leased,
    begin: (limits) => beginForUser(leased, limits),
    schema,
    openScope: (tx) => handlerScope(tx, scope(tx), startIn, claimCheck),
    unpack: payloads.unpack,
    encryptReply: (contract, data, reply, tx) => seal.encryptReply(contract, data, reply, tx),
    observer,
    spans,
    leaseMs: settings.leaseMs,
  });
  const deadLetters = deadLetterStore(database, schema);
  const replies = new Replies({ database: leased, schema, observer });
  const requests = new Requests({
    service,
    database: leased,
    compose: composeOne,
    scope,
    replies,
    openReply: (name, reply) => seal.openReply(name, reply),
    makeConsumer: (lease) =>
      replyConsumer({ engine: inbox, transport, lease, worker, service, schema, channel }),
    observer,
    spans,
  });
  const sagas = new Sagas({
    service,
    database: leased,
    schema,
    worker,
    leaseMs: settings.leaseMs,
    stopDeadlineMs: drainMs(settings.shutdownTimeoutMs),
    settings: settings.sagas,
    compose: composeOne,
    newId,
    observer,
    spans,
    vault: privacy === undefined ? undefined : createSagaVault(privacy),
    openReply: (name, reply, tx) => seal.openReply(name, reply, tx),
    discardDeadLetters: (tx, ids) => tx.run(deadLetters.sql.discardMessages, [toArrayLiteral(ids)]),
    begin: createOpenTransaction(
      { begin: (limits) => leased.begin(limits), beginForUser: (limits) => beginForUser(leased, limits) },
      scope,
      startIn,
    ),
    library: transactions?.name ?? null,
    transactionOf: sagaTransactionFor,
  });
  return {
    settings,
    outbox,
    database,
    leased,
    direct,
    transport,
    tables,
    channel,
    observer,
    compose: composeOne,
    admission,
    writer,
    join: (tx) => toQueryable(tx, isPooled),
    sender,
    flusher: new Flusher(leased, schema, sender),
    wakeUp,
    relay,
    openRelay,
    destinations,
    depthWatch:
      outbox.brokerDepth === null && chosenTransport.depths === undefined
        ? undefined
        : new DepthWatch({
            transport: chosenTransport,
            destinations,
            limits: outbox.brokerDepth,
            consumed: () => listTopics(registry),
            observer,
          }),
    mover,
    history: new History({
      database,
      schema,
      retentionMs: outbox.retentionMs,
      observer,
    }),
    inbox,
    deadLetters,
    claimCheck,
    scope,
    beginForUser: (limits) => beginForUser(database, limits),
    startIn,
    replies,
    requests,
    sagas,
    sagaWatch: watch,
    sagaResults: new SagaResults({
      engine: sagas.engine,
      database: leased,
      channel,
      observer,
      listen: (onChanged) => watch.listen((news) => news.kind === "changed" && onChanged(news.id, news.to)),
    }),
    flows: new Flows({ database, schema, registry }),
    personalTypes,
    privacy,
  };
}

/** Behind a pooler in transaction mode, a session holds no connection: each of its statements is a transaction. */
function openDatabase(source: BusSettings["database"], isPooled: boolean): Database {
  const database = pgDatabase(source, { isPooled });
  return isPooled ? withBriefSessions(database) : database;
}

function createCompose(
  settings: BusSettings,
  outbox: OutboxSettings,
  newId: IdSource,
  payloads: Payloads,
  spans: Spans,
): Compose {
  const context = {
    service: settings.service,
    newId,
    randomBytes: poolRandomBytes(randomBytes),
    routing: settings.routing,
    maxAttempts: outbox.retry.maxAttempts,
    pack: payloads.pack,
    spans,
  };
  return (contract, data, options, tx) => compose(context, contract, data, options, tx);
}

/** Wraps a broker that cannot keep a key's order across retries: failed messages then wait in PostgreSQL. */
function addParking(broker: Transport, home: HomeDatabase): Pick<Parts, "transport" | "tables"> {
  if (broker.capabilities.ordersRetries) return { transport: broker, tables: undefined };
  const tables = postgres();
  tables.attach(home);
  return { transport: new ParkingTransport(broker, tables, home.observer), tables };
}

function createLocalHop(transport: Transport, home: HomeDatabase): LocalHop | undefined {
  return isLocalTransport(transport) ? transport.attach(home) : undefined;
}

function listTopics(registry: HandlerRegistry): string[] {
  return registry.consumers().flatMap(({ handlers }) => Array.from(handlers.values(), ({ topic }) => topic));
}

function handlerScope(
  tx: OwnedTransaction,
  scope: TransactionScope,
  startIn: StartInScope,
  { open }: Pick<BusClaimCheck, "open">,
): OutgoingScope {
  return {
    ...handOver(tx, scope, startIn),
    open: (attachment: Attachment) => open(attachment, tx),
    waitForPending: () => scope.waitForPending(),
    lastStatements: () => scope.lastStatements(),
    handleCommit: (answers) => scope.handleCommit(answers),
  };
}

/** The topics that a service consumes, and the broker objects and permissions they need. */
export interface BusTopology extends BrokerTopology {
  readonly service: string;
  readonly transport: string;
  readonly groups: readonly PlannedGroup[];
}

/** Describes consumed topics only. Published topics are known at publish time, and the reply topic at the first request. */
export function describeTopology(
  { settings, transport, sagas }: Pick<Parts, "settings" | "transport" | "sagas">,
  registry: HandlerRegistry,
): BusTopology {
  const { service } = settings;
  const sagaRegistry = new HandlerRegistry(settings.routing);
  sagas.describe(sagaRegistry);
  const own = registry.consumers();
  const more = sagaRegistry.consumers().filter(({ name }) => !own.some((consumer) => consumer.name === name));
  const groups = [...own, ...more].map(({ name, settings: { ordered }, handlers }) => {
    const topics = new Map([...handlers.values()].map(({ topic, contract }) => [topic, contract.kind]));
    return { service, group: name, ordered, topics: [...topics].map(([topic, kind]) => ({ topic, kind })) };
  });
  const declared = transport.declares?.(groups) ?? { objects: [], permissions: [] };
  return { service, transport: transport.name, groups, ...declared };
}

/** Returns how long handlers and local steps may run after stop(): the shutdown timeout less a reserve for closing. */
export function drainMs(shutdownMs: number): number {
  return shutdownMs - Math.min(3_000, shutdownMs / 5);
}
