import { createBus, event } from "sagabox";
import { z } from "zod";
import { createDatabase } from "../../support/database.ts";
import { TroubledBroker } from "../support/troubled-broker.ts";
import { local, type Situation } from "./situation.ts";

const Drawn = event("cheque.drawn", { schema: z.object({ n: z.number() }) });

/** A bank in which somebody with all rights changes a seal of the audit log. */
export async function auditForged(): Promise<Situation> {
  const database = await createDatabase({ migrated: true, leakGuard: false });
  const bus = createBus({
    service: "bank",
    database: database.url,
    transport: new TroubledBroker(),
    log: false,
  });
  bus.on(Drawn, { consumer: "books" }, () => undefined);
  const { port } = await bus.run({ port: 0 });
  return {
    alerts: ["AuditBroken"],
    targets: { bank: local(port) },
    cause: async () => {
      const now = Date.now();
      await bus.republish({
        from: new Date(now - 1_000),
        to: new Date(now),
        actor: "teller",
        reason: "a line to seal",
      });
      await bus.audit.seal();
      await database.pool.query(
        "set session_replication_role = replica; update sagabox.audit_seal set hash = sha256('forged')",
      );
      await bus.audit.verify();
    },
    // The alert tells of findings: it ends when for a while there were no new ones.
    repair: async () => undefined,
    end: async () => {
      await bus.stop();
      await database.drop();
    },
  };
}
