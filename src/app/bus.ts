import type { Readable } from "node:stream";
import type {
  BuryOptions,
  DeadLetterAdmin,
  DiscardOptions,
  GroupFilter,
  ReplayFilter,
  StagedReplayOptions,
} from "../admin/index.ts";
import { type Acting, readActing } from "../audit/index.ts";
import type { AttachOptions, ByteSource } from "../claim-check/index.ts";
import {
  type DeadLetterStore,
  discardDeadLetter,
  listDeadLetters,
  replayDeadLetter,
  showDeadLetter,
} from "../dead-letter/index.ts";
import { SagaboxError } from "../errors/index.ts";
import type { Flows } from "../flow/index.ts";
import {
  type BusTransaction,
  type DeliveredRecord,
  type HandledRecord,
  type HandlerRegistry,
  Inbox,
  type Startable,
} from "../inbox/index.ts";
import type { WakeUp } from "../lanes/index.ts";
import {
  type AnyCommand,
  type AnyEvent,
  type AnyContract,
  type Attachment,
  currentMessageContext,
  type InputOf,
  type Published,
  type PublishOptions,
  type ReplyOf,
  resolveTopic,
  type GivenInput,
} from "../message/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import { canLease, ensurePartitions, type Outgoing, republish, toPublished } from "../outbox/index.ts";
import type { RequestOptions } from "../requests/index.ts";
import { systemClock } from "../runtime/index.ts";
import type { HasDefinition, Phase, Saga, Started } from "../saga/index.ts";
import {
  type CallerTransaction,
  explainPostgresError,
  migrateUp,
  type Migration,
  type NeededRole,
  type Queryable,
  quoteSchema,
} from "../storage/index.ts";
import { busAudit, type BusAudit } from "./bus-audit.ts";
import { busPrivacy, type BusPrivacy } from "./bus-privacy.ts";
import { busSagas, type BusSagas } from "./bus-sagas.ts";
import {
  type BusTransactionOptions,
  composeAll,
  findOwned,
  findScope,
  handOver,
  isInsideTransaction,
  listStatements,
  type PreparedMessage,
  runInsideTransaction,
  type SqlStatement,
  type StatementsOptions,
  type TransactionTools,
  transactionLimits,
} from "./bus-transaction.ts";
import { busPayloads, type BusPayloads } from "./payloads.ts";
import { type AdminOperations, loadAdmin } from "./load-admin.ts";
import type { DrainOptions, DrainResult } from "./drain.ts";
import type { BusTopology, Parts } from "./parts.ts";
import { registerStart, startSaga, type StartInput, type StartOnOptions } from "./saga-transaction.ts";
import type { Running, RunOptions, StopResult, Worker } from "./worker.ts";

type RepublishOptions = Parameters<typeof republish>[2];

const REQUEST_KEYS = [
  "timeout",
  "id",
  "key",
  "topic",
  "priority",
  "ttl",
  "headers",
  "correlationId",
  "traceparent",
];

/**
 * The API of a service: publishes messages, registers handlers and sagas, and runs the worker behind them.
 * `createBus()` creates it.
 */
export class Bus<Tx = BusTransaction> {
  /** Registers a handler for one message type. Throws if the consumer already has a handler for the type. */
  readonly on: HandlerRegistry<Tx>["on"];
  /** Registers a handler that receives messages of one type in batches. */
  readonly onBatch: HandlerRegistry<Tx>["onBatch"];
  /** Deduplicates messages in a consumer loop of your own, so that each one takes effect exactly once. */
  readonly inbox: Inbox;
  /** Watches declared event flows and returns the path of a correlation id. */
  readonly flows: Pick<Flows, "watch" | "paths" | "unfinished" | "declarations">;
  /** Lists, shows and repairs saga instances. */
  readonly sagas: BusSagas;
  /** Lists, replays, edits and discards dead letters. */
  readonly deadLetters: BusDeadLetters;
  /** Lists, seals and verifies the audit log. */
  readonly audit: BusAudit;
  /** Exports, holds and erases the personal data of a data subject. */
  readonly privacy: BusPrivacy;
  /** Maintains the stores of large payloads and attachments. */
  readonly payloads: BusPayloads;
  readonly #parts: Parts;
  readonly #worker: Worker;

  constructor(parts: Parts, registry: HandlerRegistry<Tx>, worker: Worker) {
    this.#parts = parts;
    this.#worker = worker;
    this.inbox = new Inbox(parts.inbox, parts.settings.inbox);
    this.flows = parts.flows;
    this.sagas = busSagas(parts);
    this.privacy = busPrivacy(parts, this.sagas);
    this.deadLetters = busDeadLetters(parts, registry);
    this.audit = busAudit(parts);
    this.payloads = busPayloads(parts.claimCheck);
    this.on = registry.on.bind(registry);
    this.onBatch = registry.onBatch.bind(registry);
  }

  /**
   * Writes a message to the outbox in the caller's open transaction. The message is sent if and only if that transaction
   * commits. Throws if the data violate the contract or `tx` is not an open transaction.
   */
  publish<C extends AnyContract>(
    tx: CallerTransaction | BusTransaction | Tx,
    contract: C,
    data: InputOf<C>,
    options?: PublishOptions,
  ): Promise<Published> {
    const scope = findScope(tx);
    if (scope !== undefined) return scope.publish(contract, data, options);
    const compose = async (): Promise<Outgoing> =>
      this.#parts.compose(contract, data, options, this.#joinLazily(tx));
    return compose().then(async (outgoing) => {
      const [published] = await this.#write(tx, [outgoing]);
      return published ?? { id: outgoing.message.id, written: false };
    });
  }

  /** Publishes several messages, made by `message()`, in as few statements as their size allows. Throws like `publish`. */
  publishAll(
    tx: CallerTransaction | BusTransaction | Tx,
    ...messages: readonly (PreparedMessage | readonly PreparedMessage[])[]
  ): Promise<Published[]> {
    const scope = findScope(tx);
    const prepared = messages.flat() as PreparedMessage[];
    const all = (): Promise<Outgoing[]> =>
      composeAll(this.#parts.compose, prepared, findOwned(tx) ?? this.#joinLazily(tx));
    if (scope === undefined) return all().then((outgoing) => this.#write(tx, outgoing));
    return scope.during(async () => scope.addAll(await all()));
  }

  /**
   * Returns the statements that write a message, for a driver that takes a list of statements. Run them in order in the
   * transaction of your own rows; a relay sends the message after its commit. Throws like `publish`. An empty array means
   * that the overflow policy drops the message.
   */
  async statements<C extends AnyContract>(
    contract: C,
    data: InputOf<C>,
    options?: StatementsOptions,
  ): Promise<SqlStatement[]> {
    return listStatements(this.#parts, contract, data, options);
  }

  /**
   * Runs `work` in a new transaction and commits it. Messages are written in the same round trip as the COMMIT and sent
   * right after it. If `work` throws, the transaction is rolled back, nothing is published and the error is rethrown.
   */
  async transaction<T>(
    work: (tx: Tx, tools: TransactionTools) => Promise<T>,
    options: BusTransactionOptions = {},
  ): Promise<T> {
    const limits = transactionLimits(work, options);
    if (options.topics !== undefined) await this.admit(...options.topics);
    const tx = await this.#parts.beginForUser(limits);
    const scope = this.#parts.scope(tx);
    try {
      const { tx: handed, ...tools } = handOver(tx, scope, this.#parts.startIn);
      const result = await runInsideTransaction(() => work(handed as Tx, tools));
      if (scope.hasPending) await scope.waitForPending();
      scope.handleCommit(await tx.commit(scope.lastStatements(), scope.afterword()));
      return result;
    } catch (error) {
      await tx.rollback();
      throw this.#explain(error);
    }
  }

  /**
   * Sends a command and resolves with its reply. Throws a `RequestError` if the command fails or `timeout` passes, and
   * REQUEST_IN_TRANSACTION inside a handler or `bus.transaction()`, where waiting would hold a connection and locks.
   */
  async request<C extends AnyCommand>(
    contract: C,
    data: InputOf<C>,
    options: RequestOptions,
  ): Promise<ReplyOf<C>> {
    rejectUnknownKeys("bus.request", options, REQUEST_KEYS);
    if (currentMessageContext() !== undefined || isInsideTransaction()) throw requestInTransaction();
    return this.#parts.requests.request(contract, data, options);
  }

  /**
   * Sends the messages that this process published with `{ flush: true }`. Call it after your own COMMIT. Without the
   * call, the relay sends those messages when their short lease expires.
   */
  async flush(): Promise<void> {
    await this.#parts.flusher.flush();
  }

  /**
   * With the overflow policy "wait", resolves when the outbox has room for messages to these topics. Call it before BEGIN,
   * so that the wait holds no locks. With other policies it resolves at once.
   */
  async admit(...topics: readonly (AnyContract | string)[]): Promise<void> {
    const names = topics.map((topic) =>
      typeof topic === "string" ? topic : resolveTopic(topic, this.#parts.settings.routing),
    );
    await this.#parts.admission.admitBefore(names);
  }

  /**
   * Uploads bytes or a stream to the claim-check store and resolves with a reference to put into message data. The store
   * keeps the bytes while a message refers to them. Throws CLAIM_STORE_UNKNOWN without a claim check.
   */
  async attach(source: ByteSource, options?: AttachOptions): Promise<Attachment> {
    return this.#parts.claimCheck.attach(source, options);
  }

  /** Streams the bytes of an attachment. The stream emits an error if the stored bytes do not match the reference. */
  open(attachment: Attachment): Readable {
    return this.#parts.claimCheck.open(attachment);
  }

  /** Registers the sagas that this process starts or runs. Register every version that still has unfinished instances. */
  register(...sagas: readonly HasDefinition[]): void {
    this.#parts.sagas.register(...sagas);
  }

  /**
   * Starts a saga, and publishes its first command, in the caller's open transaction. If an instance with the same key
   * exists, the call returns that one.
   */
  async start<I, R, P extends Phase, S>(
    tx: CallerTransaction | BusTransaction | Tx,
    saga: Saga<I, R, P, S>,
    input: GivenInput<I>,
  ): Promise<Started> {
    const send = (outgoing: Outgoing): Promise<unknown> => this.#write(tx, [outgoing]);
    return startSaga(this.#parts, tx, send, saga, input);
  }

  /**
   * Starts a saga for each event of a type, exactly once per event: the dedupe row of the event and the instance are
   * written in one transaction. `input` makes the saga's input from the event; if it returns undefined, the event starts
   * nothing. Also registers the saga. An event with the key of an existing instance starts nothing.
   */
  startOn<E extends AnyEvent, I>(
    event: E,
    saga: Startable<I>,
    input: StartInput<E, NoInfer<I>, Tx>,
    options: StartOnOptions = {},
  ): void {
    registerStart(this, event, saga, input, options);
  }

  /** Creates or upgrades the tables and resolves with the migrations it applied. Safe to call from many processes at once. */
  async migrate(): Promise<readonly Migration[]> {
    const { database, settings } = this.#parts;
    const done = await migrateUp(database, settings.schema);
    await ensurePartitions(database, settings.schema).catch((error: unknown) => {
      throw this.#explain(error, "owner");
    });
    return done;
  }

  /**
   * Starts relay, consumers, sagas and upkeep, or only the named `parts`. Also starts the health and metrics server if a
   * port is set here or in SAGABOX_PORT. Throws if the schema is not migrated or the database role lacks rights.
   */
  async run(options: RunOptions = {}): Promise<Running> {
    rejectUnknownKeys("bus.run", options, ["port", "host", "parts"]);
    return this.#worker.run(options);
  }

  /**
   * Does once what a worker does all the time, for cron jobs and serverless functions: sends and handles the messages that
   * are due, moves scheduled ones, and runs sagas. It takes only work that no running worker owns, and gives everything back
   * by the deadline. With a broker it sends, but handles nothing; see `handle`.
   */
  drain(options: DrainOptions = {}): Promise<DrainResult> {
    return this.#worker.drain(options).catch((error: unknown) => {
      throw this.#explain(error, "consumer");
    });
  }

  /**
   * Handles one record that a platform took from a broker, such as AWS Lambda, through the inbox of its consumers: once, and
   * with their retries and dead letters. Throws RECORD_NOT_HANDLED if it must be delivered again, and HANDLER_MISSING if no
   * consumer is registered for it.
   */
  handle(record: DeliveredRecord): Promise<readonly HandledRecord[]> {
    return this.#worker.handle(record).catch((error: unknown) => {
      throw this.#explain(error, "consumer");
    });
  }

  /** Stops the worker and waits for work in flight, at most for the `shutdownTimeout`. Never rejects; see `StopResult`. */
  async stop(): Promise<StopResult> {
    return this.#worker.stop();
  }

  /** Runs the readiness checks: database, relay and every consumer. */
  health(): ReturnType<Worker["health"]> {
    return this.#worker.health();
  }

  /** Returns the metrics page in the Prometheus text format. */
  metrics(): string {
    return this.#worker.metricsText();
  }

  /** Describes the topics this service consumes and the broker objects they need, without any network access. */
  topology(): BusTopology {
    return this.#worker.topology();
  }

  /** Sends archived messages of a time window again, with their original ids, so consumers skip those they handled. */
  async republish(options: RepublishOptions): ReturnType<typeof republish> {
    const { database, settings, outbox } = this.#parts;
    const defaults = { retentionMs: outbox.retentionMs, actor: settings.service };
    return republish(database, settings.schema, { ...defaults, ...options }).catch((error: unknown) => {
      throw this.#explain(error, "operator");
    });
  }

  async #write(tx: unknown, outgoing: readonly Outgoing[]): Promise<Published[]> {
    return writeInto(this.#parts, tx, outgoing).catch((error: unknown) => {
      throw this.#explain(error);
    });
  }

  // Resolves the transaction at its first use, so that an invalid message is reported before an invalid transaction.
  #joinLazily(tx: unknown): Queryable {
    return { run: (statement, params) => this.#parts.join(tx).run(statement, params) };
  }

  #explain(error: unknown, needs: NeededRole = "writer"): unknown {
    return explainPostgresError(error, quoteSchema(this.#parts.settings.schema), needs);
  }
}

function requestInTransaction(): SagaboxError {
  return new SagaboxError(
    "REQUEST_IN_TRANSACTION",
    "A request must not be made inside a handler or bus.transaction(): it would wait while holding their connection and " +
      "locks. Publish the command instead, or ask before the transaction begins.",
  );
}

type WriteParts = Pick<Parts, "join" | "admission" | "writer" | "wakeUp" | "sender" | "flusher">;

/** Writes messages into a transaction that the caller will commit or roll back. */
async function writeInto(
  parts: WriteParts,
  tx: unknown,
  outgoing: readonly Outgoing[],
): Promise<Published[]> {
  parts.join(tx); // rejects an invalid transaction before waiting for admission
  const admitted = await parts.admission.admit(outgoing);
  return runInTurn(tx as object, () => writeAdmitted(parts, tx, { outgoing, admitted }));
}

interface AdmittedMessages {
  readonly outgoing: readonly Outgoing[];
  readonly admitted: readonly Outgoing[];
}

async function writeAdmitted(
  { join, writer, wakeUp, sender, flusher }: Omit<WriteParts, "admission">,
  tx: unknown,
  { outgoing, admitted }: AdmittedMessages,
): Promise<Published[]> {
  const caller = join(tx);
  const leasable = admitted.length > 0 && admitted.every((one) => one.flush && canLease(one));
  if (leasable && sender.accepts(admitted)) {
    const writtenAtMs = systemClock.monotonicMs();
    flusher.keep(await writer.writeLeased(caller, admitted, sender.leaseMs), writtenAtMs);
    return toPublished(outgoing, admitted, new Set(admitted.map(({ message }) => message.id)));
  }
  const written = await writer.write(caller, admitted);
  const now = admitted.filter((one) => one.schedule === null);
  wakeUp.notifySoon(
    now.map((one) => one.lane),
    tx as object,
  );
  return toPublished(outgoing, admitted, written);
}

const turns = new WeakMap<object, Promise<unknown>>();

// A write may need several statements. Writes to one transaction run one after another, so they keep the call order.
function runInTurn<T>(tx: object, write: () => Promise<T>): Promise<T> {
  const before = turns.get(tx) ?? Promise.resolve();
  const turn = before.then(write);
  turns.set(
    tx,
    turn.catch(() => undefined),
  );
  return turn;
}

type DeadLetterFilter = Parameters<typeof listDeadLetters>[1];

type BusDeadLetters = ReturnType<typeof busDeadLetters>;

interface DeadLetterParts {
  readonly deadLetters: DeadLetterStore;
  readonly wakeUp: WakeUp;
  readonly settings: { readonly service: string; readonly schema: string };
}

/** The operations on dead letters. Their writes are recorded in the audit log. */
function busDeadLetters(
  { deadLetters, wakeUp, settings }: DeadLetterParts,
  registry: Pick<HandlerRegistry, "consumers">,
) {
  let admin: DeadLetterAdmin | undefined;
  const toActor = (where: string, acting: Acting) => {
    rejectUnknownKeys(where, acting, ["actor", "reason"]);
    return readActing(where, acting, settings.service);
  };
  const explainFailure = <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      throw explainPostgresError(error, quoteSchema(settings.schema), "operator");
    });
  const withAdmin = <T>(
    work: (operations: AdminOperations, admin: DeadLetterAdmin) => Promise<T>,
  ): Promise<T> =>
    explainFailure(
      loadAdmin().then((operations) => {
        admin ??= operations.createDeadLetterAdmin(deadLetters.database, settings.schema);
        return work(operations, admin);
      }),
    );
  const contracts = (): readonly { readonly consumer: string; readonly contract: AnyContract }[] =>
    registry
      .consumers()
      .flatMap(({ name, handlers }) =>
        [...handlers.values()].map(({ contract }) => ({ consumer: name, contract })),
      );
  return {
    /** Lists dead letters, newest first. */
    list: (filter: DeadLetterFilter = {}) => explainFailure(listDeadLetters(deadLetters, filter)),
    /** Returns one dead letter with its message. Throws if it does not exist. */
    show: (id: string) => explainFailure(showDeadLetter(deadLetters, id)),
    /** Groups open dead letters by cause. */
    groups: (filter: GroupFilter = {}) => withAdmin((use, admin) => use.listDeadLetterGroups(admin, filter)),
    /** Sends one dead letter again. The actor in the audit log defaults to the service name. */
    replay: async (id: string, acting: Acting = {}) => {
      const replayed = await explainFailure(
        replayDeadLetter(deadLetters, id, toActor("deadLetters.replay", acting)),
      );
      wakeUp.notifyChanged([replayed.lane]);
      return replayed;
    },
    /** Returns what `replayAll` would do, without changing anything. */
    planReplay: (filter: ReplayFilter, pace: Pick<StagedReplayOptions, "rate" | "canary"> = {}) =>
      withAdmin((use, admin) => use.planReplay(admin, filter, pace)),
    /** Replays cause by cause: a canary first, then growing stages. If the cause recurs, its group stops. */
    replayAll: (filter: ReplayFilter, options: StagedReplayOptions) =>
      withAdmin((use, admin) => use.replayInStages(admin, filter, options)),
    /** Replays one dead letter with replaced data, validated by the contract of its handler in this process. */
    edit: (
      id: string,
      options: { readonly data: string; readonly actor: string; readonly reason: string },
    ) => {
      const findContract = (consumer: string | null, type: string): AnyContract | undefined =>
        contracts().find((one) => one.contract.name === type && (consumer ?? one.consumer) === one.consumer)
          ?.contract;
      return withAdmin((use, admin) =>
        use.editDeadLetter(admin, id, { ...options, contractOf: findContract }),
      );
    },
    /** Discards one dead letter; it will not be replayed. The actor in the audit log defaults to the service name. */
    discard: async (id: string, acting: Acting = {}) => {
      const letter = await explainFailure(
        discardDeadLetter(deadLetters, id, toActor("deadLetters.discard", acting)),
      );
      if (letter.held !== null) wakeUp.notifyChanged([letter.held.lane]);
      return letter;
    },
    /** Discards every open dead letter that matches the filter. */
    discardAll: (filter: ReplayFilter, options: DiscardOptions) =>
      withAdmin((use, admin) => use.discardDeadLetters(admin, filter, options)),
    /** Moves a message that still waits, or keeps failing, to the dead letters. */
    bury: (messageId: string, options: BuryOptions) =>
      withAdmin((use, admin) => use.buryLiveMessage(admin, messageId, options)),
    /** Lists every contract that has a handler in this process, with its consumer. */
    contracts,
  };
}
