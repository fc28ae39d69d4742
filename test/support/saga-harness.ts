import { onTestFinished } from "vitest";
import { createBus, type Bus, type Phase, type Saga, type Started } from "sagabox";
import { temporaryDatabase } from "./database.ts";
import { RecordingObserver } from "./recording-observer.ts";
import { until } from "./relays.ts";

/** A bus on a database of its own, and what tests of sagas ask again and again. */
export async function sagaHarness() {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const observer = new RecordingObserver();
  const another = (worker: string): Bus => {
    const bus = createBus({
      service: "shop",
      worker,
      database: url,
      log: false,
      observers: [observer],
      sagas: { pollInterval: 50 },
    });
    onTestFinished(() => bus.stop().then(() => undefined));
    return bus;
  };
  const bus = another("first");
  await bus.migrate(); // the partitions too: one that is attached later may get in the way of a message for its day
  const where = async (id: string): Promise<{ status: string; current_step: string | null }> => {
    const { rows } = await pool.query(
      "select status, current_step from sagabox.saga_instance where id = $1",
      [id],
    );
    return (
      (rows[0] as { status: string; current_step: string | null }) ?? { status: "none", current_step: null }
    );
  };
  return {
    bus,
    /** The same service in another process. */
    another,
    pool,
    url,
    observer,
    where,
    start: <I, R, P extends Phase>(saga: Saga<I, R, P>, input: I): Promise<Started> =>
      bus.transaction((tx) => bus.start(tx, saga, input)),
    /** Resolves when the instance has this status, and stands at this step if one is given. */
    at: (id: string, status: string, step?: string): Promise<void> =>
      until(async () => {
        const found = await where(id);
        return found.status === status && (step === undefined || found.current_step === step);
      }),
  };
}
