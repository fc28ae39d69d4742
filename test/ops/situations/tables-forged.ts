import { createBus, event } from "sagabox";
import { z } from "zod";
import { createDatabase } from "../../support/database.ts";
import { until } from "../../support/relays.ts";
import { TroubledBroker } from "../support/troubled-broker.ts";
import { local, type Situation } from "./situation.ts";

const Drawn = event("cheque.drawn", { schema: z.object({ n: z.number() }) });

/** A service in which a superuser deletes the receipt of a sent message and changes a line of the audit log. */
export async function tablesForged(): Promise<Situation> {
  const database = await createDatabase({ migrated: true, leakGuard: false });
  const transport = new TroubledBroker();
  const often = { conservation: { every: "1s" }, audit: { sealEvery: "1s" } } as const;
  const bus = createBus({ service: "bank", database: database.url, transport, log: false, ...often });
  bus.on(Drawn, { consumer: "books" }, () => undefined);
  const { port } = await bus.run({ port: 0 });
  const query = (sql: string) => database.pool.query(`set session_replication_role = replica; ${sql}`);
  return {
    alerts: ["ConservationBreach", "AuditBroken"],
    targets: { bank: local(port) },
    cause: async () => {
      await bus.transaction((tx) => tx.publish(Drawn, { n: 1 }));
      const sent = "select 1 from sagabox.receipt";
      await until(async () => ((await database.pool.query(sent)).rowCount ?? 0) > 0);
      await query("create table taken as table sagabox.receipt; delete from sagabox.receipt");
      const now = Date.now();
      await bus.republish({
        from: new Date(now - 1),
        to: new Date(now),
        actor: "teller",
        reason: "a line to seal",
      });
      // Nothing is sealed while an older transaction is open anywhere in the cluster.
      await until(async () => (await bus.audit.seal()).head !== null);
      // Verification needs no request: the worker compares the log with its seals all the time.
      await query("update sagabox.audit_log set actor = 'forged'");
    },
    // The audit's alert reports findings: it ends when there were no new ones for a while.
    repair: async () => void (await query("insert into sagabox.receipt table taken")),
    end: async () => {
      await bus.stop();
      await database.drop();
    },
  };
}
