import type { TestProject } from "vitest/node";
import { assertRequired } from "./broker-server.ts";
import { startNATS } from "./nats-server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Where the run's own NATS listens, or why there is none. */
    readonly nats:
      | { readonly url: string; readonly version: string; readonly folder: string }
      | { readonly missing: string };
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const found = await startNATS();
  if ("missing" in found) {
    assertRequired("NATS", found.missing);
    project.provide("nats", found);
    return () => Promise.resolve();
  }
  project.provide("nats", {
    url: found.server.url,
    version: found.server.version,
    folder: found.server.folder,
  });
  return () => found.server.stop();
}
