import { examine, pgDatabase, verifyConservation, type PgPool } from "sagabox/admin";

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
