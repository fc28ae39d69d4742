import type { TestProject } from "vitest/node";
import { assertRequired } from "./broker-server.ts";
import { startRabbitMQ } from "./rabbitmq-server.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Where the run's own RabbitMQ listens, or why there is none. */
    readonly rabbitmq:
      | { readonly url: string; readonly version: string; readonly folder: string }
      | { readonly missing: string };
  }
}

export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const found = await startRabbitMQ();
  if ("missing" in found) {
    assertRequired("RabbitMQ", found.missing);
    project.provide("rabbitmq", found);
    return () => Promise.resolve();
  }
  project.provide("rabbitmq", {
    url: found.server.url,
    version: found.server.version,
    folder: found.server.folder,
  });
  return () => found.server.stop();
}
