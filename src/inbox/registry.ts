import { SagaboxError } from "../errors/index.ts";
import { resolveTopic, type AnyContract, type Routing } from "../message/index.ts";
import type {
  BatchContext,
  BatchHandler,
  BusTransaction,
  Handler,
  HandlerContext,
  Received,
  StatementHandler,
} from "./handler.ts";
import {
  consumerSettings,
  handlerSettings,
  mergeConsumerOptions,
  type ConsumerOptions,
  type ConsumerSettings,
  type HandlerOptions,
  type HandlerSettings,
} from "./options.ts";

/** A registered handler without its type parameters. */
export type Work =
  | { readonly kind: "each"; readonly handle: (message: Received, context: HandlerContext) => unknown }
  | {
      readonly kind: "bulk";
      readonly handle: (messages: readonly Received[], context: BatchContext) => unknown;
    }
  | { readonly kind: "statement"; readonly build: StatementHandler<AnyContract> };

export interface Registration {
  readonly consumer: string;
  readonly contract: AnyContract;
  readonly topic: string;
  readonly settings: HandlerSettings;
  readonly work: Work;
  /** True for a handler of sagabox itself, which needs no transaction of the user's library. */
  readonly internal: boolean;
}

export interface ConsumerDefinition {
  readonly name: string;
  readonly settings: ConsumerSettings;
  readonly topics: readonly string[];
  /** Handlers by the name of their contract. */
  readonly handlers: ReadonlyMap<string, Registration>;
}

interface ConsumerDraft {
  options: ConsumerOptions;
  readonly handlers: Map<string, Registration>;
}

/** The registered handlers: at most one per consumer and contract. A consumer can have handlers for many contracts. */
export class HandlerRegistry<Tx = BusTransaction> {
  readonly #routing: Routing | undefined;
  readonly #defaults: ConsumerOptions;
  readonly #consumers = new Map<string, ConsumerDraft>();
  #isClosed = false;

  /** `defaults` apply to each consumer that does not set the option. */
  constructor(routing?: Routing, defaults: ConsumerOptions = {}) {
    this.#routing = routing;
    this.#defaults = defaults;
  }

  on<C extends AnyContract>(contract: C, options: HandlerOptions, handler: Handler<C, Tx>): void;
  on<C extends AnyContract>(
    contract: C,
    options: HandlerOptions & { readonly statement: StatementHandler<C>; readonly batch?: never },
  ): void;
  on(
    contract: AnyContract,
    options: HandlerOptions & { readonly statement?: StatementHandler<AnyContract> },
    handler?: Handler<AnyContract, Tx>,
  ): void {
    assertUsable("on", contract, options);
    const { statement } = options;
    if (typeof handler === "function" && statement === undefined) {
      this.#add(contract, options, { kind: "each", handle: handler as unknown as Handler<AnyContract> });
    } else if (typeof statement === "function" && handler === undefined && options.batch === undefined) {
      this.#add(contract, options, { kind: "statement", build: statement });
    } else {
      throw new SagaboxError(
        "OPTIONS_INVALID",
        `on(${contract.name}) needs either a handler function or the option \`statement\` (which takes no batch).`,
      );
    }
  }

  /** Registers a handler of sagabox itself, such as the one that takes replies to sagas. */
  onInternally<C extends AnyContract>(contract: C, options: HandlerOptions, handler: Handler<C>): void {
    const handle = handler as unknown as Handler<AnyContract>;
    this.#add(contract, options, { kind: "each", handle }, { internal: true });
  }

  onBatch<C extends AnyContract>(contract: C, options: HandlerOptions, handler: BatchHandler<C, Tx>): void {
    assertUsable("onBatch", contract, options);
    if (typeof handler !== "function") {
      throw new SagaboxError("OPTIONS_INVALID", `onBatch(${contract.name}) needs a handler function.`);
    }
    const handle = handler as unknown as BatchHandler<AnyContract>;
    this.#add(contract, { ...options, batch: options.batch ?? {} }, { kind: "bulk", handle });
  }

  /** Rejects later registrations, because the consumers have started and would never call them. */
  close(): void {
    this.#isClosed = true;
  }

  consumers(): readonly ConsumerDefinition[] {
    return [...this.#consumers].map(([name, { options, handlers }]) => ({
      name,
      settings: consumerSettings(name, { ...this.#defaults, ...options }),
      topics: [...new Set([...handlers.values()].map((handler) => handler.topic))],
      handlers,
    }));
  }

  #add(contract: AnyContract, options: HandlerOptions, work: Work, { internal } = { internal: false }): void {
    const settings = handlerSettings(options);
    const { consumer } = options;
    if (this.#isClosed) throw lateHandlerError(consumer, contract.name);
    const known = this.#consumers.get(consumer) ?? { options: {}, handlers: new Map<string, Registration>() };
    if (known.handlers.has(contract.name)) {
      throw new SagaboxError(
        "HANDLER_DUPLICATE",
        `Consumer "${consumer}" already has a handler for "${contract.name}". Use another consumer name for a second effect.`,
      );
    }
    const merged = mergeConsumerOptions(consumer, known.options, options);
    consumerSettings(consumer, merged);
    known.options = merged;
    const topic = resolveTopic(contract, this.#routing);
    known.handlers.set(contract.name, { consumer, contract, topic, settings, work, internal });
    this.#consumers.set(consumer, known);
  }
}

// Checks the arguments of JavaScript callers.
function assertUsable(where: string, contract: unknown, options: unknown): void {
  const { name, schema } = (contract ?? {}) as Partial<AnyContract>;
  if (typeof name !== "string" || schema?.["~standard"] === undefined) {
    throw new SagaboxError(
      "CONTRACT_INVALID",
      `The first argument of ${where}() must be a contract created by event(), command() or stream(). If it was imported, ` +
        "check for a circular import.",
    );
  }
  if (typeof options === "object" && options !== null && !Array.isArray(options)) return;
  throw new SagaboxError(
    "OPTIONS_INVALID",
    `The second argument of ${where}(${name}) must be options with at least { consumer: "…" }, the third the handler.`,
  );
}

function lateHandlerError(consumer: string, type: string): SagaboxError {
  return new SagaboxError(
    "HANDLER_TOO_LATE",
    `Consumer "${consumer}" got a handler for "${type}" after bus.run(). It would never be called. ` +
      "Register all handlers before bus.run().",
  );
}
