import { examine, explain, pgDatabase, verifyConservation, type PgPool } from "sagabox/admin";

// #region examine
/** Returns what needs attention, for example for a nightly job. */
export async function findProblems(pool: PgPool): Promise<string[]> {
  const database = pgDatabase(pool);
  const { findings } = await examine(database, "sagabox");
  const problems = findings.filter(({ severity }) => severity === "problem");
  const { verdict } = await verifyConservation(database, "sagabox");
  return [
    ...problems.map(({ check, seen, fix }) => `${check}: ${seen}. ${fix ?? ""}`),
    ...(verdict === "kept" ? [] : [`conservation: ${verdict}`]),
  ];
}
// #endregion examine

// #region explain
/** Returns what happens next to each unfinished message and saga of an order. */
export async function explainOrder(pool: PgPool, orderId: string): Promise<string[]> {
  const { next } = await explain(pgDatabase(pool), "sagabox", { key: orderId });
  return next.map(({ of, why, next: then }) => `${of}: ${why}. ${then}`);
}
// #endregion explain
