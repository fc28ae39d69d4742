import type { TestProject } from "vitest/node";
import { assertRequired } from "./broker-server.ts";
import { startKafka } from "./kafka-server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Where the run's own Kafka listens, or why there is none. */
    readonly kafka:
      | { readonly url: string; readonly version: string; readonly folder: string }
      | { readonly missing: string };
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const found = await startKafka();
  if ("missing" in found) {
    assertRequired("Kafka", found.missing);
    project.provide("kafka", found);
    return () => Promise.resolve();
  }
  project.provide("kafka", {
    url: found.server.url,
    version: found.server.version,
    folder: found.server.folder,
  });
  return () => found.server.stop();
}
