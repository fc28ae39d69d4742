import type { Param } from "../database.ts";
import { explainPooler } from "../pooler.ts";
import { sqlState } from "../postgres-errors.ts";
import type { Statement } from "../statement.ts";
import type { ConnectionWatch } from "./connection-watch.ts";
import type { PgCallback, PgClient, PgQuery, PgResult } from "./pg-shape.ts";

/** Returns one promise per query; the driver would create two. */
export function sendQuery(
  client: PgClient,
  query: PgQuery | string,
  values?: readonly unknown[],
): Promise<PgResult> {
  return new Promise((resolve, reject) => {
    sendWithCallback(client, query, values, (error, result) => {
      if (result === undefined) reject(explainPooler(error) as Error);
      else resolve(result);
    });
  });
}

/** Runs one of our statements. A connection that does not answer by the deadline is destroyed. */
export function runStatementInTime(
  client: PgClient,
  watch: ConnectionWatch,
  {
    statement: { name, preparedName, text },
    params,
    deadlineMs,
  }: { readonly statement: Statement; readonly params: readonly Param[]; readonly deadlineMs: number },
): Promise<PgResult> {
  return sendInTime(client, watch, { name: preparedName, text, values: params }, { what: name, deadlineMs });
}

interface Deadline {
  readonly deadlineMs: number;
  /** Called with a good answer, before the answer to the next statement is read. */
  readonly onAnswer?: () => void;
}

/** Runs a text without parameters, such as BEGIN or LISTEN, under a deadline. */
export function runTextInTime(
  client: PgClient,
  watch: ConnectionWatch,
  text: string,
  limits: Deadline,
): Promise<PgResult> {
  return sendInTime(client, watch, text, { what: text.split(/[\s;]/, 1)[0] ?? text, ...limits });
}

function sendInTime(
  client: PgClient,
  watch: ConnectionWatch,
  query: PgQuery | string,
  { what, deadlineMs, onAnswer }: Deadline & { readonly what: string },
): Promise<PgResult> {
  return new Promise((resolve, reject) => {
    const endDeadline = watch.expectAnswer(client, deadlineMs, what, reject);
    sendWithCallback(client, query, undefined, (error, result) => {
      endDeadline();
      if (result !== undefined) {
        watch.noteAnswer(client);
        onAnswer?.();
        resolve(result);
      } else {
        if (sqlState(error) !== undefined) watch.noteAnswer(client);
        reject(explainPooler(error) as Error);
      }
    });
  });
}

/**
 * Sends several queries, the last of which is a COMMIT, and resolves with the result of each. After the deadline, queries
 * without an answer count as failed and the connection is destroyed.
 */
export function runAllInTime(
  client: PgClient,
  watch: ConnectionWatch,
  queries: readonly (PgQuery | string)[],
  deadlineMs: number,
): Promise<PromiseSettledResult<PgResult>[]> {
  return new Promise((resolve) => {
    const answers: PromiseSettledResult<PgResult>[] = [];
    let open = queries.length;
    const answer = (i: number, reason: unknown, value: PgResult | undefined): void => {
      if (answers[i] !== undefined) return; // the driver may answer twice where it cannot write a parameter
      answers[i] = value === undefined ? { status: "rejected", reason } : { status: "fulfilled", value };
      if (--open > 0) return;
      endDeadline();
      resolve(answers);
    };
    const endDeadline = watch.expectAnswer(client, deadlineMs, "COMMIT", (error) => {
      for (const i of queries.keys()) answer(i, error, undefined);
    });
    for (const [i, query] of queries.entries()) {
      sendWithCallback(client, query, undefined, (reason, value) => {
        if (value !== undefined) watch.noteAnswer(client);
        answer(i, explainPooler(reason), value);
      });
    }
  });
}

/**
 * Sends a query; `answered` is called before the answer to the next one is read, where the driver's own queries allow it.
 */
export function sendWithCallback(
  client: PgClient,
  query: PgQuery | string,
  values: readonly unknown[] | undefined,
  answered: PgCallback,
): void {
  try {
    const Query = findDriverQueryClass(client);
    if (Query === undefined)
      return forwardResult(client.query(query, values), (result) => answered(null, result), answered);
    // A library that replaced `query` may return a promise of its own; the answer comes through the query object.
    forwardResult(client.query(createDriverQuery(Query, query, values, answered)), () => undefined, answered);
  } catch (error) {
    answered(error);
  }
}

type DriverQueryClass = new (text: string, values: undefined, answered: PgCallback) => Writable<PgQuery>;
type Writable<T> = { -readonly [Name in keyof T]: T[Name] };

// A library that replaced `query`, to log or to count, may support promises only. So may other drivers with this interface.
function findDriverQueryClass(client: PgClient): DriverQueryClass | undefined {
  const { constructor } = client as { readonly constructor: { readonly Query?: DriverQueryClass } };
  return Object.hasOwn(client, "query") || !Object.hasOwn(constructor, "Query")
    ? undefined
    : constructor.Query;
}

// The driver would copy a plain object member by member for each statement.
function createDriverQuery(
  Query: DriverQueryClass,
  query: PgQuery | string,
  values: readonly unknown[] | undefined,
  answered: PgCallback,
): PgQuery {
  const { text, name, values: own } = typeof query === "string" ? { text: query, values } : query;
  // The constructor would take a function among the values for the callback.
  const asked = new Query(text, undefined, answered);
  asked.name = name;
  asked.values = own;
  return asked;
}

function forwardResult(
  asked: unknown,
  kept: (result: PgResult | undefined) => void,
  broken: (error: unknown) => void,
): void {
  const promise = asked as Partial<PromiseLike<PgResult | undefined>> | undefined;
  if (typeof promise?.then === "function") promise.then(kept, broken);
}
