import { SagaboxError } from "../errors/index.ts";
import type { HandlerRegistry } from "../inbox/index.ts";
import type { Service } from "../runtime/index.ts";
import { quoteSchema, type Database, type Sql } from "../storage/index.ts";
import type { SagaDefinition } from "./definition.ts";
import { definitionStatements } from "./definition-statements.ts";
import { SagaEngine, type SagaEngineParts, type SagaTransaction } from "./engine.ts";
import { checkEventConsumers } from "./event-consumer.ts";
import type { OpenTransaction } from "./instance-handle.ts";
import { listen } from "./listen.ts";
import type { SagaSettings } from "./options.ts";
import { SagaRegistry } from "./registry.ts";
import { SagaRunner } from "./runner.ts";
import { startIn, type Started } from "./start.ts";
import { sagaStatements } from "./statements.ts";
import { registerDefinitions } from "./stored-definitions.ts";

export interface SagasParts extends Pick<
  SagaEngineParts,
  "service" | "compose" | "newId" | "observer" | "spans" | "vault" | "openReply"
> {
  readonly database: Database;
  readonly schema: string;
  readonly worker: string;
  readonly leaseMs: number;
  readonly stopDeadlineMs: number;
  readonly settings: SagaSettings;
  readonly begin: OpenTransaction;
  readonly transactionOf: (tx: Sql) => SagaTransaction;
}

/** A saga with its types forgotten. */
export interface HasDefinition {
  readonly definition: SagaDefinition;
}

/** Everything about sagas that one process has: what it knows, and what it runs. */
export class Sagas {
  readonly engine: SagaEngine;
  readonly #parts: SagasParts;
  readonly #registry = new SagaRegistry();
  readonly #runner: SagaRunner;
  #listening = false;

  constructor(parts: SagasParts) {
    const { service, compose, newId, observer, settings, database, begin, worker, leaseMs, stopDeadlineMs } =
      parts;
    this.#parts = parts;
    const sql = sagaStatements(quoteSchema(parts.schema));
    const { maxStateBytes, earlyMs, concurrency, pollMs } = settings;
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
      ...(parts.openReply === undefined ? {} : { openReply: parts.openReply }),
    });
    this.#runner = new SagaRunner({
      engine: this.engine,
      database,
      begin,
      worker,
      leaseMs,
      concurrency,
      pollMs,
      stopDeadlineMs,
    });
  }

  /** The loop that does what is due. */
  get runner(): Service {
    return this.#runner;
  }

  register(...sagas: readonly HasDefinition[]): void {
    for (const saga of sagas) {
      if (saga?.definition?.nodes === undefined) throw noSaga();
      const { name, version } = saga.definition;
      const isNew = this.#registry.get(name, version) === undefined;
      if (isNew && this.#listening) throw tooLate(name);
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

  /** The same for a registry that is only looked at; what is registered later is not in it. */
  describe(registry: HandlerRegistry): void {
    const { transactionOf } = this.#parts;
    listen(registry, { engine: this.engine, transactionOf, hint: (id) => this.#runner.hint(id) });
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

  /** Something was written that may be due at once, for this instance or for any. */
  hint(sagaId?: string): void {
    this.#runner.hint(sagaId);
  }
}

function noSaga(): SagaboxError {
  return new SagaboxError(
    "SAGA_INVALID",
    "register takes sagas made by saga(). What came is none: a step before the pivot that lacks undo(), noUndo() or " +
      "pivot() is not finished; if it was imported, look for a circular import.",
  );
}

function tooLate(name: string): SagaboxError {
  return new SagaboxError(
    "SAGA_INVALID",
    `Saga "${name}" was registered after bus.run(), when its replies and events could not be heard any more. ` +
      "Register it before.",
  );
}
