import type { Readable } from "node:stream";
import {
  buryLiveMessage,
  type BuryOptions,
  createDeadLetterAdmin,
  discardDeadLetters,
  type DiscardOptions,
  editDeadLetter,
  type GroupFilter,
  listDeadLetterGroups,
  planReplay,
  type ReplayFilter,
  replayInStages,
  type StagedReplayOptions,
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
import { type HandlerRegistry, Inbox } from "../inbox/index.ts";
import type { WakeUp } from "../lanes/index.ts";
import {
  type AnyCommand,
  type AnyContract,
  type Attachment,
  currentMessageContext,
  type InputOf,
  type ReplyOf,
  resolveTopic,
} from "../message/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import {
  canLease,
  ensurePartitions,
  type Outgoing,
  type Published,
  type PublishOptions,
  republish,
  toPublished,
} from "../outbox/index.ts";
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
  toQueryable,
} from "../storage/index.ts";
import { busAudit, type BusAudit } from "./bus-audit.ts";
import { busPrivacy, type BusPrivacy } from "./bus-privacy.ts";
import { busSagas, type BusSagas } from "./bus-sagas.ts";
import {
  busTransaction,
  type BusTransaction,
  type BusTransactionOptions,
  findOwned,
  findScope,
  isInsideTransaction,
  runInsideTransaction,
  transactionLimits,
} from "./bus-transaction.ts";
import { busPayloads, type BusPayloads } from "./claim-check.ts";
import type { Parts } from "./parts.ts";
import { composeAll, type PreparedMessage } from "./prepared-message.ts";
import { startSaga } from "./saga-transaction.ts";
import type { BusTopology } from "./topology.ts";
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

/** What a service holds: it publishes, handles, and runs the machinery behind both. */
export class Bus {
  /** Registers handlers; see `on` and `onBatch`. */
  readonly on: HandlerRegistry["on"];
  readonly onBatch: HandlerRegistry["onBatch"];
  /** Exactly-once effect in anyone's own consumer loop. */
  readonly inbox: Inbox;
  /** Watches declared flows over events, and tells the path of one correlation id. */
  readonly flows: Pick<Flows, "watch" | "paths" | "unfinished">;
  /** Looks at running sagas, and lets people decide about them. */
  readonly sagas: BusSagas;
  readonly deadLetters: BusDeadLetters;
  /** Who did what and why, and whether that is still as it was written. */
  readonly audit: BusAudit;
  /** Data about persons: finding, giving out, holding and erasing them. */
  readonly privacy: BusPrivacy;
  /** Large payloads and attachments in their stores. */
  readonly payloads: BusPayloads;
  readonly #parts: Parts;
  readonly #worker: Worker;

  constructor(parts: Parts, registry: HandlerRegistry, worker: Worker) {
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

  /** Writes the message in the caller's open transaction: it exists if and only if that commits. */
  publish<C extends AnyContract>(
    tx: CallerTransaction | BusTransaction,
    contract: C,
    data: InputOf<C>,
    options?: PublishOptions,
  ): Promise<Published> {
    const scope = findScope(tx);
    if (scope !== undefined) return scope.publish(contract, data, options);
    const compose = async (): Promise<Outgoing> =>
      this.#parts.compose(contract, data, options, lazyTransaction(tx));
    return compose().then(async (outgoing) => {
      const [published] = await this.#write(tx, [outgoing]);
      return published ?? { id: outgoing.message.id, written: false };
    });
  }

  /** Any number of messages, in as few statements as their size allows. */
  publishAll(
    tx: CallerTransaction | BusTransaction,
    ...messages: readonly (PreparedMessage | readonly PreparedMessage[])[]
  ): Promise<Published[]> {
    const scope = findScope(tx);
    const given = messages.flat() as PreparedMessage[];
    const all = (): Promise<Outgoing[]> =>
      composeAll(this.#parts.compose, given, findOwned(tx) ?? lazyTransaction(tx));
    if (scope === undefined) return all().then((outgoing) => this.#write(tx, outgoing));
    return scope.during(async () => scope.addAll(await all()));
  }

  /**
   * Runs `work` in a transaction of our own and commits it. Messages travel in the same trip as the COMMIT, and are
   * sent right after it. Throw to roll back; nothing is published then.
   */
  async transaction<T>(
    work: (tx: BusTransaction) => Promise<T>,
    options: BusTransactionOptions = {},
  ): Promise<T> {
    const limits = transactionLimits(work, options);
    if (options.topics !== undefined) await this.admit(...options.topics);
    const tx = await this.#parts.database.begin(limits);
    const scope = this.#parts.scope(tx);
    try {
      const result = await runInsideTransaction(() => work(busTransaction(tx, scope)));
      if (scope.isUnderWay) await scope.waitForPending();
      scope.handleCommit(await tx.commit(scope.lastStatements(), scope.afterword()));
      return result;
    } catch (error) {
      await tx.rollback();
      throw this.#explain(error);
    }
  }

  /**
   * Sends the command and waits for its reply. It takes no transaction: the command must be committed before anybody
   * can answer, and a handler or a transaction that waited would keep its connection and its locks meanwhile.
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
   * After your own COMMIT: sends what was published with `{ flush: true }` from this process, at once. Without it the
   * relay sends those messages when their short lease is over.
   */
  async flush(): Promise<void> {
    await this.#parts.flusher.flush();
  }

  /** With the overflow policy "wait": resolves when there is room for these. Call it before BEGIN, holding no locks. */
  async admit(...topics: readonly (AnyContract | string)[]): Promise<void> {
    const names = topics.map((topic) =>
      typeof topic === "string" ? topic : resolveTopic(topic, this.#parts.settings.routing),
    );
    await this.#parts.admission.admitBefore(names);
  }

  /** Uploads bytes or a stream; the result is JSON to put into data, and is kept while anything needs it. */
  async attach(source: ByteSource, options?: AttachOptions): Promise<Attachment> {
    return this.#parts.claimCheck.attach(source, options);
  }

  /** The bytes of an attachment, as they are read; the stream fails at its end, or earlier, if they were changed. */
  open(attachment: Attachment): Readable {
    return this.#parts.claimCheck.open(attachment);
  }

  /** Makes sagas known to this process: those it starts, and those it works on, every version that still runs. */
  register(...sagas: readonly HasDefinition[]): void {
    this.#parts.sagas.register(...sagas);
  }

  /** Starts a saga in the caller's open transaction, with its first command. One instance for each key. */
  async start<I, R, P extends Phase>(
    tx: CallerTransaction | BusTransaction,
    saga: Saga<I, R, P>,
    input: I,
  ): Promise<Started> {
    const send = (outgoing: Outgoing): Promise<unknown> => this.#write(tx, [outgoing]);
    return startSaga(this.#parts, tx, send, saga, input);
  }

  /** Creates or upgrades the tables. Any number of processes may call it at once. */
  async migrate(): Promise<readonly Migration[]> {
    const { database, settings } = this.#parts;
    const done = await migrateUp(database, settings.schema);
    await ensurePartitions(database, settings.schema).catch((error: unknown) => {
      throw this.#explain(error, "owner");
    });
    return done;
  }

  /**
   * Starts relay, consumers, sagas and upkeep, or only the `parts` that are named, and the health and metrics server when
   * a port is given here or in SAGABOX_PORT.
   */
  async run(options: RunOptions = {}): Promise<Running> {
    rejectUnknownKeys("bus.run", options, ["port", "host", "parts"]);
    return this.#worker.run(options);
  }

  /** Finishes what was begun, within the shutdown timeout. `clean` is false when something had to be cut off. */
  async stop(): Promise<StopResult> {
    return this.#worker.stop();
  }

  health(): ReturnType<Worker["health"]> {
    return this.#worker.health();
  }

  /** The page that Prometheus scrapes. */
  metrics(): string {
    return this.#worker.metricsText();
  }

  /** What this service consumes, and what is made at the broker for it. Asks neither broker nor database. */
  topology(): BusTopology {
    return this.#worker.topology();
  }

  /** Sends the messages of a time window again, under their own ids; whoever handled them takes them for duplicates. */
  async republish(options: RepublishOptions): ReturnType<typeof republish> {
    const { database, settings, outbox } = this.#parts;
    const defaults = { retentionMs: outbox.retentionMs, actor: settings.service };
    return republish(database, settings.schema, { ...defaults, ...options }).catch((error: unknown) => {
      throw this.#explain(error, "operator");
    });
  }

  async #write(tx: CallerTransaction | BusTransaction, outgoing: readonly Outgoing[]): Promise<Published[]> {
    return writeInto(this.#parts, tx, outgoing).catch((error: unknown) => {
      throw this.#explain(error);
    });
  }

  #explain(error: unknown, needs: NeededRole = "writer"): unknown {
    return explainPostgresError(error, quoteSchema(this.#parts.settings.schema), needs);
  }
}

// What is wrong with the message is told before what is wrong with the transaction.
function lazyTransaction(tx: CallerTransaction | BusTransaction): Queryable {
  return { run: (statement, params) => toQueryable(tx).run(statement, params) };
}

function requestInTransaction(): SagaboxError {
  return new SagaboxError(
    "REQUEST_IN_TRANSACTION",
    "A request must not be made inside a handler or bus.transaction(): it would wait while holding their connection and " +
      "locks. Publish the command instead, or ask before the transaction begins.",
  );
}

type WriteParts = Pick<Parts, "admission" | "writer" | "wakeUp" | "sender" | "flusher">;

/** Writes messages straight away into a transaction that somebody else will end. */
async function writeInto(
  { admission, writer, wakeUp, sender, flusher }: WriteParts,
  tx: CallerTransaction | BusTransaction,
  outgoing: readonly Outgoing[],
): Promise<Published[]> {
  toQueryable(tx); // refused before anybody waits for room
  const admitted = await admission.admit(outgoing);
  return runInTurn(tx, () => writeAdmitted({ writer, wakeUp, sender, flusher }, tx, { outgoing, admitted }));
}

interface AdmittedMessages {
  readonly outgoing: readonly Outgoing[];
  readonly admitted: readonly Outgoing[];
}

async function writeAdmitted(
  { writer, wakeUp, sender, flusher }: Omit<WriteParts, "admission">,
  tx: CallerTransaction | BusTransaction,
  { outgoing, admitted }: AdmittedMessages,
): Promise<Published[]> {
  const caller = toQueryable(tx);
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
    tx,
  );
  return toPublished(outgoing, admitted, written);
}

const turns = new WeakMap<object, Promise<unknown>>();

// A write may take more than one statement, and must not be overtaken in between by one that was asked for later.
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

/** Looks at what was given up, and lets people decide about it. */
function busDeadLetters(
  { deadLetters, wakeUp, settings }: DeadLetterParts,
  registry: Pick<HandlerRegistry, "consumers">,
) {
  const admin = createDeadLetterAdmin(deadLetters.database, settings.schema);
  const toActor = (where: string, acting: Acting) => {
    rejectUnknownKeys(where, acting, ["actor", "reason"]);
    return readActing(where, acting, settings.service);
  };
  const explainFailure = <T>(work: Promise<T>): Promise<T> =>
    work.catch((error: unknown) => {
      throw explainPostgresError(error, quoteSchema(settings.schema), "operator");
    });
  const contracts = (): readonly { readonly consumer: string; readonly contract: AnyContract }[] =>
    registry
      .consumers()
      .flatMap(({ name, handlers }) =>
        [...handlers.values()].map(({ contract }) => ({ consumer: name, contract })),
      );
  return {
    list: (filter: DeadLetterFilter = {}) => explainFailure(listDeadLetters(deadLetters, filter)),
    show: (id: string) => explainFailure(showDeadLetter(deadLetters, id)),
    /** Open letters by their cause. */
    groups: (filter: GroupFilter = {}) => explainFailure(listDeadLetterGroups(admin, filter)),
    /** Written to the audit log with who and why; without them, with the name of the service. */
    replay: async (id: string, acting: Acting = {}) => {
      const replayed = await explainFailure(
        replayDeadLetter(deadLetters, id, toActor("deadLetters.replay", acting)),
      );
      wakeUp.notifyChanged([replayed.lane]);
      return replayed;
    },
    /** What `replayAll` would do. */
    planReplay: (filter: ReplayFilter, pace: Pick<StagedReplayOptions, "rate" | "canary"> = {}) =>
      explainFailure(planReplay(admin, filter, pace)),
    /** Cause by cause, a few first, then more and more; a cause that shows itself again stops its group. */
    replayAll: (filter: ReplayFilter, options: StagedReplayOptions) =>
      explainFailure(replayInStages(admin, filter, options)),
    /** Replays one letter with other data, held to the contract of its handler here. */
    edit: (
      id: string,
      options: { readonly data: string; readonly actor: string; readonly reason: string },
    ) => {
      const findContract = (consumer: string | null, type: string): AnyContract | undefined =>
        contracts().find((one) => one.contract.name === type && (consumer ?? one.consumer) === one.consumer)
          ?.contract;
      return explainFailure(editDeadLetter(admin, id, { ...options, contractOf: findContract }));
    },
    discard: async (id: string, acting: Acting = {}) => {
      const letter = await explainFailure(
        discardDeadLetter(deadLetters, id, toActor("deadLetters.discard", acting)),
      );
      if (letter.held !== null) wakeUp.notifyChanged([letter.held.lane]);
      return letter;
    },
    discardAll: (filter: ReplayFilter, options: DiscardOptions) =>
      explainFailure(discardDeadLetters(admin, filter, options)),
    /** Puts a message that still waits among the dead letters. */
    bury: (messageId: string, options: BuryOptions) =>
      explainFailure(buryLiveMessage(admin, messageId, options)),
    /** Every contract that has a handler here, with whose it is. */
    contracts,
  };
}
