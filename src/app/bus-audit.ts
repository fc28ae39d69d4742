import {
  AuditSealer,
  AuditWatch,
  listAudit,
  verifyAudit,
  type AuditFilter,
  type AuditLine,
  type SealResult,
  type VerifyOptions,
  type VerifyReport,
} from "../audit/index.ts";
import type { Parts } from "./parts.ts";

type Needed = Pick<Parts, "database" | "settings" | "observer">;

/** Comparing goes on as often as sealing does, within these. */
const LEAST_REST_MS = 1_000;
const MOST_REST_MS = 60_000;

/** What can be asked of the audit log. */
export interface BusAudit {
  /** Lines of both logs, newest first. */
  readonly list: (filter?: AuditFilter) => Promise<readonly AuditLine[]>;
  /** Recomputes the chain of hashes from the rows that are there. */
  readonly verify: (options?: VerifyOptions) => Promise<VerifyReport>;
  /** Seals what can be sealed now, without waiting for the worker to do it. */
  readonly seal: () => Promise<SealResult>;
}

export function busAudit(parts: Needed): BusAudit {
  const { database, settings, observer } = parts;
  const sealer = auditSealer(parts);
  return {
    list: (filter) => listAudit(database, settings.schema, filter),
    verify: async (options) => {
      const report = await verifyAudit(database, settings.schema, options);
      const [first] = report.findings;
      if (first !== undefined) {
        observer.tell("audit.broken", { kind: first.kind, seal: first.seal, error: first.text });
      }
      return report;
    },
    seal: () => sealer.seal(),
  };
}

export function auditSealer({ database, settings, observer }: Needed): AuditSealer {
  const { schema, audit } = settings;
  return new AuditSealer({ database, schema, observer, sealEveryMs: audit.sealEveryMs });
}

export function auditWatch({ database, settings, observer }: Needed): AuditWatch {
  const { schema, audit } = settings;
  const everyMs = Math.min(Math.max(audit.sealEveryMs, LEAST_REST_MS), MOST_REST_MS);
  return new AuditWatch({ database, schema, observer, everyMs });
}
