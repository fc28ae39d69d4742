import type pg from "pg";
import {
  command,
  createBus,
  event,
  type Bus,
  type BusOptions,
  type GivenInput,
  type Phase,
  type Saga,
  type Started,
  permanent,
  saga,
} from "sagabox";
import { onTestFinished } from "vitest";
import { z } from "zod";
import { temporaryDatabase } from "./database.ts";
import { RecordingObserver } from "./recording-observer.ts";
import { until } from "./relays.ts";

export const Reserve = command("stock.reserve", {
  schema: z.object({ orderId: z.string() }),
  reply: z.object({ reservationId: z.string() }),
});
export const Release = command("stock.release", {
  schema: z.object({ orderId: z.string(), reservationId: z.string().optional() }),
});
export const Charge = command("payments.charge", {
  schema: z.object({ orderId: z.string() }),
  reply: z.object({ paymentId: z.string() }),
});
export const Refund = command("payments.refund", { schema: z.object({ orderId: z.string() }) });
export const Paid = event("payments.paid", {
  schema: z.object({ orderId: z.string() }),
  key: (d) => d.orderId,
});
export const Order = z.object({ orderId: z.string() });

export interface SagaFixture {
  readonly pool: pg.Pool;
  readonly url: string;
  readonly bus: Bus;
  /** Another process of the same service, as far as the database can tell. */
  readonly another: (options?: Partial<BusOptions>) => Bus;
  readonly status: (id: string) => Promise<string>;
  readonly ends: (id: string, status: string) => Promise<void>;
  readonly lines: (
    id: string,
  ) => Promise<{ event_type: string; step: string | null; note: string | null; cause: string }[]>;
}

/** Waits until a saga has ended, or needs an operator. */
export async function waitForEnd({ sagas }: Bus, sagaId: string): Promise<string> {
  let status = "";
  await until(async () => {
    ({ status } = await sagas.show(sagaId));
    return ["completed", "compensated", "failed"].includes(status);
  });
  return status;
}

/** A database and a bus for stories about sagas. */
export async function sagaFixture(options: Partial<BusOptions> = {}): Promise<SagaFixture> {
  const { pool, url } = await temporaryDatabase({ migrated: true });
  const another = (more: Partial<BusOptions> = {}): Bus => {
    const made = createBus({
      service: "shop",
      database: url,
      log: false,
      lease: 2_000,
      sagas: { pollInterval: 50 },
      ...options,
      ...more,
    });
    onTestFinished(() => made.stop().then(() => undefined));
    return made;
  };
  const status = async (id: string): Promise<string> => {
    const sql = "select status from sagabox.saga_instance where id = $1";
    return (await pool.query<{ status: string }>(sql, [id])).rows[0]?.status ?? "none";
  };
  const ends = async (id: string, as: string): Promise<void> => {
    await until(async () => (await status(id)) === as, 20_000);
  };
  const lines = async (id: string) => {
    const sql =
      "select event_type, step, note, cause from sagabox.saga_audit_log where saga_id = $1 order by id";
    return (
      await pool.query<{ event_type: string; step: string | null; note: string | null; cause: string }>(sql, [
        id,
      ])
    ).rows;
  };
  const bus = another();
  await bus.migrate(); // the partitions too: one that is attached later may get in the way of a message for its day
  return { pool, url, bus, another, status, ends, lines };
}

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
    /** A second process of this service. */
    another,
    pool,
    url,
    observer,
    where,
    start: <I, R, P extends Phase>(saga: Saga<I, R, P>, input: GivenInput<I>): Promise<Started> =>
      bus.transaction((tx) => bus.start(tx, saga, input)),
    /** Resolves when the instance has this status, and stands at this step if one is given. */
    at: (id: string, status: string, step?: string): Promise<void> =>
      until(async () => {
        const found = await where(id);
        return found.status === status && (step === undefined || found.current_step === step);
      }),
  };
}

export const Approved = event("approvals.given", {
  schema: z.object({ id: z.string(), by: z.string() }),
  key: (d) => d.id,
});

export const sagaOptions = {
  version: 1,
  input: z.object({ id: z.string() }),
  key: (i: { id: string }): string => i.id,
};

/** Undone by a function that fails until it is repaired. */
export function approvedOrder(faults: { broken: boolean }) {
  return saga("order", sagaOptions)
    .run("reserve", () => "r1")
    .undo(
      () => {
        if (faults.broken) throw permanent("stock is down");
      },
      { retry: { maxAttempts: 1 } },
    )
    .waitFor("approval", Approved, { timeout: "1d" })
    .run("ship", () => "s1")
    .noUndo("it is last");
}
