import type { TestProject } from "vitest/node";
import { isBrokerKind, startBroker, assertRequired } from "./broker-server.ts";

/** The address of the broker of this run, or the reason why there is none. */
type RunBroker =
  { readonly url: string; readonly version: string; readonly folder: string } | { readonly missing: string };

declare module "vitest" {
  interface ProvidedContext {
    readonly rabbitmq: RunBroker;
    readonly kafka: RunBroker;
    readonly nats: RunBroker;
  }
}

/** Starts the broker that the project is named after, once per run. */
export default async function setup(project: TestProject): Promise<() => Promise<void>> {
  const kind = project.name;
  if (!isBrokerKind(kind)) throw new Error(`The project "${kind}" is not named after a broker.`);
  const found = await startBroker(kind);
  if ("missing" in found) {
    assertRequired(kind, found.missing);
    project.provide(kind, found);
    return () => Promise.resolve();
  }
  const { url, version, folder } = found.server;
  project.provide(kind, { url, version, folder });
  return () => found.server.stop();
}
