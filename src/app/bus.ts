import type { Readable } from "node:stream";
import type { AttachOptions, ByteSource } from "../claim-check/index.ts";
import type { Flows } from "../flow/index.ts";
import { Inbox, type HandlerRegistry } from "../inbox/index.ts";
import {
  currentMessageContext,
  resolveTopic,
  type AnyCommand,
  type AnyContract,
  type Attachment,
  type InputOf,
  type ReplyOf,
} from "../message/index.ts";
import {
  ensurePartitions,
  republish,
  type Outgoing,
  type Published,
  type PublishOptions,
} from "../outbox/index.ts";
import { SagaboxError } from "../errors/index.ts";
import { rejectUnknownKeys } from "../options/index.ts";
import type { RequestOptions } from "../requests/index.ts";
import type { HasDefinition, Phase, Saga, Started } from "../saga/index.ts";
import { toQueryable, migrateUp, quoteSchema, type CallerTransaction } from "../storage/index.ts";
import { explainPostgresError, type Migration, type NeededRole, type Queryable } from "../storage/index.ts";
import { busAudit, type BusAudit } from "./bus-audit.ts";
import { busDeadLetters, type BusDeadLetters } from "./bus-dead-letters.ts";
import { busPrivacy, type BusPrivacy } from "./bus-privacy.ts";
import { busSagas, type BusSagas } from "./bus-sagas.ts";
import {
  busTransaction,
  runInsideTransaction,
  isInsideTransaction,
  findOwned,
  findScope,
  transactionLimits,
  type BusTransaction,
  type BusTransactionOptions,
} from "./bus-transaction.ts";
import { busPayloads, type BusPayloads } from "./claim-check.ts";
import type { Parts } from "./parts.ts";
import { composeAll, type PreparedMessage } from "./prepared-message.ts";
import { startSaga } from "./saga-transaction.ts";
import type { BusTopology } from "./topology.ts";
import type { RunOptions, Running, StopResult, Worker } from "./worker.ts";
import { writeInto } from "./write-into.ts";

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
