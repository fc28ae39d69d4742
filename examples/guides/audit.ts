import type { Bus } from "sagabox";

// #region act
export async function replayAs(bus: Bus, id: string, actor: string): Promise<void> {
  await bus.deadLetters.replay(id, { actor, reason: "the address service is back" });
}
// #endregion act

// #region look
export async function whoDidWhat(bus: Bus, actor: string): Promise<string[]> {
  const lines = await bus.audit.list({ actor, limit: 20 });
  return lines.map(({ action, target, outcome, reason }) =>
    [action, target.id, outcome, reason].filter((part) => part !== null).join(", "),
  );
}
// #endregion look

// #region anchor
/** Once a day, from somewhere that the owner of the database cannot write to. */
export async function checkAndKeep(bus: Bus, heads: string[]): Promise<void> {
  const anchor = heads.at(-1);
  const report = await bus.audit.verify(anchor === undefined ? {} : { anchor });
  if (!report.ok) throw new Error(report.findings[0]?.text);
  if (report.head !== null) heads.push(report.head);
}
// #endregion anchor
