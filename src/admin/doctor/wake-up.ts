import { errorText } from "../../errors/index.ts";
import { randomToken, systemClock, withDeadline } from "../../runtime/index.ts";
import { notify, type Database, type Session } from "../../storage/index.ts";
import type { WakeUpFacts } from "./server-checks.ts";

const TIMEOUT_MS = 3_000;

/**
 * Sends a hint on the channel the workers listen on, and waits for it on another connection. A worker that hears it takes
 * one more look at its lanes, nothing else.
 */
export async function tryWakeUp(
  database: Database,
  schema: string,
  patienceMs: number = TIMEOUT_MS,
): Promise<WakeUpFacts> {
  const channel = `sagabox_${schema}`.slice(0, 63);
  const token = `doctor ${randomToken()}`;
  let session: Session | undefined;
  try {
    session = await database.session("doctor");
    let onNotification = (): void => undefined;
    const heard = new Promise<void>((resolve) => (onNotification = resolve));
    await session.listen(channel, ({ payload }) => {
      if (payload === token) onNotification();
    });
    const sentMs = systemClock.monotonicMs();
    await notify(database, channel, token);
    const arrived = await withDeadline(
      heard.then(() => true),
      patienceMs,
      () => false,
    );
    return { channel, error: null, afterMs: arrived ? systemClock.monotonicMs() - sentMs : null };
  } catch (error) {
    return { channel, afterMs: null, error: errorText(error) };
  } finally {
    session?.release(true);
  }
}
