import { setTimeout as sleep } from "node:timers/promises";
import type { Bus } from "sagabox";

// #region ended
/** Waits until a saga has ended, or needs a person. */
export async function waitForEnd({ sagas }: Bus, sagaId: string): Promise<string> {
  for (;;) {
    const { status } = await sagas.show(sagaId);
    if (["completed", "compensated", "failed"].includes(status)) return status;
    await sleep(20);
  }
}
// #endregion ended

// #region history
/** What became of its steps, in order. */
export async function readHistory({ sagas }: Bus, sagaId: string): Promise<string[]> {
  const lines = await sagas.history(sagaId);
  return lines
    .filter(({ step, to }) => step !== null && ["completed", "failed", "compensated"].includes(to ?? ""))
    .map(({ step, to, note }) => `${step} ${to}${note === null ? "" : `: ${note}`}`);
}
// #endregion history
