import type { PgAnswered, PgClient, PgQuery, PgResult } from "./pg-shape.ts";

/** One promise for a query, where the driver would make two. */
export function ask(
  client: PgClient,
  query: PgQuery | string,
  values?: readonly unknown[],
): Promise<PgResult> {
  return new Promise((resolve, reject) => {
    send(client, query, values, (error, result) => {
      if (result === undefined) reject(error as Error);
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
        answers[i] = value === undefined ? { status: "rejected", reason } : { status: "fulfilled", value };
        if (--open === 0) resolve(answers);
      });
    }
  });
}

function send(
  client: PgClient,
  query: PgQuery | string,
  values: readonly unknown[] | undefined,
  answered: PgAnswered,
): void {
  const byCallback = isDriversOwn(client);
  try {
    const asked = byCallback ? client.query(query, values, answered) : client.query(query, values);
    if (!isThenable(asked)) return;
    // What stands in the driver's place for everybody may promise nothing, having handed the callback on.
    asked.then((result) => {
      if (!byCallback || result !== undefined) answered(null, result);
    }, answered);
  } catch (error) {
    answered(error);
  }
}

// By callback, as the driver's own pool asks. Where somebody put another function in its place, to log or to count, that may
// know promises only; and so may other drivers of the same shape.
function isDriversOwn(client: PgClient): boolean {
  const { constructor } = client;
  return !Object.hasOwn(client, "query") && Object.hasOwn(constructor, "Query");
}

function isThenable(value: unknown): value is PromiseLike<PgResult | undefined> {
  return typeof (value as Partial<PromiseLike<unknown>> | undefined)?.then === "function";
}
