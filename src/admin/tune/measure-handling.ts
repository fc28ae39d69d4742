import { inboxEngine, receiveOnce } from "../../inbox/index.ts";
import { randomToken, systemClock } from "../../runtime/index.ts";
import type { Database } from "../../storage/index.ts";
import { measureBatches, type MeasureOptions } from "./measure.ts";
import type { Handling } from "./propose.ts";

/** Far longer than a handler without work can take. */
const DEADLINE_MS = 30_000;

/**
 * Handlers side by side, each in its own transaction with its inbox row, as a consumer runs them. They do nothing else, so
 * this is what the server gives to handlers that only wait for it.
 */
export async function measureHandling(
  database: Database,
  schema: string,
  { concurrency, forMs, signal }: Omit<MeasureOptions, "batchSize">,
): Promise<Handling> {
  const engine = inboxEngine({ database, schema });
  const work = { concurrency, untilMs: systemClock.monotonicMs() + forMs, signal };
  const handled = await measureBatches(work, async () => {
    const id = randomToken();
    const message = { id, consumer: "tune", topic: "tune", type: "tune.measured", payload: null };
    await receiveOnce(engine, { ...message, expiresAt: null, deadlineMs: DEADLINE_MS }, () => undefined);
    return 1;
  });
  return { concurrency, handled };
}
