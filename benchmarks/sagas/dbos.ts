import type { Bench } from "../harness/bench.ts";

const AT_ONCE = 8;
const PACKAGE = "@dbos-inc/dbos-sdk";

interface Dbos {
  setConfig(config: { name: string; systemDatabaseUrl: string; logLevel: string }): void;
  launch(): Promise<void>;
  shutdown(): Promise<void>;
  registerWorkflow<F>(work: F, options: { name: string }): F;
  runStep<T>(work: () => Promise<T>, options: { name: string }): Promise<T>;
}

/** The same three steps as a workflow of DBOS, if it is installed. It is no dependency of ours. */
export async function openDbos(bench: Bench) {
  const module = await import(PACKAGE).catch(() => undefined);
  if (module === undefined) {
    bench.leaveOut("P13.dbos", `install it for the comparison: npm install --no-save ${PACKAGE}`);
    return undefined;
  }
  const { DBOS } = module as { DBOS: Dbos };
  const place = await bench.server.database("dbos");
  DBOS.setConfig({ name: "bench", systemDatabaseUrl: place.url, logLevel: "error" });
  const workflow = DBOS.registerWorkflow(
    async (): Promise<void> => {
      for (const name of ["one", "two", "three"]) await DBOS.runStep(async () => ({ ok: true }), { name });
    },
    { name: "three-steps" },
  );
  await DBOS.launch();
  return {
    /** Workflows a second. */
    async rate(count: number): Promise<number> {
      const began = performance.now();
      let next = 0;
      await Promise.all(
        Array.from({ length: AT_ONCE }, async () => {
          while (next++ < count) await workflow();
        }),
      );
      return (count / (performance.now() - began)) * 1_000;
    },
    async close(): Promise<void> {
      await DBOS.shutdown();
      await place.drop();
    },
  };
}
