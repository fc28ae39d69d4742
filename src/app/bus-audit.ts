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

type AuditParts = Pick<Parts, "database" | "settings" | "observer">;

/** The watch verifies as often as the sealer seals, within these bounds. */
const MIN_REST_MS = 1_000;
const MAX_REST_MS = 60_000;

/** The operations on the audit log. */
export interface BusAudit {
  /** Lists lines of the transition log and the action log, newest first. */
  readonly list: (filter?: AuditFilter) => Promise<readonly AuditLine[]>;
  /** Recomputes the hash chain from the stored rows and reports every difference. */
  readonly verify: (options?: VerifyOptions) => Promise<VerifyReport>;
  /** Seals the unsealed rows now instead of waiting for the worker. */
  readonly seal: () => Promise<SealResult>;
}

export function busAudit(parts: AuditParts): BusAudit {
  const { database, settings, observer } = parts;
  const sealer = createAuditSealer(parts);
  return {
    list: (filter) => listAudit(database, settings.schema, filter),
    verify: async (options) => {
      const report = await verifyAudit(database, settings.schema, options);
      const [first] = report.findings;
      if (first !== undefined) {
        observer.emit("audit.broken", { kind: first.kind, seal: first.seal, error: first.text });
      }
      return report;
    },
    seal: () => sealer.seal(),
  };
}

export function createAuditSealer({ database, settings, observer }: AuditParts): AuditSealer {
  const { schema, audit } = settings;
  return new AuditSealer({ database, schema, observer, sealEveryMs: audit.sealEveryMs });
}

export function createAuditWatch({ database, settings, observer }: AuditParts): AuditWatch {
  const { schema, audit } = settings;
  const everyMs = Math.min(Math.max(audit.sealEveryMs, MIN_REST_MS), MAX_REST_MS);
  return new AuditWatch({ database, schema, observer, everyMs });
}
