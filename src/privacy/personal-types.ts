import type { AnyContract } from "../message/index.ts";
import { systemClock } from "../runtime/index.ts";
import { type Database, quoteSchema } from "../storage/index.ts";
import { personalTypeStatements } from "./statements.ts";

type NamedContract = Pick<AnyContract, "name" | "personal">;

export interface PersonalTypesOptions {
  readonly database: Database;
  readonly schema: string;
  readonly service: string;
}

/** How long a process waits before it tries again to register a type, in milliseconds. */
const RETRY_AFTER_MS = 60_000;

/** Tells the database which types have personal fields, because the SQL function `publish` refuses those. */
export class PersonalTypes {
  readonly #database: Database;
  readonly #service: string;
  readonly #sql: ReturnType<typeof personalTypeStatements>;
  /** When a type may be registered again, by the monotonic clock. */
  readonly #nextMs = new Map<string, number>();
  readonly #inFlight = new Set<Promise<void>>();

  constructor({ database, schema, service }: PersonalTypesOptions) {
    this.#database = database;
    this.#service = service;
    this.#sql = personalTypeStatements(quoteSchema(schema));
  }

  /** Registers the contracts of this service. A type that no longer has personal fields is published again. */
  async register(contracts: Iterable<NamedContract>): Promise<void> {
    const fields = new Map<string, readonly string[]>();
    for (const { name, personal } of contracts)
      if ((fields.get(name) ?? []).length === 0) fields.set(name, personal?.fields ?? []);
    if (fields.size === 0) return;
    const listed = [...fields].map(([type, names]) => ({ type, fields: names }));
    await this.#database.run(this.#sql.register, [this.#service, JSON.stringify(listed)]);
    for (const [type, names] of fields) if (names.length > 0) this.#nextMs.set(type, Infinity);
  }

  /**
   * Registers a type in the background, once per process. It never delays or fails the publish that calls it: that one may
   * hold the last connection of the pool.
   */
  registerSoon(contract: NamedContract): void {
    const nowMs = systemClock.monotonicMs();
    if ((this.#nextMs.get(contract.name) ?? 0) > nowMs) return;
    this.#nextMs.set(contract.name, nowMs + RETRY_AFTER_MS);
    const registering = this.register([contract])
      .catch(() => undefined)
      .finally(() => this.#inFlight.delete(registering));
    this.#inFlight.add(registering);
  }

  /** Waits for registrations in flight, because they hold a connection. */
  async close(): Promise<void> {
    await Promise.all(this.#inFlight);
  }
}
