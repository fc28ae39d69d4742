import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { local, type Situation } from "./situation.ts";

/** Scripted, as there is no cluster here: what kube-state-metrics says of our jobs. */
export async function jobsFailed(): Promise<Situation> {
  let failed = 0;
  const page = (): string =>
    ["sagabox-archive-1", "sagabox-inbox-cleanup-1", "sagabox-migrate"]
      .map(
        (name) => `kube_job_status_failed{job_name="${name}"} ${name === "sagabox-migrate" ? 0 : failed}\n`,
      )
      .join("");
  const server = createServer((_, response) => response.end(page()));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    alerts: ["ArchiveJobFailed", "InboxCleanupJobFailed"],
    targets: { "kube-state-metrics": local((server.address() as AddressInfo).port) },
    cause: async () => void (failed = 1),
    repair: async () => void (failed = 0),
    end: async () => {
      server.closeAllConnections();
      server.close();
    },
  };
}
