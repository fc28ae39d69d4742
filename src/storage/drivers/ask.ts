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
        answers[i] = value === undefined ? { status: "rejected", reason } : { status: "fulfilled", value };
        if (--open === 0) resolve(answers);
      });
    }
  });
}

// By callback, as the driver's own pool asks. Where somebody put another function in its place, to log or to count, that may
// know promises only; and so may other drivers of the same shape.
function send(
  client: PgClient,
  query: PgQuery | string,
  values: readonly unknown[] | undefined,
  answered: PgAnswered,
): void {
  const asked = Object.hasOwn(client, "query")
    ? client.query(query, values)
    : client.query(query, values, answered);
  if (asked instanceof Promise) asked.then((result: PgResult) => answered(null, result), answered);
}
