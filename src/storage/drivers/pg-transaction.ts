import { SagaboxError } from "../../errors/index.ts";
import { withDeadline } from "../../runtime/index.ts";
import type { Afterword, OwnedTransaction, Param, Rows, TransactionOptions } from "../database.ts";
import { sqlState } from "../postgres-errors.ts";
import type { Statement } from "../statement.ts";
import { ask, askAll } from "./ask.ts";
import type { PgClient, PgQuery, PgResult } from "./pg-shape.ts";

type Isolation = NonNullable<TransactionOptions["isolation"]>;

// Behind comments, and as any of several statements: one that is overlooked would keep messages that were rolled back.
const GAP = String.raw`(?:\s|--[^\n]*(?:\n|$)|/\*(?:[^*]|\*(?!/))*\*/)`;
const SAVEPOINT = new RegExp(
  String.raw`(?:^|;)${GAP}*(?:savepoint|release|rollback${GAP}+(?:(?:work|transaction)${GAP}+)?to)\b`,
  "i",
);

const ROLLBACK_MS = 5_000;

const yes = (): boolean => true;
const no = (): boolean => false;

const ISOLATIONS: readonly unknown[] = ["read committed", "repeatable read", "serializable"];

/** The level becomes part of the SQL text, so nothing but one of these may come near it. */
export function checkIsolation(isolation: unknown): void {
  if (isolation === undefined || ISOLATIONS.includes(isolation)) return;
  throw new SagaboxError("OPTIONS_INVALID", `isolation must be one of: ${ISOLATIONS.join(", ")}.`);
}

/**
 * A transaction whose BEGIN travels with its first statement and whose COMMIT travels with its last ones.
 * Nothing is believed until the server has answered COMMIT to the COMMIT.
 */
export class PgTransaction implements OwnedTransaction {
  readonly isolation: Isolation;
  beforeSavepoint?: () => Promise<void>;
  readonly #client: PgClient;
  readonly #beginText: string;
  readonly #inFlight = new Set<Promise<PgResult>>();
  #state: "open" | "closed" = "open";
  #released = false;
  #begun: Promise<PgResult> | undefined;
  #notBegun: { readonly reason: unknown } | undefined;
  #asked = false;
  #lost: { readonly cause: unknown } | undefined;
  /** Resolves when the afterword is answered: true unless it failed. */
  #saying: Promise<boolean> | undefined;

  constructor(client: PgClient, options: TransactionOptions) {
    checkIsolation(options.isolation);
    this.#client = client;
    this.isolation = options.isolation ?? "read committed";
    client.on("error", this.#onLoss); // without a listener Node would end the process
    this.#pipeline(true);
    this.#beginText = beginText(this.isolation, options);
  }

  get open(): boolean {
    return this.#state === "open";
  }

  get lost(): boolean {
    return this.#lost !== undefined;
  }

  async run<R>(statement: Statement, params: readonly Param[] = []): Promise<Rows<R>> {
    return this.#send<R>(queryOf({ statement, params }));
  }

  query<R>(text: string, params: readonly unknown[] = []): Promise<Rows<R>> {
    // A text by itself is cheaper for the driver; what is none must not pass for a query of its own, nor for a callback.
    if (typeof text !== "string" || typeof params === "function")
      return this.#send<R>({ text, values: params });
    const values = Array.isArray(params) && params.length === 0 ? undefined : params;
    if (this.beforeSavepoint === undefined || !SAVEPOINT.test(text)) return this.#send<R>(text, values);
    return this.beforeSavepoint().then(() => this.#send<R>(text, values));
  }

  async commit(
    last: readonly { statement: Statement; params: readonly Param[] }[] = [],
    afterword?: Afterword,
  ): Promise<Rows<unknown>[]> {
    this.#assertOpen();
    const queries = last.map(queryOf); // throws while everything can still be rolled back
    this.#state = "closed";
    if (this.#inFlight.size > 0) await Promise.allSettled(this.#inFlight); // what nobody awaited may still end or abort the transaction
    this.#assertNotLost();
    this.#assertNotEndedByOthers();
    const answers = this.#together(() => {
      void this.#begin();
      const answering = askAll(this.#client, [...queries, "commit"]);
      if (afterword !== undefined) this.#say(afterword);
      return answering;
    });
    return this.#judge(await answers);
  }

  async rollback(): Promise<void> {
    if (this.#state === "closed") return;
    this.#state = "closed";
    if (this.#begun === undefined) return this.#release(this.lost);
    const rolledBack = this.#begun.then(() => ask(this.#client, "rollback"));
    // A server that does not answer must not keep the connection: without it, it rolls back all the same.
    const answered = await withDeadline(rolledBack.then(yes, no), ROLLBACK_MS, no);
    this.#release(!answered);
  }

  destroy(): void {
    this.#state = "closed";
    this.#release(true);
  }

  readonly #onLoss = (cause: unknown): void => {
    this.#lost ??= { cause };
  };

  async #send<R>(query: PgQuery | string, values?: readonly unknown[]): Promise<Rows<R>> {
    this.#assertOpen();
    this.#asked = true;
    const answer = this.#begun === undefined ? this.#first(query, values) : ask(this.#client, query, values);
    this.#inFlight.add(answer);
    try {
      return rowsOf<R>(await answer);
    } catch (error) {
      if (error instanceof Error) Error.captureStackTrace(error); // the server's answer leads to no line of the caller's
      throw error;
    } finally {
      this.#inFlight.delete(answer);
    }
  }

  #first(query: PgQuery | string, values?: readonly unknown[]): Promise<PgResult> {
    const stream = this.#client.connection?.stream;
    stream?.cork?.();
    process.nextTick(() => stream?.uncork?.()); // whatever is asked before anybody waits comes along
    void this.#begin();
    return ask(this.#client, query, values);
  }

  #begin(): Promise<PgResult> {
    if (this.#begun === undefined) {
      this.#begun = ask(this.#client, this.#beginText);
      this.#begun.catch((reason: unknown) => void (this.#notBegun = { reason })); // told again by whoever needs it
    }
    return this.#begun;
  }

  /** What is sent meanwhile leaves as one packet. */
  #together<T>(send: () => T): T {
    const stream = this.#client.connection?.stream;
    stream?.cork?.();
    try {
      return send();
    } finally {
      stream?.uncork?.();
    }
  }

  // A driver that has no such mode must not look as if it had.
  #pipeline(on: boolean): void {
    if (this.#client.pipeline !== undefined) this.#client.pipeline = on;
  }

  #say(afterword: Afterword): void {
    this.#saying = ask(this.#client, queryOf(afterword)).then(
      () => true,
      () => false,
    );
    afterword.onSent(this.#saying);
  }

  #judge(answers: PromiseSettledResult<PgResult>[]): Rows<unknown>[] {
    const failed = this.#notBegun ?? answers.find((answer) => answer.status === "rejected");
    const commit = answers.at(-1);
    if (commit?.status === "rejected" && !rolledBackFor(commit.reason)) {
      this.#release(true);
      throw new SagaboxError(
        "COMMIT_UNKNOWN",
        "The connection ended before the server answered COMMIT: the transaction may or may not have happened. " +
          "Look for its effect before doing it again.",
        { cause: commit.reason },
      );
    }
    this.#release(commit?.status === "rejected");
    if (failed !== undefined) throw failed.reason;
    if (commit?.status !== "fulfilled" || commit.value.command !== "COMMIT") throw aborted();
    return answers.slice(0, -1).map((answer) => rowsOf((answer as PromiseFulfilledResult<PgResult>).value));
  }

  #assertOpen(): void {
    if (this.#state === "open") return;
    throw new SagaboxError(
      "TRANSACTION_CLOSED",
      "This transaction has ended. Await every query before the function that uses it returns.",
    );
  }

  // The COMMIT was never sent, so this is a clear no rather than an unknown.
  #assertNotLost(): void {
    if (this.#lost === undefined && !this.#released) return;
    this.#release(true);
    throw new SagaboxError(
      "STORAGE_UNAVAILABLE",
      "The connection ended before COMMIT was sent, so the transaction did not happen.",
      { cause: this.#lost?.cause },
    );
  }

  // A COMMIT outside a transaction also answers COMMIT, so a transaction that the user's own SQL ended
  // would look committed while the statements sent with it ran on their own.
  #assertNotEndedByOthers(): void {
    const status = this.#client.getTransactionStatus();
    if (!this.#asked || status !== "I") return;
    this.#release(true);
    throw new SagaboxError(
      "TRANSACTION_CLOSED",
      "The transaction was ended by SQL run inside it (COMMIT or ROLLBACK). Leave that to sagabox: throw to roll back.",
    );
  }

  #release(destroy: boolean): void {
    if (this.#released) return;
    this.#released = true;
    if (destroy || this.#saying === undefined) this.#giveBack(destroy);
    else void this.#saying.then((answered) => this.#giveBack(!answered));
  }

  #giveBack(destroy: boolean): void {
    // A pipelining client would wait for its queries before it ends; a destroyed one must not.
    this.#pipeline(false);
    this.#client.removeListener("error", this.#onLoss);
    this.#client.release(destroy);
  }
}

function aborted(): SagaboxError {
  return new SagaboxError(
    "TRANSACTION_ABORTED",
    "The server rolled the transaction back because a statement in it had failed and the failure was swallowed. " +
      "Let SQL errors reach the caller, or wrap the statement in a savepoint.",
  );
}

// A COMMIT that fails with an SQLSTATE of its own (a deferred constraint, a serialisation failure) is a clear no.
function rolledBackFor(reason: unknown): boolean {
  const state = sqlState(reason);
  return state !== undefined && !state.startsWith("08") && !state.startsWith("57P");
}

function queryOf({ statement, params }: { statement: Statement; params: readonly Param[] }): PgQuery {
  for (const param of params) if (typeof param === "object" && param !== null) assertWritable(param);
  return { name: statement.preparedName, text: statement.text, values: params };
}

// Users may hand in anything, and the driver makes JSON of it. If it fails at that it closes the prepared statement, of
// which it goes on to think that it is there, and the COMMIT that is sent behind it commits without it.
function assertWritable(param: unknown): void {
  if (!ArrayBuffer.isView(param)) JSON.stringify(param);
}

function rowsOf<R>(result: PgResult): Rows<R> {
  return { rows: result.rows as R[], rowCount: result.rowCount ?? 0, command: result.command };
}

function beginText(isolation: Isolation, { idleTimeoutMs, lockTimeoutMs }: TransactionOptions): string {
  let text = `begin isolation level ${isolation}`;
  if (idleTimeoutMs !== undefined) {
    text += `; set local idle_in_transaction_session_timeout = ${Math.ceil(idleTimeoutMs)}`;
  }
  if (lockTimeoutMs !== undefined) text += `; set local lock_timeout = ${Math.ceil(lockTimeoutMs)}`;
  return text;
}
