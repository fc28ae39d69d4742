import { retryAfter, SagaboxError } from "../errors/index.ts";
import type { BusTransaction, HandlerContext, HandlerRegistry, Received, Started } from "../inbox/index.ts";
import {
  type AnyEvent,
  type Json,
  type ReplyBody,
  replyContract,
  replyTopicFor,
  wireSchema,
} from "../message/index.ts";
import type { Service } from "../runtime/index.ts";
import { type Database, quoteSchema } from "../storage/index.ts";
import { definitionStatements, sagaStatements } from "./statements.ts";
import type { SagaDefinition } from "./definition.ts";
import { toStorableText } from "./draft.ts";
import { SagaEngine, type SagaEngineParts, type SagaTransaction } from "./engine.ts";
import type { SagaInput, WorkOutcome } from "./input.ts";
import type { OpenTransaction } from "./instance-handle.ts";
import type { SagaSettings } from "./options.ts";
import { encodePendingInput, withoutFields } from "./pending-input.ts";
import { type AwaitedEvent, SagaRegistry } from "./registry.ts";
import { SagaRunner, type SagaRunnerParts } from "./runner.ts";
import { sagaReplies } from "./saga-command.ts";
import type { InstanceRow, LoadedInstance } from "./saga-store.ts";
import { startIn } from "./start.ts";
import { registerDefinitions } from "./stored-definitions.ts";
import { readSubject } from "./subject-cipher.ts";
import { conflict } from "./transition-writer.ts";

export interface SagasParts extends Pick<
  SagaEngineParts,
  "service" | "compose" | "newId" | "observer" | "spans" | "vault" | "openReply" | "discardDeadLetters"
> {
  readonly database: Database;
  readonly schema: string;
  readonly worker: string;
  readonly leaseMs: number;
  readonly stopDeadlineMs: number;
  readonly settings: SagaSettings;
  readonly begin: OpenTransaction;
  /** The library of the bus, which `tx` steps may use. Null without one. */
  readonly library: string | null;
  readonly transactionOf: (tx: BusTransaction) => SagaTransaction;
}

/** Any saga, without its type parameters. */
export interface HasDefinition {
  readonly definition: SagaDefinition;
}

/** The sagas of one worker: registered definitions, engine and runner. */
export class Sagas {
  readonly engine: SagaEngine;
  readonly #parts: SagasParts;
  readonly #runnerParts: SagaRunnerParts;
  readonly #registry = new SagaRegistry();
  readonly #runner: SagaRunner;
  /** The runners of drains. */
  readonly #guests = new Set<SagaRunner>();
  #listening = false;

  constructor(parts: SagasParts) {
    const { service, compose, newId, observer, settings, database, begin, worker, leaseMs, stopDeadlineMs } =
      parts;
    this.#parts = parts;
    const sql = sagaStatements(quoteSchema(parts.schema));
    const { maxStateBytes, earlyEventsMs: earlyMs, concurrency, pollIntervalMs: pollMs } = settings;
    const registry = this.#registry;
    this.engine = new SagaEngine({
      sql,
      service,
      registry,
      compose,
      newId,
      observer,
      spans: parts.spans,
      maxStateBytes,
      earlyMs,
      vault: parts.vault,
      discardDeadLetters: parts.discardDeadLetters,
      ...(parts.openReply === undefined ? {} : { openReply: parts.openReply }),
    });
    this.#runnerParts = {
      engine: this.engine,
      database,
      begin,
      worker,
      leaseMs,
      concurrency,
      pollMs,
      stopDeadlineMs,
    };
    this.#runner = new SagaRunner(this.#runnerParts);
  }

  /** Creates a runner for a drain. `worker` must be unique. Call `end` after it has stopped. */
  openRunner(limits: { readonly worker: string; readonly stopDeadlineMs: number }): {
    readonly runner: SagaRunner;
    readonly end: () => void;
  } {
    const runner = new SagaRunner({ ...this.#runnerParts, ...limits });
    this.#guests.add(runner);
    return { runner, end: () => this.#guests.delete(runner) };
  }

  /** The service that runs due instances. */
  get runner(): Service {
    return this.#runner;
  }

  register(...sagas: readonly HasDefinition[]): void {
    for (const saga of sagas) {
      if (saga?.definition?.nodes === undefined) throw noSaga();
      const { name, version } = saga.definition;
      const isNew = this.#registry.get(name, version) === undefined;
      if (isNew && this.#listening) throw tooLate(name);
      assertSameLibrary(saga.definition, this.#parts.library);
      this.#registry.register(saga.definition);
    }
    checkEventConsumers(this.#parts.service, this.#registry.listAwaitedEvents());
  }

  /**
   * Compares the registered definitions with the stored ones, and stores new versions. Throws SAGA_DEFINITION_CHANGED
   * if unfinished instances have begun steps that a definition lacks.
   */
  async registerDefinitions(): Promise<void> {
    const { database, schema, vault, observer } = this.#parts;
    const sql = definitionStatements(quoteSchema(schema));
    await registerDefinitions(
      { database, sql, sagas: this.engine.sql, vault },
      this.#registry.all(),
      observer,
    );
  }

  /** Adds the consumer of replies and events, once everything is registered. */
  listen(registry: HandlerRegistry): void {
    this.#listening = true;
    this.describe(registry);
  }

  /** Adds the consumers to a registry that is only inspected. Sagas registered later are missing from it. */
  describe(registry: HandlerRegistry): void {
    const { transactionOf } = this.#parts;
    listen(registry, { engine: this.engine, transactionOf, hint: (id) => this.hint(id) });
  }

  async start(tx: SagaTransaction, { definition }: HasDefinition, input: unknown): Promise<Started> {
    if (this.#registry.get(definition.name, definition.version) !== definition) {
      throw new SagaboxError(
        "SAGA_UNKNOWN",
        `Saga "${definition.name}" version ${definition.version} is not registered. Call bus.register(saga) first.`,
      );
    }
    return startIn(this.engine, tx, definition, input, { taker: this.#runner });
  }

  get registry(): Pick<SagaRegistry, "get" | "all"> {
    return this.#registry;
  }

  /** Signals that an instance may be due, or any instance if no id is given. */
  hint(sagaId?: string): void {
    this.#runner.hint(sagaId);
    for (const guest of this.#guests) guest.hint(sagaId);
  }
}

function noSaga(): SagaboxError {
  return new SagaboxError(
    "SAGA_INVALID",
    "register takes sagas made by saga(), but got something else: a step before the pivot that lacks undo(), noUndo() or " +
      "pivot() is not finished; if it was imported, look for a circular import.",
  );
}

function tooLate(name: string): SagaboxError {
  return new SagaboxError(
    "SAGA_INVALID",
    `Saga "${name}" was registered after bus.run(), too late to consume its replies and events. ` +
      "Register it before.",
  );
}

function assertSameLibrary({ name, library }: SagaDefinition, own: string | null): void {
  if (library === null || library === own) return;
  throw new SagaboxError(
    "SAGA_INVALID",
    `The \`tx\` steps of saga "${name}" use transactions of ${library}, but this bus ` +
      `${own === null ? "was created without `transactions`" : `uses those of ${own}`}. Pass the same adapter to both.`,
  );
}

interface ListenParts {
  readonly engine: SagaEngine;
  /** Wraps a handler's transaction, so that it can send composed messages. */
  readonly transactionOf: (tx: BusTransaction) => SagaTransaction;
  /** Signals that this instance may be due. */
  readonly hint: (sagaId: string) => void;
}

/** Adds consumers for replies to saga commands and for awaited events. Call it after all sagas are registered. */
function listen(registry: HandlerRegistry, parts: ListenParts): void {
  const { engine } = parts;
  const { service, registry: sagas } = engine.parts;
  if (sagas.all().length === 0) return;
  const replies = replyContract(replyTopicFor(sagaReplies(service)));
  const consumer = replyConsumer(service);
  // Replies may arrive before the consumer first starts, so it reads from the beginning. Events are read from now on.
  registry.onInternally(replies, { consumer, from: "beginning" }, async (message, context) =>
    handleReply(parts, message, context),
  );
  for (const { event, sagas: interested } of sagas.listAwaitedEvents()) {
    for (const [type, versions] of interested) {
      // One consumer per event and saga: a worker whose versions do not wait for this event must not receive it, and a
      // saga whose key function throws must not block the others.
      registry.onInternally(
        keepWireForm(event),
        { consumer: eventConsumer(service, event.name, type) },
        async (message, context) => {
          const keys = new Map<string, Set<number>>();
          for (const { version, keyOf } of versions) {
            const key = keyOf(message.data);
            keys.set(key, (keys.get(key) ?? new Set()).add(version));
          }
          // Lock the keys in sorted order, so that two events with equal keys cannot deadlock.
          const inOrder = [...keys].sort(([one], [other]) => (one < other ? -1 : 1));
          for (const [nr, [key, versionsWithKey]] of inOrder.entries()) {
            // Pending inputs for different instances need different ids.
            const inputId = nr === 0 ? message.id : `${message.id}+${nr}`;
            await handleEvent(parts, message, context, {
              event,
              type,
              key,
              versions: versionsWithKey,
              inputId,
            });
          }
        },
      );
    }
  }
}

/** The event with its data in the form in which they were sent, because the state holds that form. */
function keepWireForm(event: AnyEvent): AnyEvent {
  return { ...event, schema: wireSchema(event.schema, `event "${event.name}"`) };
}

async function handleReply(
  parts: ListenParts,
  { id, sagaId, data }: Omit<Received, "data"> & { readonly data: ReplyBody },
  { tx }: HandlerContext,
): Promise<void> {
  if (sagaId === null) return; // not for a saga, or its sender did not pass the id on
  const { engine } = parts;
  const transaction = parts.transactionOf(tx);
  const before = await engine.load(transaction, sagaId);
  if (before === undefined) return; // deleted after its retention
  const body = await decryptReply(engine, data, transaction);
  const input: SagaInput = { kind: "reply", requestId: body.requestId, outcome: toWorkOutcome(body) };
  await applyInput(parts, transaction, before, { id, cause: `message:${id}`, input });
}

// Fields that cannot be decrypted stay hidden in the state, and later steps see them as hidden.
async function decryptReply(
  { parts: { openReply } }: SagaEngine,
  body: ReplyBody,
  tx: SagaTransaction,
): Promise<ReplyBody> {
  if (body.outcome !== "done" || body.sealed === undefined || body.reply === undefined) return body;
  return openReply === undefined
    ? body
    : { ...body, reply: (await openReply(body.sealed, body.reply, tx)).data };
}

interface EventRoute {
  readonly event: AnyEvent;
  readonly type: string;
  readonly key: string;
  /** The versions that read this key from the event. */
  readonly versions: ReadonlySet<number>;
  /** Id of the pending input, if the event has to wait for the instance. */
  readonly inputId: string;
}

async function handleEvent(
  parts: ListenParts,
  { id, type, data }: Received,
  { tx }: HandlerContext,
  { event, type: saga, key, versions, inputId }: EventRoute,
): Promise<void> {
  const { engine } = parts;
  const transaction = parts.transactionOf(tx);
  await transaction.run(engine.sql.meet, [saga, key]);
  const { rows } = await transaction.run<InstanceRow>(engine.sql.loadByKey, [saga, key]);
  const input = { kind: "event", id, type, data: data as Json } as const;
  const cause = `message:${id}`;
  if (rows[0] !== undefined) {
    const before = await engine.open(rows[0], transaction);
    if (before === undefined) return; // erased
    const known = engine.parts.registry.get(saga, before.definitionVersion) !== undefined;
    if (known && !versions.has(before.definitionVersion)) return; // its version reads another key from this event
    return applyInput(parts, transaction, before, { id: inputId, cause, input });
  }
  const text = await encodeEarlyEvent(engine, event, inputId, input, transaction);
  await transaction.run(engine.sql.keep, [inputId, saga, key, cause, text, engine.parts.earlyMs]);
}

// No instance exists yet, so the event is encrypted with the key of its own data subject. If its personal fields were
// erased, the subject may be gone too, and there is nothing to encrypt.
async function encodeEarlyEvent(
  { parts: { vault } }: SagaEngine,
  { name, personal }: AnyEvent,
  inputId: string,
  input: Extract<SagaInput, { kind: "event" }>,
  tx: SagaTransaction,
): Promise<string> {
  if (personal === null || vault === undefined) return encodePendingInput(undefined, inputId, input);
  const frame = { ...input, data: withoutFields(input.data, personal.fields) };
  if (JSON.stringify(frame.data) === JSON.stringify(input.data))
    return encodePendingInput(undefined, inputId, input);
  const seal = await vault.forPerson(readSubject(name, personal, input.data), tx);
  return encodePendingInput(seal, inputId, input, frame);
}

/** Applies an input, or stores it as pending input if this worker has not registered the instance's version. */
async function applyInput(
  { engine, hint }: ListenParts,
  tx: SagaTransaction,
  before: LoadedInstance,
  { id, cause, input }: { readonly id: string; readonly cause: string; readonly input: SagaInput },
): Promise<void> {
  const definition = engine.parts.registry.get(before.type, before.definitionVersion);
  if (definition === undefined) {
    await engine.addPendingInput(tx, before.id, id, cause, input, before.seal);
    const { type, definitionVersion: version } = before;
    const { observer } = engine.parts;
    tx.onCommit(() => observer.emit("saga.unknown_version", { type, version, count: 1 }));
    return;
  }
  try {
    await engine.apply(tx, definition, before, { cause, input });
  } catch (error) {
    if ((error as { code?: unknown }).code === conflict("").code) throw retryAfter(20, "the saga was busy");
    throw error;
  }
  tx.onCommit(() => hint(before.id));
}

/**
 * Maps a reply to the outcome of its step. Only a refusal is certain: a consumer that gave up may have had effects. Once
 * the command is a dead letter, the saga does not send another one, because that would become a dead letter as well.
 */
function toWorkOutcome(reply: ReplyBody): WorkOutcome {
  if (reply.outcome === "done") return { kind: "done", result: reply.reply ?? null };
  const { reason } = reply;
  const error = toStorableText(reply.error);
  if (reason === "refused" || reason === "ignored") return { kind: "refused", error };
  return { kind: "failed", error: `${reason}: ${error}`, permanent: GIVEN_UP.has(reason) };
}

/** Dead-letter reasons after which a new command would fail as well. An expired one may arrive in time. */
const GIVEN_UP: ReadonlySet<string> = new Set(["rejected", "exhausted", "poison"]);

/** Maximum length of a consumer name in the database. */
const MAX_NAME_LENGTH = 255;

/** Name of the consumer for replies to the service's saga commands. */
function replyConsumer(service: string): string {
  const topic = replyTopicFor(sagaReplies(service));
  return topic.slice(topic.indexOf(".") + 1);
}

/** Name of the consumer of an event for one saga. */
function eventConsumer(service: string, event: string, saga: string): string {
  return `${replyConsumer(service)}.${event}.${saga}`;
}

/** Rejects at registration consumer names that the database would reject when the bus runs. */
function checkEventConsumers(service: string, awaited: readonly AwaitedEvent[]): void {
  for (const { event, sagas } of awaited) {
    for (const saga of sagas.keys()) {
      const consumer = eventConsumer(service, event.name, saga);
      if (consumer.length > MAX_NAME_LENGTH) throw tooLong(consumer, event.name, saga);
    }
  }
}

function tooLong(consumer: string, event: string, saga: string): SagaboxError {
  return new SagaboxError(
    "SAGA_INVALID",
    `Saga "${saga}" waits for "${event}" with the consumer "${consumer}", whose name has ` +
      `${consumer.length} characters; ${MAX_NAME_LENGTH} are allowed. Shorten the name of the service, the event or the saga.`,
  );
}
