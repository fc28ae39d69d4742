import type { Bus } from "sagabox";

// #region history
/** What became of its steps, in order. */
export async function readHistory({ sagas }: Bus, sagaId: string): Promise<string[]> {
  const lines = await sagas.history(sagaId);
  return lines
    .filter(({ step, to }) => step !== null && ["completed", "failed", "compensated"].includes(to ?? ""))
    .map(({ step, to, note }) => `${step} ${to}${note === null ? "" : `: ${note}`}`);
}
// #endregion history
