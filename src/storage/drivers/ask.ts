import { explainPooler } from "../pooler.ts";
import type { PgAnswered, PgClient, PgQuery, PgResult } from "./pg-shape.ts";

/** One promise for a query, where the driver would make two. */
export function ask(
  client: PgClient,
  query: PgQuery | string,
  values?: readonly unknown[],
): Promise<PgResult> {
  return new Promise((resolve, reject) => {
    send(client, query, values, (error, result) => {
      if (result === undefined) reject(explainPooler(error) as Error);
      else resolve(result);
    });
  });
}

/** One promise for several that leave one behind the other: how each of them ended. */
export function askAll(
  client: PgClient,
  queries: readonly (PgQuery | string)[],
): Promise<PromiseSettledResult<PgResult>[]> {
  return new Promise((resolve) => {
    const answers: PromiseSettledResult<PgResult>[] = [];
    let open = queries.length;
    for (const [i, query] of queries.entries()) {
      send(client, query, undefined, (reason, value) => {
        if (answers[i] !== undefined) return; // the driver may answer twice where it cannot write a parameter
        answers[i] =
          value === undefined
            ? { status: "rejected", reason: explainPooler(reason) }
            : { status: "fulfilled", value };
        if (--open === 0) resolve(answers);
      });
    }
  });
}

/** Sends a query; `answered` is called before the answer to the next one is read, where the driver's own queries allow it. */
export function send(
  client: PgClient,
  query: PgQuery | string,
  values: readonly unknown[] | undefined,
  answered: PgAnswered,
): void {
  try {
    const Query = driversQuery(client);
    if (Query === undefined)
      return follow(client.query(query, values), (result) => answered(null, result), answered);
    // Whoever stands in the driver's place for everybody may promise something as well; the query itself tells the answer.
    follow(client.query(written(Query, query, values, answered)), () => undefined, answered);
  } catch (error) {
    answered(error);
  }
}

type DriversQuery = new (text: string, values: undefined, answered: PgAnswered) => Open<PgQuery>;
type Open<T> = { -readonly [Name in keyof T]: T[Name] };

// Where somebody put another function in the place of `query`, to log or to count, that may know promises only; and so may
// other drivers of the same shape.
function driversQuery(client: PgClient): DriversQuery | undefined {
  const { constructor } = client as { readonly constructor: { readonly Query?: DriversQuery } };
  return Object.hasOwn(client, "query") || !Object.hasOwn(constructor, "Query")
    ? undefined
    : constructor.Query;
}

// Of an object that is none of its own the driver would make a copy, member by member, for each statement.
function written(
  Query: DriversQuery,
  query: PgQuery | string,
  values: readonly unknown[] | undefined,
  answered: PgAnswered,
): PgQuery {
  const { text, name, values: own } = typeof query === "string" ? { text: query, values } : query;
  // Given to the constructor, a function among them would pass for the callback.
  const asked = new Query(text, undefined, answered);
  asked.name = name;
  asked.values = own;
  return asked;
}

function follow(
  asked: unknown,
  kept: (result: PgResult | undefined) => void,
  broken: (error: unknown) => void,
): void {
  const promise = asked as Partial<PromiseLike<PgResult | undefined>> | undefined;
  if (typeof promise?.then === "function") promise.then(kept, broken);
}
