import { randomBytes } from "node:crypto";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { z } from "zod";
import { fileStore, type ClaimCheckOptions } from "../../src/claim-check/index.ts";
import { createBus, event, type Bus } from "../../src/index.ts";
import { keyRing } from "../../src/privacy/index.ts";
import { size, type Bench } from "../harness/bench.ts";
import { compare } from "../harness/compare.ts";
import { result, type Result } from "../harness/result.ts";
import { median, computeRatio } from "../harness/statistics.ts";

const AT_ONCE = 8;
const LARGE_BYTES = 256 * 1024;
const SUBJECTS = 500;

const Customer = z.object({ id: z.string(), name: z.string(), email: z.string(), total: z.number() });
const Plain = event("bench.plain", { schema: Customer, key: ({ id }) => id });
const EncryptedEvent = event("bench.sealed", {
  schema: Customer,
  key: ({ id }) => id,
  personal: { subject: ({ id }) => id, fields: ["name", "email"] },
});
const Large = event("bench.large", { schema: z.object({ id: z.string(), scan: z.string() }) });

/** The whole way from publish to handler: personal fields sealed against clear, large payloads shelved against inline. */
export async function payloads(bench: Bench): Promise<Result[]> {
  const small = size(bench, 3_000, 600);
  const large = size(bench, 200, 60);
  const folder = await mkdtemp(join(tmpdir(), "sagabox-bench-"));
  const inline = await openBus(bench, "inline", { threshold: 1_048_576 });
  const shelved = await openBus(bench, "shelved", { threshold: LARGE_BYTES / 2 });
  const filed = await openBus(bench, "filed", {
    threshold: LARGE_BYTES / 2,
    store: fileStore({ folder }),
  });
  const few = (count: number, warmUp: boolean): number => (warmUp ? Math.ceil(count / 5) : count);
  const samples = await compare(bench, "payloads, messages/s", {
    plain: ({ warmUp }) => inline.rate(few(small, warmUp), (n) => inline.customer(Plain, n)),
    sealed: ({ warmUp }) => inline.rate(few(small, warmUp), (n) => inline.customer(EncryptedEvent, n)),
    inline: ({ warmUp }) => inline.rate(few(large, warmUp), (n) => inline.large(n)),
    shelved: ({ warmUp }) => shelved.rate(few(large, warmUp), (n) => shelved.large(n)),
    filed: ({ warmUp }) => filed.rate(few(large, warmUp), (n) => filed.large(n)),
  });
  for (const place of [inline, shelved, filed]) await place.close();
  await rm(folder, { recursive: true });
  return [
    result("C6.sealed", computeRatio(samples.sealed, samples.plain), {
      "sealed messages/s": median(samples.sealed),
      "plain messages/s": median(samples.plain),
    }),
    result("C5.postgres", computeRatio(samples.shelved, samples.inline), {
      "256 kB in a store of the database, messages/s": median(samples.shelved),
      "256 kB in the message, messages/s": median(samples.inline),
    }),
    result("C5.file", computeRatio(samples.filed, samples.inline), {
      "256 kB in a folder, messages/s": median(samples.filed),
    }),
  ];
}

type Publish = (n: number) => Promise<unknown>;

async function openBus(bench: Bench, name: string, claimCheck: ClaimCheckOptions) {
  const place = await bench.server.database(`payloads_${name}`);
  const ring = keyRing({ current: "k1", keys: { k1: randomBytes(32) }, index: randomBytes(32) });
  const bus: Bus = createBus({
    service: "bench",
    database: place.pool(30),
    log: "error",
    claimCheck,
    privacy: { keys: ring },
  });
  let handled = 0;
  let reached: { readonly count: number; readonly resolve: () => void } | undefined;
  for (const contract of [Plain, EncryptedEvent, Large]) {
    bus.on(contract, { consumer: "bench", concurrency: AT_ONCE }, () => {
      handled += 1;
      if (reached !== undefined && handled >= reached.count) reached.resolve();
    });
  }
  await bus.migrate();
  await bus.run();
  const scan = randomBytes(LARGE_BYTES / 2).toString("hex");
  return {
    customer: (contract: typeof Plain | typeof EncryptedEvent, n: number) => {
      const id = `person-${n % SUBJECTS}`;
      const data = { id, name: `Person Number ${n}`, email: `person-${n}@example.org`, total: n };
      return bus.transaction((tx) => tx.publish(contract, data));
    },
    large: (n: number) => bus.transaction((tx) => tx.publish(Large, { id: String(n), scan })),
    /** Messages a second from the first publish until the last was handled. */
    async rate(count: number, publish: Publish): Promise<number> {
      const done = new Promise<void>((resolve) => (reached = { count: handled + count, resolve }));
      const began = performance.now();
      let next = 0;
      await Promise.all(
        Array.from({ length: AT_ONCE }, async () => {
          for (let n = next++; n < count; n = next++) await publish(n);
        }),
      );
      await done;
      return (count / (performance.now() - began)) * 1_000;
    },
    async close(): Promise<void> {
      await bus.stop();
      await place.drop();
    },
  };
}
